"""Rows of Arrow columns as Kafka's record batches, version 2: no Python object stands for a row. Pure.

The layout is that of https://kafka.apache.org/documentation/#recordbatch. All records of a batch have one time, that of
the batch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from onceonly.arrow import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

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
class Fields:
    """What is written of some rows, as columns of one binary type, and how long each is."""

    values: Texts
    keys: Texts | None
    """None where no row has one."""
    headers: Texts | None
    """As they are written, by ``headers``; None where no row has any."""

    @classmethod
    def of(cls, values: pa.Array, keys: pa.Array | None, headers: Sequence[bytes] | None) -> Fields:
        """Bring strings and binaries of any kind into one; copies nothing where they are plain and small."""
        import pyarrow as pa

        given = [each.type for each in (values, keys) if each is not None]
        is_narrow = all(kind in {pa.binary(), pa.string()} for kind in given)
        kind = pa.binary() if is_narrow else pa.large_binary()
        return cls(
            Texts.of(values, kind),
            None if keys is None else Texts.of(keys, kind),
            None if headers is None else Texts.of(pa.array(headers, kind), kind),
        )

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> Fields:
        """Give them of rows that were read back."""
        import pyarrow as pa

        keys, values, listed = zip(*rows, strict=True)
        kind = pa.large_binary()
        return cls.of(pa.array(values, kind), pa.array(keys, kind), [headers(each) for each in listed])

    def take(self, rows: Numbers) -> Fields:
        """Give these rows, in this order."""
        return Fields(*(None if each is None else each.take(rows) for each in self._columns))  # type: ignore[arg-type]  # values are there

    def sizes(self) -> Numbers:
        """Give the bytes of key, value and headers of each row."""
        return cast("Numbers", sum(each.lengths.clip(0) for each in self._columns if each is not None))

    def __len__(self) -> int:
        return len(self.values.lengths)

    @property
    def _columns(self) -> tuple[Texts | None, ...]:
        return self.values, self.keys, self.headers


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of binaries; the length of null is -1, as Kafka writes it."""

    column: pa.Array
    lengths: Numbers

    @classmethod
    def of(cls, column: pa.Array, kind: pa.DataType) -> Texts:
        """Bring a column of strings or binaries into ``kind``."""
        import numpy as np
        import pyarrow as pa

        if column.type != kind:
            same_layout = pa.types.is_string(column.type) and pa.types.is_binary(kind)
            column = column.view(kind) if same_layout else column.cast(kind)
        lengths = np.diff(layout(column)[0])
        if column.null_count:
            lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
        return cls(column, lengths)

    def take(self, rows: Numbers) -> Texts:
        """Give these rows, in this order."""
        return Texts(self.column.take(rows), self.lengths[rows])


