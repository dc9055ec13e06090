"""An order-independent checksum of rows: the sum of row hashes modulo 2**64.

A row's hash chains its columns' hashes in column order: each is the seed of the next. The algorithm's name is part of
the checksum, so that none is compared with one of another algorithm. There is one, ``murmur64``: MurmurHash64A
(Appleby, SMHasher) of values up to 128 bytes, for all rows of a batch at once, by numpy or by a compiled loop; xxh3
(Collet, xxHash 0.8) of longer ones, one by one or by a compiled loop.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import xxhash

from onceonly.errors import LogError
from onceonly.rows import compiled
from onceonly.rows.arrow import at_each_byte, in_utc, is_plain, layout, with_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from onceonly.model import Vote

    _Words = npt.NDArray[np.uint64]

_NAME = "murmur64"
LOOPS, LONG_LOOPS = "onceonly.rows.checksum_loops", "onceonly.rows.xxh3_loops"
"""Compiled, they do the same (``rows.compiled``): for short values and for long ones."""
_MODULUS = 2**64
_NULL_WORD = 0x6F6E63656F6E6C79
_M = 0xC6A4A7935BD1E995
_R = 47
_WORD = 8
# How much is looked at over and over.
_CACHE_BYTES = 1 << 19
# Beyond, a look at every eighth byte of all rows costs more than a call for each row.
_SHORT_BYTES_MAX = 128


def require_comparable(votes: Iterable[Vote]) -> None:
    """See that a replay can be compared with what was decided. Pure. Raises ``LogError``."""
    other = next((vote.checksum for vote in votes if not vote.checksum.startswith(f"{_NAME}:")), None)
    if other is not None:
        raise LogError(
            f"The decision of this epoch has checksums such as {other}, which this version does not know.",
            next_step="use the version of onceonly that decided it",
        )


class RowChecksum:
    """Adds up rows. Executor, one for each attempt; not thread-safe."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count and add the rows of a batch."""
        if batch.num_rows == 0:
            return
        self.rows += batch.num_rows
        self._sum = (self._sum + int(hashes(batch).sum(dtype="uint64"))) % _MODULUS

    def less(self, other: RowChecksum) -> None:
        """Take away rows that were added, by the sum of theirs."""
        self.rows -= other.rows
        self._sum = (self._sum - other._sum) % _MODULUS

    @property
    def value(self) -> str:
        """Name and 16 hex digits."""
        return f"{_NAME}:{self._sum:016x}"


def hashes(batch: pa.RecordBatch) -> _Words:
    """Return the hash of each row of a batch: what a checksum adds up."""
    import numpy as np

    hashes = np.zeros(batch.num_rows, np.uint64)
    for column in batch.columns:
        hashed = _hash_words(column, hashes) if _is_word(column.type) else _hash_bytes(column, hashes)
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            nulls = _finished(_mixed(hashes, np.full_like(hashes, _NULL_WORD)))
            hashed = np.where(valid, hashed, nulls)
        hashes = hashed
    return hashes


def _hash_words(column: pa.Array, seeds: _Words) -> _Words:
    """Hash numbers, dates and times: each is one word."""
    import numpy as np

    if column.null_count == len(column):
        return seeds
    kind = np.dtype(f"i{column.type.bit_width // 8}")
    words = np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]
    return _finished(_mixed(seeds ^ np.uint64(_WORD * _M % _MODULUS), words.astype(np.int64).view(np.uint64)))


def _hash_bytes(column: pa.Array, seeds: _Words) -> _Words:
    """Hash strings and binaries, and everything else by its canonical text."""
    import numpy as np
    import pyarrow as pa

    if not is_plain(column.type):
        column = pa.array(_canonical(column), pa.binary())
    ends, data = layout(column)
    raw = np.frombuffer(data if data is not None else b"", np.uint8)
    if len(raw) < _WORD:
        raw = np.concatenate([raw, np.zeros(_WORD, np.uint8)])
    starts, lengths = ends[:-1], ends[1:] - ends[:-1]
    long = lengths > _SHORT_BYTES_MAX
    if not long.any():
        return _murmur64a(raw, starts, lengths, seeds)
    hashes = np.empty_like(seeds)
    short = np.flatnonzero(~long)
    hashes[short] = _murmur64a(raw, starts[short], lengths[short], seeds[short])
    places = np.flatnonzero(long)
    if (loops := compiled.loops(LONG_LOOPS)) is not None:
        loops.xxh3(raw, starts, lengths, seeds, places, hashes)
        return hashes
    memory, digest = raw.data, xxhash.xxh3_64_intdigest
    rows = zip(starts[places].tolist(), lengths[places].tolist(), seeds[places].tolist(), strict=True)
    hashes[places] = np.fromiter(
        (digest(memory[start : start + length], seed) for start, length, seed in rows), np.uint64, len(places)
    )
    return hashes


