"""Keys' hashes and the order of partitions as loops over rows, which numba compiles (``rows.compiled``). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onceonly.rows.arrow import at_each_byte
from onceonly.rows.compiled import check, jit

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

_SEED, _M, _R, _BYTE = np.uint32(0x9747B28C), np.uint32(0x5BD1E995), np.uint32(24), np.uint32(8)
_R_LAST, _R_LAST_BUT_ONE = np.uint32(15), np.uint32(13)


@jit("nothing", "bytes", "words of 4", "numbers", "to numbers")
def murmur2(
    data: npt.NDArray[np.uint8], words: npt.NDArray[np.uint32], bounds: Numbers, hashes: Numbers
) -> None:
    """Put each key's hash into ``hashes``, as ``partitioner`` has it for numpy, without its sign."""
    for row in range(len(hashes)):
        start, end = bounds[row], bounds[row + 1]
        found = _SEED ^ np.uint32(end - start)
        whole = start + ((end - start) & ~3)
        for place in range(start, whole, 4):
            word = np.uint32(words[place] * _M)
            found = np.uint32(found * _M) ^ np.uint32((word ^ word >> _R) * _M)
        if whole < end:
            tail = np.uint32(0)
            for place in range(end - 1, whole - 1, -1):
                tail = np.uint32(tail << _BYTE) | np.uint32(data[place])
            found = np.uint32((found ^ tail) * _M)
        found = np.uint32((found ^ found >> _R_LAST_BUT_ONE) * _M)
        hashes[row] = (found ^ found >> _R_LAST) & 0x7FFFFFFF


@jit("nothing", "numbers", "to numbers", "to numbers")
def sort(partitions: Numbers, places: Numbers, order: Numbers) -> None:
    """Put the rows' numbers into ``order``, by partition, each one's in their order.

    ``places`` has a zero for each partition and one more; it is used up.
    """
    for partition in partitions:
        places[partition + 1] += 1
    for partition in range(1, len(places)):
        places[partition] += places[partition - 1]
    for row in range(len(partitions)):
        partition = partitions[row]
        order[places[partition]] = row
        places[partition] += 1


def _foobar() -> int:
    data, hashes = np.frombuffer(b"foobar", np.uint8), np.zeros(1, np.int64)
    murmur2(data, at_each_byte(data, 4), np.array([0, 6], np.int64), hashes)
    return int(hashes[0])


def _sorted() -> list[int]:
    order = np.zeros(4, np.int64)
    sort(np.array([2, 0, 2, 0], np.int64), np.zeros(4, np.int64), order)
    return [int(row) for row in order]


check(_foobar(), -790332482 & 0x7FFFFFFF)  # as in kafka-clients' UtilsTest
check(_sorted(), [1, 3, 0, 2])
