"""Rows as JSON texts, one for each, as Spark's ``to_json`` writes them. Any process; needs pyarrow."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from onceonly.rows.arrow import in_utc

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    _Change: TypeAlias = Callable[[Any], Any]

_ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


def json_rows(rows: pa.RecordBatch) -> list[str]:
    """Write each row as Spark's ``to_json`` does, so that ``from_json`` with its schema gives it back.

    Null fields are left out, binaries are base64, times are in UTC. A value that Python cannot hold is Arrow's text.
    """
    columns = map(_plain, rows.columns)
    names = rows.schema.names
    return [
        _ENCODER.encode(
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
        ).decode()
        for row in zip(*columns, strict=True)
    ]


def values(column: pa.Array) -> list[Any]:
    """Return the values of a column, times in UTC; of one that Python cannot hold, the text, also inside of others.

    Such are dates beyond the year 9999, and texts whose bytes are no UTF-8: these have a sign in place of a byte.
    """
    column = in_utc(column)
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        return [_shown(each) for each in column]


def _shown(one: pa.Scalar) -> Any:  # noqa: ANN401  whatever it is
    """Return a value, texts in place of what Python cannot hold."""
    import pyarrow as pa

    try:
        return one.as_py()
    except (ValueError, OverflowError):
        kind = one.type
    if pa.types.is_struct(kind):
        return {each.name: _shown(one[place]) for place, each in enumerate(kind)}
    if pa.types.is_map(kind):
        return [(_shown(each[0]), _shown(each[1])) for each in one.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_shown(each) for each in one.values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return one.as_buffer().to_pybytes().decode(errors="replace")
    return pa.array([one], kind).cast(pa.string())[0].as_py()


def _plain(column: pa.Array) -> list[Any]:
    """Return the values of a column as JSON has them."""
    change = _change_of(column.type)
    found = values(column)
    return found if change is None else [None if each is None else change(each) for each in found]


def _change_of(kind: pa.DataType) -> _Change | None:
    """Return what makes JSON's value of one of this type that is not null; None where it is that already."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        changes = {each.name: _change_of(each.type) for each in kind}
        return lambda value: {
            name: _changed(inner, changes[name]) for name, inner in value.items() if inner is not None
        }
    if pa.types.is_map(kind):
        of_key, of_item = _change_of(kind.key_type), _change_of(kind.item_type)
        return lambda value: {str(_changed(key, of_key)): _changed(item, of_item) for key, item in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of_each = _change_of(kind.value_type)
        return None if of_each is None else lambda value: [_changed(each, of_each) for each in value]
    if pa.types.is_floating(kind):
        return _number
    if pa.types.is_duration(kind):
        return _interval
    if pa.types.is_timestamp(kind):
        return _time
    return str if pa.types.is_temporal(kind) else None


def _changed(value: Any, change: _Change | None) -> Any:  # noqa: ANN401  whatever it is
    return value if value is None or change is None else change(value)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _time(value: datetime | str) -> str:
    if isinstance(value, str):
        return value
    return value.astimezone(UTC).isoformat() if value.tzinfo is not None else value.isoformat()


def _interval(value: timedelta) -> str:
    """Write it as Spark does; ``from_json`` takes no other text."""
    rest = abs(value)
    hours, seconds = divmod(rest.seconds, 3600)
    text = f"{rest.days} {hours:02}:{seconds // 60:02}:{seconds % 60:02}"
    part = f".{rest.microseconds:06}".rstrip("0") if rest.microseconds else ""
    return f"INTERVAL '{'-' if value < timedelta() else ''}{text}{part}' DAY TO SECOND"
