"""Rows as JSON texts, one for each, as Spark's ``to_json`` writes them. Any process; needs pyarrow."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

_ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


def json_rows(rows: pa.RecordBatch) -> list[str]:
    """Write each row as Spark's ``to_json`` does, so that ``from_json`` with its schema gives it back.

    Null fields are left out, binaries are base64, times are in UTC. A value that Python cannot hold is Arrow's text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for column in rows.columns:
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            column = column.cast(pa.timestamp("us", "UTC"))  # noqa: PLW2901  the same instants
        try:
            columns.append(column.to_pylist())
        except (ValueError, OverflowError):
            columns.append(_by_arrow(column, pc))
    names = rows.schema.names
    return [
        _ENCODER.encode(
            {name: _plain(value) for name, value in zip(names, row, strict=True) if value is not None}
        ).decode()
        for row in zip(*columns, strict=True)
    ]


def _by_arrow(column: pa.Array, compute: Any) -> list[str | None]:  # noqa: ANN401  a module
    """Return the texts of values that Python has none for, such as dates beyond the year 9999."""
    import pyarrow as pa

    try:
        return list(compute.cast(column, pa.string()).to_pylist())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [None if not each.is_valid else repr(each) for each in column]


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
