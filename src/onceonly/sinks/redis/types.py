"""How columns become the texts of a hash; a column that has none is refused by name. Pure."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.rows.arrow import in_utc, is_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

_TEXTS = (
    r"string|(?:var)?char\(\d+\)|binary|boolean|tinyint|smallint|int|bigint|float|double|decimal\(.*\)|date"
)
_PLAIN = re.compile(rf"{_TEXTS}|timestamp(?:_ntz)?")
_NESTED = ("array<", "map<", "struct<")
_NO_TEXT = re.compile(r"\b(?:interval|variant|void|geometry|geography|calendarinterval)\b")


def check(columns: Iterable[tuple[str, str]]) -> None:
    """See that every column has a text. Raises ``ConfigurationError`` that names the first that has none."""
    for name, kind in columns:
        if (_PLAIN.fullmatch(kind) or kind.startswith(_NESTED)) and not _NO_TEXT.search(kind):
            continue
        raise ConfigurationError(
            f"The column {name} is {kind}, for which the sink redis has no text.",
            next_step="leave it out, or cast it to a string in the query",
        )


def texts(column: pa.Array) -> pa.Array:
    """Return the texts of a column, as strings or binary; null where it is null.

    Numbers and dates as Spark casts them to strings, times as ISO 8601 (UTC with a Z), binary as its bytes; arrays,
    maps and structs as JSON.
    """
    import pyarrow as pa

    kind, is_a = column.type, pa.types
    if is_a.is_integer(kind) or is_a.is_boolean(kind) or is_a.is_date(kind):
        return column.cast(pa.string())
    if is_plain(kind):
        return column
    values: list[Any] = in_utc(column).to_pylist()  # by a session's zone, some are of no year of Python's
    if is_a.is_nested(kind):
        held: list[str | bytes | None] = [
            None if value is None else json.dumps(_plain(value, kind), ensure_ascii=False) for value in values
        ]
    else:
        held = [None if value is None else _text(value) for value in values]
    return pa.array(held, pa.binary())


def _text(value: Any) -> str | bytes:  # noqa: ANN401  a value of a row
    if isinstance(value, bytes):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        at: dt.datetime = value if value.tzinfo is None else value.astimezone(dt.UTC)
        return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return str(value)


def _plain(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401  a value of a row, and one of JSON
    """Return what JSON can hold of a nested value; binary in base64, what else it lacks as its text."""
    import pyarrow as pa

    if value is None or isinstance(value, bool | int | str):
        return value
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {str(_plain(key, kind.key_type)): _plain(each, kind.item_type) for key, each in value}
    if pa.types.is_nested(kind):
        return [_plain(each, kind.value_type) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)  # noqa: PLR0124  not a number
    return _text(value)
