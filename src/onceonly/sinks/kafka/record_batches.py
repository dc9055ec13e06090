"""Rows of Arrow columns as Kafka's record batches, version 2: no Python object stands for a row. Pure.

The layout is that of https://kafka.apache.org/documentation/#recordbatch. All records of a batch have one time, that of
the batch.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.arrow import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]
    Sealed = tuple[bytes | pa.Buffer, ...]
    """A batch in pieces; the first is its head."""

# Base offset, length, leader's epoch, version, checksum; which begins with the attributes.
_HEAD = struct.Struct(">qiibI")
# Attributes, last offset, first and last time, producer id and epoch, first sequence number, count.
_CHECKED = struct.Struct(">hiqqqhii")
_NOT_IN_LENGTH = 12
_VERSION = 2
_TRANSACTIONAL = 0x10
_NO_LEADER_EPOCH = -1

BATCH_BYTES = _HEAD.size + _CHECKED.size
"""Of a batch without records."""

RECORD_BYTES_MAX = 21
"""Of a record without key, value and headers: four lengths of up to 5 bytes each, and attributes."""

NO_HEADERS = b"\0"
# No attributes, and no time beyond the batch's.
_NEITHER = b"\0\0"
# The length of null, as Kafka spells -1.
_NO_KEY = b"\1"
# Numbers below are spelled once and for all.
_TABLED = 1 << 14

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Key, value and headers."""

_SEQUENCES = 1 << 31


@dataclass(frozen=True, slots=True)
class Codec:
    """How batches are compressed: Kafka's number for it, and what does it."""

    number: int
    compress: Callable[[bytes], bytes] | None


PLAIN = Codec(0, None)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes: what InitProducerId has answered."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of binaries in pieces, all of one type; the length of null is -1, as Kafka writes it."""

    pieces: Sequence[pa.Array]
    lengths: Numbers

    @classmethod
    def of(cls, pieces: Sequence[pa.Array]) -> Texts:
        """Bring strings and binaries of any kind into the type; of plain ones, no byte is copied."""
        import numpy as np
        import pyarrow as pa

        wide = [piece.cast(pa.large_binary()) for piece in pieces]
        lengths = [np.diff(layout(piece)[0]) for piece in wide]
        for piece, of_piece in zip(wide, lengths, strict=True):
            if piece.null_count:
                of_piece[piece.is_null().to_numpy(zero_copy_only=False)] = -1
        return cls(wide, np.concatenate(lengths))


@dataclass(frozen=True, slots=True)
class Fields:
    """What is written of some rows, as columns."""

    values: Texts
    keys: Texts | None
    """None where no row has one."""
    headers: Texts | None
    """As they are written, by ``headers``; None where no row has any."""
    sizes: Numbers
    """The bytes of key, value and headers of each row."""

    @classmethod
    def of(
        cls, values: Sequence[pa.Array], keys: Sequence[pa.Array] | None, headers: Sequence[bytes] | None
    ) -> Fields:
        """Give them of columns in pieces, which need not be cut alike."""
        import pyarrow as pa

        found = Texts.of(values)
        others = (
            None if keys is None else Texts.of(keys),
            None if headers is None else Texts.of([pa.array(headers, pa.large_binary())]),
        )
        sizes = found.lengths.clip(0)
        for each in others:
            if each is not None:
                sizes += each.lengths.clip(0)
        return cls(found, *others, sizes)

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> Fields:
        """Give them of rows that were read back."""
        import pyarrow as pa

        keys, values, listed = zip(*rows, strict=True)
        kind = pa.large_binary()
        return cls.of([pa.array(values, kind)], [pa.array(keys, kind)], [headers(each) for each in listed])

    def __len__(self) -> int:
        return len(self.values.lengths)


def records(fields: Fields, rows: Numbers, deltas: Numbers) -> tuple[pa.Buffer, Numbers]:
    """Give these rows as records, one behind the other, and where each begins; at last, where they end.

    ``deltas`` are the rows' places in their batches. A record is a row of texts, and all of them are picked out of one
    column at once: Arrow does that in half the time in which it joins columns row by row (measured). Each text costs;
    so what ends a row without headers is spelled with what begins the next, and cut off before the first.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, headers = fields.keys, fields.headers
    ahead = NO_HEADERS if headers is None else b""
    texts = [_spelled(deltas, behind=_NO_KEY if keys is None else b"")]
    if keys is not None:
        texts += [_spelled(keys.lengths[rows]), _Picked(keys.pieces, rows)]
    texts += [_spelled(fields.values.lengths[rows]), _Picked(fields.values.pieces, rows)]
    if headers is not None:
        texts.append(_Picked(headers.pieces, rows))
    bodies = fields.sizes[rows] + (len(_NEITHER) + len(ahead))
    for text in texts:
        bodies += text.widths
    texts.insert(0, _spelled(bodies, ahead=ahead, behind=_NEITHER))
    picked = np.empty(len(rows) * len(texts) + 1, np.int32)
    of_rows = picked[:-1].reshape(len(rows), len(texts))
    pieces: list[pa.Array] = []
    before = 0
    for place, text in enumerate(texts):
        np.add(text.places, before, out=of_rows[:, place], casting="same_kind")
        pieces += text.pieces
        before += sum(map(len, text.pieces))
    picked[-1] = before
    pieces += _one(ahead).pieces
    # malloc's memory, which a worker keeps (``spark.memory``): other pools give back what the next batch needs again.
    pool = pa.system_memory_pool()
    column = pa.concat_arrays(pieces, memory_pool=pool)
    bounds, data = layout(pc.take(column, pa.array(picked), memory_pool=pool))
    return data.slice(len(ahead)), bounds[: -1 : len(texts)]


def headers(listed: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Give a row's headers as they are written behind its value."""
    text = _varint(len(listed))
    for name, content in listed:
        encoded = name.encode()
        text += (
            _varint(len(encoded))
            + encoded
            + _varint(-1 if content is None else len(content))
            + (content or b"")
        )
    return text