def _canonical(column: pa.Array) -> list[bytes]:
    """Return the canonical text of each value: Python's, times in UTC, as the session's zone is another one tomorrow.

    A value that Python cannot hold (a date beyond the year 9999, a text whose bytes are no UTF-8) has that of its
    numbers and bytes; what the others have must not depend on who shares a batch with it.
    """
    column = in_utc(column)
    try:
        return [repr(value).encode() for value in column.to_pylist()]
    except (ValueError, OverflowError):
        raw = column.cast(with_leaves(column.type, _raw))
        return [_canonical_of(column[row], raw[row]) for row in range(len(column))]


def _canonical_of(value: pa.Scalar, raw: pa.Scalar) -> bytes:
    try:
        return repr(value.as_py()).encode()
    except (ValueError, OverflowError):
        return repr(raw.as_py()).encode()


def _raw(kind: pa.DataType) -> pa.DataType:
    """Return the numbers or bytes that values of a type are."""
    import pyarrow as pa

    if is_plain(kind):
        return pa.large_binary()
    return {32: pa.int32(), 64: pa.int64()}[kind.bit_width] if pa.types.is_temporal(kind) else kind


def _murmur64a(
    raw: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    seeds: _Words,
) -> _Words:
    """Return MurmurHash64A of each row: word after word, for all rows that have one."""
    import numpy as np

    words = at_each_byte(raw)  # rows are not aligned
    if (loops := compiled.loops(LOOPS)) is not None:
        found = np.empty_like(seeds)
        loops.murmur64a(raw, words, starts, lengths, seeds, found)
        return found
    m = np.uint64(_M)
    hashes = seeds ^ (lengths.astype(np.uint64) * m)
    whole = lengths >> 3
    least, most = (int(whole.min()), int(whole.max())) if len(whole) else (0, 0)
    if least:
        # What all rows have is fetched row by row, not word by word, and stirred many at once: a quarter less time.
        bytes_of_each = least * _WORD
        rows = np.ndarray((len(raw) - bytes_of_each + 1,), f"V{bytes_of_each}", raw, strides=(1,))
        step = max(_CACHE_BYTES // bytes_of_each, 1)
        for first in range(0, len(starts), step):
            part = slice(first, first + step)
            for column in _stirred(rows[starts[part]].view("<u8").reshape(-1, least)).T:
                hashes[part] ^= column
                hashes[part] *= m
    for number in range(least, most):
        some = np.flatnonzero(whole > number)
        hashes[some] = _mixed(hashes[some], words[starts[some] + number * _WORD])
    over = lengths & (_WORD - 1)
    rest: Any = np.flatnonzero(over)
    if len(rest) == len(lengths):
        rest = slice(None)  # nothing is copied, then
    places = starts[rest] + whole[rest] * _WORD
    # Near the end of the memory, the eight bytes before it hold the last ones.
    inside = np.minimum(places, len(words) - 1)
    tails = words[inside]
    if len(places) and places[-1] >= len(words):
        tails >>= ((places - inside) * _WORD).astype(np.uint64)
    tails &= _masks()[over[rest]]
    hashes[rest] = (hashes[rest] ^ tails) * m
    return _finished(hashes)


@functools.cache
def _masks() -> _Words:
    """Return words of which so many bytes count."""
    import numpy as np

    return np.array([(1 << (_WORD * count)) - 1 for count in range(_WORD)], np.uint64)


def _mixed(hashes: _Words, words: _Words) -> _Words:
    """Mix one word into each hash; the words are used up."""
    import numpy as np

    return (_stirred(words) ^ hashes) * np.uint64(_M)


def _stirred(words: _Words) -> _Words:
    """Do to words, in their place, what does not depend on the hash that they are mixed into."""
    import numpy as np

    m, r = np.uint64(_M), np.uint64(_R)
    words *= m
    words ^= words >> r
    words *= m
    return words


def _finished(hashes: _Words) -> _Words:
    import numpy as np

    m, r = np.uint64(_M), np.uint64(_R)
    hashes = (hashes ^ (hashes >> r)) * m
    return hashes ^ (hashes >> r)


def _is_word(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    )  # fmt: skip
