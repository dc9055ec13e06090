"""Rows as JSON texts, one for each, as Spark's ``to_json`` writes them. Any process; needs pyarrow."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from onceonly.rows.arrow import in_utc

if TYPE_CHECKING:
    import pyarrow as pa

_ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


def json_rows(rows: pa.RecordBatch) -> list[str]:
    """Write each row as Spark's ``to_json`` does, so that ``from_json`` with its schema gives it back.

    Null fields are left out, binaries are base64, times are in UTC. A value that Python cannot hold is Arrow's text.
    """
    columns = map(values, rows.columns)
    names = rows.schema.names
    return [
        _ENCODER.encode(
            {name: _plain(value) for name, value in zip(names, row, strict=True) if value is not None}
        ).decode()
        for row in zip(*columns, strict=True)
    ]


def values(column: pa.Array) -> list[Any]:
    """Return the values of a column, times in UTC; where Python cannot hold one of them, the texts of them all.

    Such are dates beyond the year 9999, and texts whose bytes are no UTF-8: these have a sign in place of a byte.
    """
    column = in_utc(column)
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        return _by_arrow(column)


def _by_arrow(column: pa.Array) -> list[str | None]:
    """Return the texts of values as Arrow has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if each is None else each.decode(errors="replace") for each in raw]
    try:
        return list(pc.cast(column, pa.string()).to_pylist())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [_shown(column.slice(row, 1)) for row in range(len(column))]


def _shown(one: pa.Array) -> str | None:
    """Return the text of one value that is made of others, all of it."""
    most = 2**31 - 1
    return (
        None
        if one.null_count
        else one.to_string(window=most, container_window=most, skip_new_lines=True)[1:-1]
    )


def _plain(value: Any) -> Any:  # noqa: ANN401  one line a kind
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo is not None else value.isoformat()
    if isinstance(value, date | time | timedelta):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):  # a map
            return {str(key): _plain(inner) for key, inner in value}
        return [_plain(inner) for inner in value]
    return value
