"""Splitting a batch by its partition columns. Executor; needs pyarrow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.families.columns import find
from onceonly.rows.arrow import in_utc
from onceonly.sinks.files.formats.lines import shortest
from onceonly.sinks.files.paths import ROOM, folder_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from decimal import Decimal

    import pyarrow as pa

    from onceonly.sinks.files.paths import Room

_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})


def split(
    batch: pa.RecordBatch, columns: Sequence[str], *, who: str, room: Room = ROOM
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each partition folder with its rows, the partition columns left out: copies.

    Raises ``RecordRefusedError`` for a value that no folder name keeps.
    """
    names = batch.schema.names
    if not columns:
        yield "", batch
        return
    keys = [_found(column, names) for column in columns]
    data = batch.select([name for name in names if name not in keys])
    codes, rows = _codes(batch, keys, who)
    folders = {code: folder_of(keys, row, who=who, room=room) for code, row in enumerate(rows)}
    import pyarrow.compute as pc

    order = pc.array_sort_indices(codes)
    begin = 0
    for entry in sorted(codes.value_counts().to_pylist(), key=lambda entry: entry["values"]):
        # A copy: by a slice, one row that waits would keep the whole batch in memory.
        yield folders[entry["values"]], data.take(order.slice(begin, entry["counts"]))
        begin += entry["counts"]


def _codes(
    batch: pa.RecordBatch, keys: Sequence[str], who: str
) -> tuple[pa.Array, list[tuple[str | None, ...]]]:
    """Return a number for each row, and the values that each number stands for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
    rows: list[tuple[str | None, ...]] = [()]
    for key in keys:
        encoded = batch.column(key).dictionary_encode(null_encoding="encode")
        texts = _texts(encoded.dictionary, key, who)
        joined = pc.add(pc.multiply(codes, len(texts)), encoded.indices.cast(pa.int64()))
        # Counted anew for each column: what several of them make may be more than 64 bits hold, where it wraps around.
        joined = joined.dictionary_encode()
        pairs = (divmod(code, len(texts)) for code in joined.dictionary.to_pylist())
        rows = [(*rows[row], texts[text]) for row, text in pairs]
        codes = joined.indices.cast(pa.int64())
    return codes, rows


def _found(column: str, names: Sequence[str]) -> str:
    found = find(column, names)
    if found is None:
        raise ConfigurationError(
            f"The column {column} of partitionBy is not among the columns {', '.join(names)}.",
            next_step="correct partitionBy",
        )
    return found


def _texts(values: pa.Array, column: str, who: str) -> list[str | None]:
    """Write values as Spark casts them to string, so that it casts them back."""
    import pyarrow as pa

    kind = values.type
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None and kind.tz not in _UTC
    values = in_utc(values)
    try:
        found = values.to_pylist()
        if pa.types.is_boolean(kind):
            return [None if value is None else str(value).lower() for value in found]
        if pa.types.is_decimal(kind):
            return [None if value is None else _decimal(value) for value in found]
        if pa.types.is_float32(kind):
            found = [None if value is None else float(shortest(value)) for value in found]
        if pa.types.is_floating(kind):
            return [None if value is None else _float(value) for value in found]
        if pa.types.is_timestamp(kind):
            return [None if value is None else _timestamp(value, zoned=zoned) for value in found]
        return [None if value is None else str(value) for value in found]
    except (ValueError, OverflowError) as error:
        raise RecordRefusedError(
            f"{who}: a value of the partition column {column} cannot be written as a folder name: {error}",
            next_step="see to the values of this column; the rows stay in the source",
        ) from error


def _decimal(value: Decimal) -> str:
    return f"{value:f}"


def _float(value: float) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "NaN" if math.isnan(value) else repr(value)


def _timestamp(value: datetime, *, zoned: bool) -> str:
    # Where clocks are changed, a local hour comes twice; Spark's own sink cannot tell them apart, UTC can.
    plain = value.replace(tzinfo=None)
    text = plain.isoformat(" " if not zoned else "T", "microseconds").rstrip("0").rstrip(".")
    return f"{text}Z" if zoned else text
