"""The hash of rows as a loop over them, which numba compiles (``rows.compiled``); ``checksum`` has it for numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onceonly.rows.arrow import at_each_byte
from onceonly.rows.compiled import check, jit

if TYPE_CHECKING:
    import numpy.typing as npt

    _Words = npt.NDArray[np.uint64]
    _Numbers = npt.NDArray[np.int64]

_M, _R, _BYTE = np.uint64(0xC6A4A7935BD1E995), np.uint64(47), np.uint64(8)


@jit("nothing", "bytes", "words", "numbers", "numbers", "hashes", "to hashes")
def murmur64a(
    data: npt.NDArray[np.uint8],
    words: _Words,
    starts: _Numbers,
    lengths: _Numbers,
    seeds: _Words,
    hashes: _Words,
) -> None:
    """Put MurmurHash64A of each row into ``hashes``; ``words`` are the eight bytes at each offset of ``data``."""
    for row in range(len(starts)):
        start, length = starts[row], lengths[row]
        found = seeds[row] ^ (np.uint64(length) * _M)
        end = start + (length & ~7)
        for place in range(start, end, 8):
            word = words[place] * _M
            word = (word ^ (word >> _R)) * _M
            found = (found ^ word) * _M
        if length & 7:
            tail = np.uint64(0)
            for place in range(start + length - 1, end - 1, -1):
                tail = (tail << _BYTE) | np.uint64(data[place])
            found = (found ^ tail) * _M
        found = (found ^ (found >> _R)) * _M
        hashes[row] = found ^ (found >> _R)


def _hello() -> int:
    data, hashes = np.frombuffer(b"hello world", np.uint8), np.zeros(1, np.uint64)
    start, length = np.array([0, 11], np.int64).reshape(2, 1)
    murmur64a(data, at_each_byte(data), start, length, hashes.copy(), hashes)
    return int(hashes[0])


check(_hello(), 0xD3BA2368A832AFCE)  # as by SMHasher
