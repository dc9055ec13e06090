"""Rows as lines of text: JSON, CSV and plain text, as Spark's own writers make them. Executor; needs pyarrow."""

from __future__ import annotations

import math
import re
import string
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from onceonly.errors import RecordRefusedError
from onceonly.rows import arrow
from onceonly.sinks.files.formats.texts import Texts
from onceonly.sinks.files.paths import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

    import pyarrow as pa

    Convert = Callable[[Any], Any]

_PLAIN = Texts()
# What numbers, dates and times are written with.
_OF_NUMBERS = frozenset(string.ascii_letters + string.digits + "+-.:")
# What Java's trim takes away: a line of nothing else is none to Spark's reader.
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def json_lines(batch: pa.RecordBatch, texts: Texts = _PLAIN, *, who: str) -> bytes:
    """Return an object a line. As in Spark, a field that is null is left out, also inside structs, if not asked for."""
    names = batch.schema.names
    columns = [
        _values(column, field, texts, who) for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if not texts.null_fields:
        rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return _ENCODER.encode_lines(rows)


def csv_lines(batch: pa.RecordBatch, texts: Texts = _PLAIN, *, who: str) -> bytes:
    """Return a line a row, quoted as Spark's writer does where a value needs it."""
    columns = [
        _cells(column, field, texts, who) for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    lines = [texts.sep.join(row) for row in zip(*columns, strict=True)]
    # Only then may a line have nothing to see in it: a value of blanks is quoted.
    if (len(columns) == 1 or texts.sep in _TRIMMED) and not all(line.strip(_TRIMMED) for line in lines):
        of = (
            f"a value of the only column {batch.schema.names[0]} is null or empty"
            if len(columns) == 1
            else f"all values of a row are null or empty, and the separator is {texts.sep!r}"
        )
        raise RecordRefusedError(
            f"{who}: {of}, so its line in a csv file would be {'empty' if len(columns) == 1 else 'blank'}: readers "
            "pass over it.",
            next_step=f"filter such rows, {'add a column' if len(columns) == 1 else 'take another sep'}, set nullValue "
            "or emptyValue, or set format to json or parquet; the rows stay in the source",
        )
    return "".join(f"{line}\n" for line in lines).encode()


def csv_line(values: Sequence[str], texts: Texts = _PLAIN) -> bytes:
    """Return one line of texts: the names of the columns."""
    return (texts.sep.join(_quoter(texts)(value) for value in values) + "\n").encode()


def text_lines(batch: pa.RecordBatch, *, who: str) -> bytes:
    """Return the only column's values, a line each; as in Spark, null is an empty line.

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


def _cells(column: pa.Array, field: pa.Field, texts: Texts, who: str) -> list[str]:
    """Write the cells of a column."""
    import pyarrow as pa

    types, kind = pa.types, column.type
    pattern = _pattern(kind, texts)
    values = _plain(column, field.name, who, in_utc=texts.time is None)
    write: Convert = str
    quotes = texts.quote_all or pattern is not None or not _OF_NUMBERS.isdisjoint(texts.sep + texts.quote)
    if pattern is not None:
        write = pattern
    elif types.is_string(kind) or types.is_large_string(kind):
        write, quotes = _quoter(texts), False
    elif types.is_boolean(kind):
        write = _lower
    elif types.is_decimal(kind):
        write = _decimal
    elif types.is_floating(kind):
        write = _csv_number if not types.is_float32(kind) else lambda value: _csv_number(shortest(value))
    elif types.is_timestamp(kind):
        write = _timestamp if kind.tz is None else lambda value: f"{_timestamp(value)}Z"
    null = _fixed(texts.null, texts)
    if quotes:
        quote = _quoter(texts)
        return [null if value is None else quote(write(value)) for value in values]
    return [null if value is None else write(value) for value in values]


def _quoter(texts: Texts) -> Callable[[str], str]:
    # At the beginning of a file, readers take U+FEFF for a mark of its encoding, and drop it.
    special = re.compile(f"[{re.escape(texts.sep + texts.quote)}\r\n]|^[\0- \\s#\ufeff]|[\0- \\s]$|^$")
    empty = _fixed(texts.quote * 2 if texts.empty is None else texts.empty, texts)

    def quote(text: str) -> str:
        if not text:
            return empty
        return _quoted(text, texts) if texts.quote_all or special.search(text) else text

    return quote


def _quoted(text: str, texts: Texts) -> str:
    quote, escape = texts.quote, texts.escape
    if escape != quote:
        text = text.replace(escape, escape * 2)
    return f"{quote}{text.replace(quote, escape + quote)}{quote}"


def _fixed(text: str, texts: Texts) -> str:
    """Write the text of nulls, or of empty texts: quoted where it must be, and is not yet."""
    if len(text) > 1 and text[0] == text[-1] == texts.quote:
        return text
    must = texts.quote_all or texts.sep in text or texts.quote in text
    return _quoted(text, texts) if must else text


def _pattern(kind: pa.DataType, texts: Texts) -> Convert | None:
    """Return what writes a date or time as the user wants it; None for another type, or without a wish."""
    import pyarrow as pa

    found = None
    if pa.types.is_date(kind):
        found = texts.date
    elif pa.types.is_timestamp(kind):
        found = texts.local_time if kind.tz is None else texts.time
    return found and found.write


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


def _values(column: pa.Array, field: pa.Field, texts: Texts, who: str) -> list[Any]:
    values = _plain(column, field.name, who, in_utc=texts.time is None)
    convert = _converter(column.type, texts)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _plain(column: pa.Array, name: str, who: str, *, in_utc: bool = True) -> list[Any]:
    """Return Python's values, times in UTC or in the column's zone, which is the session's.

    Raises ``RecordRefusedError`` for one that Python has none for.
    """
    if in_utc:
        column = arrow.in_utc(column)
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError) as error:
        raise RecordRefusedError(
            f"{who}: a value of the column {name} cannot be written as text: {error}",
            next_step="see to the values of this column, or set format to parquet; the rows stay in the source",
        ) from error
    return values


def _converter(kind: pa.DataType, texts: Texts) -> Convert | None:
    """Return what brings a value into the form of JSON, None where it is in it."""
    import pyarrow as pa

    types = pa.types
    pattern = _pattern(kind, texts)
    if pattern is not None:
        return pattern
    if types.is_float32(kind):
        return shortest
    if types.is_floating(kind):
        return _finite
    if types.is_timestamp(kind):
        return _in_utc if kind.tz is not None else None
    if types.is_struct(kind):
        fields = {field.name: _converter(field.type, texts) for field in kind}
        return _struct(fields, nulls=texts.null_fields)
    if types.is_map(kind):
        return _map(_converter(kind.item_type, texts))
    if types.is_list(kind) or types.is_large_list(kind):
        return _list(_converter(kind.value_type, texts))
    return None


def _struct(fields: dict[str, Convert | None], *, nulls: bool) -> Convert:
    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: inner if inner is None or (each := fields[name]) is None else each(inner)
            for name, inner in value.items()
            if nulls or inner is not None
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
    """Return the shortest number that is the same in single precision: 0.1, not 0.10000000149011612."""
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
