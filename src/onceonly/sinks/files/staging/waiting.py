"""Rows that wait in memory to be written in large pieces. Executor; needs pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

# What a column of a batch takes besides its values: two or three buffers of at least 64 bytes, and objects.
_COLUMN_BYTES = 256
_JOINED = 64


class Waiting:
    """The rows of one partition folder. ``cost`` is about what they take in memory, ``bytes`` what they are."""

    def __init__(self) -> None:
        self.bytes = 0
        self.cost = 0
        self._large: list[pa.RecordBatch] = []
        self._small: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> int:
        """Keep rows; return by how much ``cost`` has grown, which is below nothing where many were joined."""
        before = self.cost
        self._small.append(rows)
        self.bytes += rows.nbytes
        if len(self._small) >= _JOINED:
            # Each row is copied once, not again and again.
            self._large += _table(self._small).combine_chunks().to_batches()
            self._small = []
        self.cost = self.bytes + _COLUMN_BYTES * rows.num_columns * (len(self._large) + len(self._small))
        return self.cost - before

    def table(self) -> pa.Table:
        """Return all rows, in their order."""
        return _table(self._large + self._small)


def copy_of(rows: pa.RecordBatch, begin: int, count: int) -> pa.RecordBatch:
    """Copy rows out of a batch, so that they do not keep the rest of it in memory."""
    import pyarrow as pa

    return rows.take(pa.array(range(begin, begin + count), pa.int64()))


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches(batches)
