"""Rows as lines of text: JSON, CSV and plain text, as Spark's own writers make them. Executor; needs pyarrow."""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from onceonly.errors import RecordRefusedError
from onceonly.sinks.files.paths import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

    import pyarrow as pa

    Convert = Callable[[Any], Any]

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def json_lines(batch: pa.RecordBatch, *, who: str) -> bytes:
    """Give an object a line. As in Spark, a field that is null is left out, also inside structs."""
    names = batch.schema.names
    columns = [_values(column, field, who) for column, field in zip(batch.columns, batch.schema, strict=True)]
    return _ENCODER.encode_lines(
        [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in zip(*columns, strict=True)
        ]
    )


def csv_lines(batch: pa.RecordBatch, sep: str, *, who: str) -> bytes:
    """Give a line a row, quoted as Spark's writer does where a value needs it."""
    if batch.num_columns == 1 and batch.column(0).null_count:
        raise RecordRefusedError(
            f"{who}: a value of the only column {batch.schema.names[0]} is null, and its line in a csv file would be "
            "empty: readers pass over it.",
            next_step="filter the nulls, add a column, or set format to json or parquet; the rows stay in the "
            "source",
        )
    columns = [
        _cells(column, field, sep, who) for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    return "".join(f"{sep.join(row)}\n" for row in zip(*columns, strict=True)).encode()


def csv_line(values: Sequence[str], sep: str) -> bytes:
    """Give one line of texts: the names of the columns."""
    return (sep.join(_quoter(sep)(value) for value in values) + "\n").encode()


def text_lines(batch: pa.RecordBatch, *, who: str) -> bytes:
    """Give the only column's values, a line each; as in Spark, null is an empty line.

    Raises ``RecordRefusedError`` for a value that would make two lines: its reader would count two rows.
    """
    values = _plain(batch.column(0), batch.schema.names[0], who)
    for value in values:
        if value is not None and ("\n" in value or "\r" in value):
            raise RecordRefusedError(
                f"{who}: the value {shorten(value)!r} of the column {batch.schema.names[0]} has a line break, and "
                "a text file would give it back as two rows.",
                next_step="replace the line break, or set format to json or parquet; the rows stay in the source",
            )
    return "".join(f"{value or ''}\n" for value in values).encode()


def _cells(column: pa.Array, field: pa.Field, sep: str, who: str) -> list[str]:
    """Write the cells of a column. Null is nothing, the empty text is two quotes."""
    import pyarrow as pa

    types, kind = pa.types, column.type
    values = _plain(column, field.name, who)
    write: Callable[[Any], str] = str
    if types.is_string(kind) or types.is_large_string(kind):
        write = _quoter(sep)
    elif types.is_boolean(kind):
        write = _lower
    elif types.is_decimal(kind):
        write = _decimal
    elif types.is_floating(kind):
        write = _csv_number if not types.is_float32(kind) else lambda value: _csv_number(shortest(value))
    elif types.is_timestamp(kind):
        write = _timestamp if kind.tz is None else lambda value: f"{_timestamp(value)}Z"
    return ["" if value is None else write(value) for value in values]


def _quoter(sep: str) -> Callable[[str], str]:
    special = re.compile(f'[{re.escape(sep)}"\r\n]|^[\\s#]|\\s$|^$')

    def quote(text: str) -> str:
        if special.search(text) is None:
            return text
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return quote


def _lower(value: bool) -> str:  # noqa: FBT001  a cell
    return "true" if value else "false"


def _decimal(value: Decimal) -> str:
    return f"{value:f}"


def _csv_number(value: float | str) -> str:
    # The texts by which Spark's CSV reader knows them.
    finite = _finite(value) if isinstance(value, float) else value
    return {"Infinity": "Inf", "-Infinity": "-Inf"}.get(str(finite), str(finite))


def _timestamp(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat()


def _values(column: pa.Array, field: pa.Field, who: str) -> list[Any]:
    values = _plain(column, field.name, who)
    convert = _converter(column.type)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _plain(column: pa.Array, name: str, who: str) -> list[Any]:
    """Give Python's values, times in UTC. Raises ``RecordRefusedError`` for one that Python has none for."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp("us", "UTC"))
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError) as error:
        raise RecordRefusedError(
            f"{who}: a value of the column {name} cannot be written as text: {error}",
            next_step="see to the values of this column, or set format to parquet; the rows stay in the source",
        ) from error
    return values


def _converter(kind: pa.DataType) -> Convert | None:
    """Give what brings a value into the form of JSON, None where it is in it."""
    import pyarrow as pa

    types = pa.types
    if types.is_float32(kind):
        return shortest
    if types.is_floating(kind):
        return _finite
    if types.is_timestamp(kind):
        return _in_utc if kind.tz is not None else None
    if types.is_struct(kind):
        return _struct({field.name: _converter(field.type) for field in kind})
    if types.is_map(kind):
        return _map(_converter(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return _list(_converter(kind.value_type))
    return None


def _struct(fields: dict[str, Convert | None]) -> Convert:
    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: inner if (each := fields[name]) is None else each(inner)
            for name, inner in value.items()
            if inner is not None
        }

    return convert


def _map(each: Convert | None) -> Convert:
    def convert(value: list[tuple[Any, Any]]) -> dict[str, Any]:
        return {str(key): inner if inner is None or each is None else each(inner) for key, inner in value}

    return convert


def _list(each: Convert | None) -> Convert | None:
    if each is None:
        return None
    return lambda value: [None if inner is None else each(inner) for inner in value]


def _in_utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def shortest(value: float) -> float | str:
    """Give the shortest number that is the same in single precision: 0.1, not 0.10000000149011612."""
    if not math.isfinite(value):
        return _finite(value)
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        try:
            if struct.unpack("f", struct.pack("f", short))[0] == value:
                return short
        except OverflowError:
            continue
    return value
