"""Rows of Arrow columns as Kafka's record batches, version 2: no Python object stands for a row. Pure.

The layout is that of https://kafka.apache.org/documentation/#recordbatch. All records of a batch have one time, that of
the batch.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.arrow import is_plain, layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]
    Views = npt.NDArray[np.void]
    Spelled = tuple[Views | np.void, Numbers | int]
    """Texts, one for all rows or one for each, and how many bytes they have beside ``Fields.sizes``."""
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
# Arrow's views are four words (https://arrow.apache.org/docs/format/Columnar.html, Variable-size Binary View Layout):
# a length; then the text, up to so many bytes, or its beginning, the number of the buffer that it lies in, and where.
_VIEW = "V16"
_SHORT_MAX = 12
_BUFFER = 2
# Numbers below are spelled once and for all.
_TABLED = 1 << 14
_TABLES_MAX = 32

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
    """A column of binaries in pieces, one behind the other; the length of null is -1, as Kafka writes it."""

    pieces: Sequence[pa.Array]
    lengths: Numbers
    views: Views
    """Of all pieces: Arrow's views, which say where each text lies, and have it themselves where it is short."""

    @classmethod
    def of(cls, pieces: Sequence[pa.Array], data: list[pa.Buffer]) -> Texts:
        """Look at strings and binaries of any kind; of plain ones, no byte is copied. Adds their memory to ``data``."""
        import numpy as np
        import pyarrow as pa

        plain = [piece if is_plain(piece.type) else piece.cast(pa.large_binary()) for piece in pieces]
        lengths = np.empty(sum(map(len, plain)), np.int64)
        views = np.empty((len(lengths), 4), np.int32)
        begin = 0
        for piece in plain:
            try:
                seen = piece.cast(pa.binary_view())
            except pa.ArrowCapacityError:
                # Views reach 2 GB into a memory; of a piece behind that, which is small, the texts are copied out.
                seen = piece.take(pa.array(np.arange(len(piece)))).cast(pa.binary_view())
            _, words, *behind = seen.buffers()
            here = slice(begin, begin + len(seen))
            views[here] = np.frombuffer(words, np.int32).reshape(-1, 4)[seen.offset : seen.offset + len(seen)]
            lengths[here] = views[here, 0]
            if piece.null_count:
                nulls = piece.is_null().to_numpy(zero_copy_only=False)
                views[here][nulls], lengths[here][nulls] = 0, -1
            if data:
                views[here, _BUFFER] += np.where(lengths[here] > _SHORT_MAX, len(data), 0).astype(np.int32)
            data += behind
            begin = here.stop
        return cls(plain, lengths, views.view(_VIEW)[:, 0])


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
    data: Sequence[pa.Buffer]
    """Where the texts lie, as their views number it."""

    @classmethod
    def of(
        cls, values: Sequence[pa.Array], keys: Sequence[pa.Array] | None, headers: Sequence[bytes] | None
    ) -> Fields:
        """Give them of columns in pieces, which need not be cut alike."""
        import pyarrow as pa

        data: list[pa.Buffer] = []
        found = Texts.of(values, data)
        others = (
            None if keys is None else Texts.of(keys, data),
            None if headers is None else Texts.of([pa.array(headers, pa.large_binary())], data),
        )
        sizes = found.lengths.clip(0)
        for each in others:
            if each is not None:
                sizes += each.lengths.clip(0)
        return cls(found, *others, sizes, data)

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

    ``deltas`` are the rows' places in their batches. A record is a row of texts, each of which Arrow has as a view: to
    make a plain column of views is to copy each text once, to where it belongs. Each text costs; so what ends a row
    without headers is spelled with what begins the next, and cut off before the first, and the length of keys that are
    all as long is spelled with what stands before it.
    """
    import numpy as np
    import pyarrow as pa

    keys, headers = fields.keys, fields.headers
    ahead = NO_HEADERS if headers is None else b""
    of_keys = np.array([-1]) if keys is None else keys.lengths[rows]
    if int(of_keys.min()) == int(of_keys.max()):
        texts = [_spelled(deltas, behind=_varint(int(of_keys[0])))]
    else:
        texts = [_spelled(deltas), _spelled(of_keys)]
    if keys is not None:
        texts.append((keys.views[rows], 0))
    texts += [_spelled(fields.values.lengths[rows]), (fields.values.views[rows], 0)]
    if headers is not None:
        texts.append((headers.views[rows], 0))
    bodies = fields.sizes[rows] + (len(_NEITHER) + len(ahead))
    for _, widths in texts:
        bodies += widths
    texts.insert(0, _spelled(bodies, ahead=ahead, behind=_NEITHER))
    views = np.empty(len(rows) * len(texts) + 1, _VIEW)
    of_rows = views[:-1].reshape(len(rows), len(texts))
    for place, (text, _) in enumerate(texts):
        of_rows[:, place] = text
    views[-1], _ = _one(ahead)
    column = pa.Array.from_buffers(pa.binary_view(), len(views), [None, pa.py_buffer(views), *fields.data])
    # malloc's memory, which a worker keeps (``spark.memory``): other pools give back what the next batch needs again.
    bounds, data = layout(column.cast(pa.large_binary(), memory_pool=pa.system_memory_pool()))
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


@functools.lru_cache(1024)
def _one(text: bytes) -> Spelled:
    """Give all rows one text."""
    import numpy as np

    return np.frombuffer(len(text).to_bytes(4, "little") + text.ljust(_SHORT_MAX, b"\0"), _VIEW)[0], len(text)


def _spelled(numbers: Numbers, ahead: bytes = b"", behind: bytes = b"") -> Spelled:
    """Spell numbers from -1 on as Kafka does, between some bytes: at most ``_SHORT_MAX`` of all of them."""
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        return _one(ahead + _varint(low) + behind)
    if high < _TABLED:
        texts, widths = _table(ahead, behind)
        places = numbers + 1
        return texts[places], widths[places]
    return _varints(numbers, ahead, behind)


@functools.lru_cache(_TABLES_MAX)
def _table(ahead: bytes, behind: bytes) -> tuple[Views, Numbers]:
    """Spell small numbers once, as ``_varints`` does, from -1 on."""
    import numpy as np

    return _varints(np.arange(-1, _TABLED), ahead, behind)


def _varints(numbers: Numbers, ahead: bytes, behind: bytes) -> tuple[Views, Numbers]:
    """Encode as Kafka does: zigzag, seven bits a byte, the lowest first. Give how many bytes each text has, too."""
    import numpy as np

    folded = (numbers << 1) ^ (numbers >> 63)
    widths = np.ones(len(numbers), np.int64)
    for place in range(1, len(_varint(int(numbers.max())))):
        widths += folded >= 1 << 7 * place
    sizes = widths + (len(ahead) + len(behind))
    data = np.zeros((len(numbers), 16), np.uint8)
    data.view(np.int32)[:, 0] = sizes
    texts = data[:, 4:]
    texts[:, : len(ahead)] = np.frombuffer(ahead, np.uint8)
    for place in range(int(widths.max())):
        some = np.flatnonzero(widths > place)
        more = np.where(widths[some] > place + 1, 0x80, 0)
        texts[some, len(ahead) + place] = folded[some] >> 7 * place & 0x7F | more
    for place, byte in enumerate(behind):
        texts[np.arange(len(numbers)), len(ahead) + widths + place] = byte
    return data.view(_VIEW)[:, 0], sizes


def _varint(number: int) -> bytes:
    folded, text = (number << 1) ^ (number >> 63), bytearray()
    while folded >= 1 << 7:
        text.append(folded & 0x7F | 0x80)
        folded >>= 7
    text.append(folded)
    return bytes(text)
