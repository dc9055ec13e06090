"""Where Java's default partitioner puts a key: murmur2, over a whole column at once; and rows by partition. Pure.

As ``murmur2`` in kafka-clients' ``org.apache.kafka.common.utils.Utils``, after Austin Appleby's MurmurHash2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.rows import compiled
from onceonly.rows.arrow import at_each_byte, layout

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_WORD = 4

LOOPS = "onceonly.sinks.kafka.records.partition_loops"
"""Compiled, they do the same (``rows.compiled``)."""

NO_KEY = -1
"""In place of the hash of a null."""


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the hash of each value of a plain column; of a null, anything."""
    import numpy as np

    bounds, data = layout(keys)
    places, lengths = bounds[:-1], np.diff(bounds)
    found = np.frombuffer(b"" if data is None else data, np.uint8)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    if not len(found) or not len(keys):
        return _finished(hashes)
    if int(lengths.min()) == int(lengths.max()):
        return _of_one_length(found[int(places[0]) :], int(lengths[0]), hashes)
    words = at_each_byte(found, _WORD)
    whole = lengths // _WORD
    m = np.uint32(_M)
    for number in range(int(whole.max(initial=0))):
        here = slice(None) if number < int(whole.min(initial=0)) else np.flatnonzero(whole > number)
        hashes[here] = hashes[here] * m ^ _stirred(words[places[here] + _WORD * number])
    left = lengths % _WORD
    for number in (2, 1, 0):
        here = np.flatnonzero(left > number)
        tail = found[places[here] + _WORD * whole[here] + number].astype(np.uint32)
        hashes[here] ^= tail << np.uint32(8 * number)
        if number == 0:
            hashes[here] *= m
    return _finished(hashes)


def _of_one_length(
    found: npt.NDArray[np.uint8], length: int, hashes: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint32]:
    """Go on where every key is as long: each step of all of them lies in memory at one distance."""
    import numpy as np

    m, whole, count = np.uint32(_M), length // _WORD, len(hashes)
    for number in range(whole):
        hashes = hashes * m ^ _stirred(np.ndarray((count,), "<u4", found, _WORD * number, (length,)))
    for number in reversed(range(length % _WORD)):
        tail = np.ndarray((count,), np.uint8, found, _WORD * whole + number, (length,))
        hashes = hashes ^ tail.astype(np.uint32) << np.uint32(8 * number)
    return _finished(hashes * m if length % _WORD else hashes)


def _stirred(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    import numpy as np

    k = words * np.uint32(_M)
    return (k ^ k >> np.uint32(_R)) * np.uint32(_M)


def hashes(keys: pa.Array) -> npt.NDArray[np.int64]:
    """Return each key's number, of which the remainder by their count is its partition; ``NO_KEY`` for a null."""
    import numpy as np

    if (loops := _loops()) is not None:
        bounds, memory = layout(keys)
        data, found = (
            np.frombuffer(b"" if memory is None else memory, np.uint8),
            np.empty(len(keys), np.int64),
        )
        loops.murmur2(data, at_each_byte(data, _WORD), bounds, found)
    else:
        # toPositive of Java: without the sign.
        found = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64)
    if keys.null_count:
        found[keys.is_null().to_numpy(zero_copy_only=False)] = NO_KEY
    return found


def order(partitions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the rows by partition, each one's in their order."""
    import numpy as np

    if (loops := _loops()) is None:
        return np.argsort(partitions, kind="stable")
    found = np.empty(len(partitions), np.int64)
    loops.sort(partitions, np.zeros(int(partitions.max()) + 2, np.int64), found)
    return found


def _loops() -> Any:  # noqa: ANN401  a module of loops, or None
    return compiled.loops(LOOPS)


def _finished(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    import numpy as np

    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(_M)
    return hashes ^ (hashes >> np.uint32(15))