def seal(
    found: Sequence[bytes | pa.Buffer],
    count: int,
    *,
    by: Identity,
    sequence: int,
    time_ms: int,
    codec: Codec = PLAIN,
) -> Sealed:
    """Make a batch of pieces in which records stand one behind the other; of a transaction. They are not copied."""
    import google_crc32c

    packed = found if codec.compress is None else [codec.compress(b"".join(found))]
    checked = _CHECKED.pack(
        _TRANSACTIONAL | codec.number,
        count - 1,
        time_ms,
        time_ms,
        by.producer_id,
        by.producer_epoch,
        sequence,
        count,
    )
    checksum, length = google_crc32c.value(checked), BATCH_BYTES - _NOT_IN_LENGTH
    for piece in packed:
        checksum = google_crc32c.extend(checksum, piece)
        length += len(piece)
    return _HEAD.pack(0, length, _NO_LEADER_EPOCH, _VERSION, checksum) + checked, *packed


def next_sequence(sequence: int, count: int) -> int:
    """Give the number of the row after ``count`` rows: after 2,147,483,647 comes 0."""
    return (sequence + count) % _SEQUENCES


def rows(found: Sequence[bytes | pa.Buffer], count: int) -> Iterator[Row]:
    """Read records back. Slow; by kafka-python."""
    from kafka.record import MemoryRecords

    sealed = seal(found, count, by=Identity(-1, -1), sequence=-1, time_ms=0)
    batch = MemoryRecords(b"".join(sealed)).next_batch()
    assert batch is not None  # noqa: S101  seal made one
    for record in batch:
        yield record.key, record.value, record.headers


@dataclass(frozen=True, slots=True)
class _Picked:
    """Texts, and which of them is each row's."""

    pieces: Sequence[pa.Array]
    places: Numbers | int
    """A number stands for all rows."""
    widths: Numbers | int = 0
    """The bytes of each row's number and what is beside it; of other texts, ``Fields.sizes`` has them."""


@functools.lru_cache(1024)
def _one(text: bytes, width: int = 0) -> _Picked:
    """Give all rows one text."""
    import pyarrow as pa

    return _Picked([pa.array([text], pa.large_binary())], 0, width)


def _spelled(numbers: Numbers, ahead: bytes = b"", behind: bytes = b"") -> _Picked:
    """Spell numbers from -1 on as Kafka does, between some bytes."""
    import numpy as np

    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        text = ahead + _varint(low) + behind
        return _one(text, len(text))
    if high < _TABLED:
        texts, widths = _table(ahead, behind)
        places = numbers + 1
        return _Picked([texts.slice(0, high + 2)], places, widths[places])
    texts, widths = _varints(numbers, ahead, behind)
    return _Picked([texts], np.arange(len(numbers)), widths)


@functools.cache
def _table(ahead: bytes, behind: bytes) -> tuple[pa.Array, Numbers]:
    """Spell small numbers once, as ``_varints`` does, from -1 on."""
    import numpy as np

    return _varints(np.arange(-1, _TABLED), ahead, behind)


def _varints(numbers: Numbers, ahead: bytes, behind: bytes) -> tuple[pa.Array, Numbers]:
    """Encode as Kafka does: zigzag, seven bits a byte, the lowest first. Give how many bytes each text has, too."""
    import numpy as np
    import pyarrow as pa

    folded = (numbers << 1) ^ (numbers >> 63)
    widths = np.ones(len(numbers), np.int64)
    for place in range(1, len(_varint(int(numbers.max())))):
        widths += folded >= 1 << 7 * place
    beside = len(ahead) + len(behind)
    bounds = np.concatenate([[0], np.cumsum(widths + beside)])
    begins, data = bounds[:-1] + len(ahead), np.empty(bounds[-1], np.uint8)
    for place in range(int(widths.max())):
        some = np.flatnonzero(widths > place)
        more = np.where(widths[some] > place + 1, 0x80, 0)
        data[begins[some] + place] = folded[some] >> 7 * place & 0x7F | more
    for place, byte in enumerate(ahead):
        data[bounds[:-1] + place] = byte
    for place, byte in enumerate(behind):
        data[begins + widths + place] = byte
    column = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(numbers), column), widths + beside


def _varint(number: int) -> bytes:
    folded, text = (number << 1) ^ (number >> 63), bytearray()
    while folded >= 1 << 7:
        text.append(folded & 0x7F | 0x80)
        folded >>= 7
    text.append(folded)
    return bytes(text)