def records(fields: Fields, deltas: Numbers) -> tuple[pa.Buffer, Numbers]:
    """Give the rows as records, one behind the other, and where each begins; at last, where they end.

    ``deltas`` are the rows' places in their batches.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    count, kind, lengths = len(fields), fields.values.column.type, fields.values.lengths
    of_values, of_deltas = _varints(lengths), _varints(deltas)
    of_keys = _varints(np.full(1, -1) if fields.keys is None else fields.keys.lengths)
    bodies = fields.sizes() + (2 + of_deltas.widths + of_keys.widths + of_values.widths)
    if fields.headers is None:
        bodies += len(NO_HEADERS)
    columns: list[Any] = [_column([_varints(bodies), _NEITHER, of_deltas, of_keys], count, kind)]
    if fields.keys is not None:
        columns.append(fields.keys.column)
    columns += [_column([of_values], count, kind), fields.values.column]
    columns.append(pa.scalar(NO_HEADERS, kind) if fields.headers is None else fields.headers.column)
    joined = pc.binary_join_element_wise(
        *columns, pa.scalar(b"", kind), null_handling="replace", null_replacement=""
    )
    bounds, data = layout(joined)
    return data, bounds


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
) -> bytes:
    """Make a batch of pieces in which records stand one behind the other; of a transaction."""
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
    return b"".join((_HEAD.pack(0, length, _NO_LEADER_EPOCH, _VERSION, checksum), checked, *packed))


def next_sequence(sequence: int, count: int) -> int:
    """Give the number of the row after ``count`` rows: after 2,147,483,647 comes 0."""
    return (sequence + count) % _SEQUENCES


def rows(found: Sequence[bytes | pa.Buffer], count: int) -> Iterator[Row]:
    """Read records back. Slow; by kafka-python."""
    from kafka.record import MemoryRecords

    sealed = seal(found, count, by=Identity(-1, -1), sequence=-1, time_ms=0)
    batch = MemoryRecords(sealed).next_batch()
    assert batch is not None  # noqa: S101  seal made one
    for record in batch:
        yield record.key, record.value, record.headers


@dataclass(frozen=True, slots=True)
class _Varints:
    """Numbers in Kafka's variable length: for each, a row of bytes, of which the first so many count."""

    rows: Bytes | bytes
    """One text stands for that of all."""
    widths: Numbers | int

    def write(self, data: Bytes, begins: Numbers) -> None:
        """Write each into ``data``, from where it begins: one byte of all rows at a time."""
        import numpy as np

        if isinstance(self.rows, bytes):
            for place, byte in enumerate(self.rows):
                if byte:
                    data[begins + place] = byte
            return
        least = self.widths if isinstance(self.widths, int) else int(self.widths.min())
        for place in range(self.rows.shape[1]):
            if place < least:
                data[begins + place] = self.rows[:, place]
            else:
                longer = np.flatnonzero(self.widths > place)
                data[begins[longer] + place] = self.rows[longer, place]


# No attributes, and no time beyond the batch's.
_NEITHER = _Varints(b"\0\0", 2)


def _varints(numbers: Numbers) -> _Varints:
    """Encode as Kafka does: zigzag, seven bits a byte, the lowest first."""
    import numpy as np

    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        text = _varint(low)
        return _Varints(text, len(text))
    folded = (numbers << 1) ^ (numbers >> 63)
    low, high = int(folded.min()), int(folded.max())
    room = len(_varint(high >> 1))
    rows = np.empty((len(numbers), room), np.uint8)
    for place in range(room):
        rows[:, place] = folded >> 7 * place
    if low >= 1 << 7 * (room - 1):  # all are as long
        rows[:, : room - 1] |= 0x80
        rows[:, room - 1] &= 0x7F
        return _Varints(rows, room)
    widths = np.ones(len(numbers), np.int64)
    for place in range(1, room):
        more = folded >= 1 << 7 * place
        widths += more
        rows[:, place - 1] = rows[:, place - 1] & 0x7F | more * np.uint8(0x80)
    rows[:, room - 1] &= 0x7F
    return _Varints(rows, widths)


def _varint(number: int) -> bytes:
    folded, text = (number << 1) ^ (number >> 63), bytearray()
    while folded >= 1 << 7:
        text.append(folded & 0x7F | 0x80)
        folded >>= 7
    text.append(folded)
    return bytes(text)


def _column(parts: Sequence[_Varints], count: int, kind: pa.DataType) -> Any:  # noqa: ANN401  pyarrow has no types
    """Write the parts of each row one behind the other, as a column; as one value where it is the same for all."""
    import numpy as np
    import pyarrow as pa

    if all(isinstance(part.rows, bytes) for part in parts):
        return pa.scalar(b"".join(cast("list[bytes]", [part.rows for part in parts])), kind)
    bounds = np.zeros(count + 1, np.int64 if pa.types.is_large_binary(kind) else np.int32)
    bounds[1:] = np.cumsum(np.full(count, sum(part.widths for part in parts)))
    # Zeros, which are most of what is the same in all rows, are there already.
    data = np.zeros(bounds[-1], np.uint8)
    begins = bounds[:-1].astype(np.int64)
    for part in parts:
        part.write(data, begins)
        begins += part.widths
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
