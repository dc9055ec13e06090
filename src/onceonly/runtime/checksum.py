"""An order-independent checksum of rows: the sum of row hashes modulo 2**64.

A row's hash chains its columns' hashes in column order; xxh3 (Collet, xxHash 0.8) is stable across versions and
machines. Changing anything here changes ``ALGORITHM``, which is compared with the decision before a mismatch is
believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    import pyarrow as pa

ALGORITHM = "xxh3-sum-1"
_MODULUS = 2**64
_NULL = b"\x00onceonly:null"


class RowChecksum:
    """Adds up rows. Executor, one for each attempt; not thread-safe."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count and add the rows of a batch."""
        rows = batch.num_rows
        if rows == 0:
            return
        hashes = [0] * rows
        digest = xxhash.xxh3_64_intdigest
        for column in batch.columns:
            hashes = [digest(value, seed) for value, seed in zip(_bytes(column), hashes, strict=True)]
        self.rows += rows
        self._sum = (self._sum + sum(hashes)) % _MODULUS

    @property
    def value(self) -> str:
        return f"{self._sum:016x}"


def _bytes(column: pa.Array) -> list[bytes]:
    """Give each value's bytes; strings and binaries as they are, everything else by its canonical text."""
    import pyarrow as pa

    kind = column.type
    values: list[Any]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = column.view(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()).to_pylist()
    else:
        values = column.to_pylist()
    if (
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
    ):
        return [_NULL if value is None else value for value in values]
    return [_NULL if value is None else repr(value).encode() for value in values]
