"""Arrow's batches, and its strings and binaries as they lie in memory. Any process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


def at_each_byte(data: npt.NDArray[np.uint8], width: int = 8) -> npt.NDArray[Any]:
    """Return as many bytes at each offset, aligned or not, as one number, the lowest first. Nothing is copied. Pure."""
    import numpy as np

    return np.ndarray((max(len(data) - width + 1, 0),), f"<u{width}", data, strides=(1,))


def in_larger(
    batches: Iterable[pa.RecordBatch], *, rows: int = 20_000, size: int = 1 << 21
) -> Iterator[pa.RecordBatch]:
    """Put batches together until they have so many rows, or so many bytes; one that has them comes as it is.

    Of small ones, each call of numpy's and Arrow's costs as much as a thousand rows; Spark makes them small, so that
    rows of 1 KB do not leave its caches. The first one with rows comes at once, as a transaction begins with it. None
    comes without rows.
    """
    some: list[pa.RecordBatch] = []
    rows_left, size_left = 0, 0  # so the first one comes at once
    for batch in batches:
        if batch.num_rows == 0:
            continue
        some.append(batch)
        rows_left -= batch.num_rows
        size_left -= batch.nbytes
        if rows_left <= 0 or size_left <= 0:
            yield _one(some)
            some, rows_left, size_left = [], rows, size
    if some:
        yield _one(some)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    # malloc's memory, which a worker keeps (``spark.memory``).
    return pa.concat_batches(batches, memory_pool=pa.system_memory_pool())
