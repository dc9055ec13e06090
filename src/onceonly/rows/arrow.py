"""Arrow's strings and binaries as they lie in memory, and times in UTC. Any process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


def is_plain(kind: pa.DataType) -> bool:
    """Say whether values of this type lie one behind the other: strings and binaries, no views of them. Pure."""
    import pyarrow as pa

    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    )  # fmt: skip


def layout(column: pa.Array) -> tuple[npt.NDArray[np.int64], Any]:
    """Return where the values of a plain column begin in its data, then where the last one ends; and the data.

    The data are Arrow's buffer, or None where there is no byte of them. Pure.
    """
    import numpy as np
    import pyarrow as pa

    _, offsets, data = column.buffers()
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    bounds = np.frombuffer(offsets, np.int64 if wide else np.int32)
    return bounds[column.offset : column.offset + len(column) + 1].astype(np.int64), data


def in_utc(column: pa.Array) -> pa.Array:
    """Return times that have a zone as the same instants in UTC, also inside of others; the rest as it is. Pure."""
    kind = with_leaves(column.type, _zoned_in_utc)
    return column if kind == column.type else column.cast(kind)


def with_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with each of those that it is made of, in the end, changed. Pure."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(with_leaves(each.type, change)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(with_leaves(kind.key_type, change), with_leaves(kind.item_type, change))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_field.with_type(with_leaves(kind.value_type, change))
        return pa.list_(inner) if pa.types.is_list(kind) else pa.large_list(inner)
    return change(kind)


def _zoned_in_utc(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def counted_as_spark(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose parquet files say, as Spark's own do, that Spark 3 or newer counts the same days. Pure.

    Where a file does not say it, Spark 3 refuses a day before 1582-10-15 and a time before 1900, and a session that
    was set to read such files of Spark 2 takes them for other days.
    """
    return schema.with_metadata({**(schema.metadata or {}), "org.apache.spark.version": "3.0.0"})


def may_have(column: pa.Array, some: bytes) -> bool:
    """Say whether one of these bytes is in a plain column's memory; bytes behind nulls count, too. Pure.

    A look at whole memory costs a fiftieth of a look into each value.
    """
    if len(column) == 0:
        return False
    bounds, data = layout(column)
    raw = b"" if data is None else bytes(memoryview(data)[int(bounds[0]) : int(bounds[-1])])
    return any(each in raw for each in some)


def at_each_byte(data: npt.NDArray[np.uint8], width: int = 8) -> npt.NDArray[Any]:
    """Return as many bytes at each offset, aligned or not, as one number, the lowest first. Nothing is copied. Pure."""
    import numpy as np

    return np.ndarray((max(len(data) - width + 1, 0),), f"<u{width}", data, strides=(1,))
