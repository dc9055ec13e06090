"""Arrow's strings and binaries as they lie in memory, and times in UTC. Any process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    """Return times that have a zone as the same instants in UTC; any other column as it is. Pure."""
    import pyarrow as pa

    is_zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return column.cast(pa.timestamp("us", "UTC")) if is_zoned else column


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
