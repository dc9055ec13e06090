"""Rows of Arrow columns as Kafka's record batches, version 2: no Python object stands for a row. Pure.

The layout is that of https://kafka.apache.org/documentation/#recordbatch. All records of a batch have one time, that of
the batch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from onceonly.rows import compiled
from onceonly.sinks.kafka.records import record_views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from onceonly.sinks.kafka.records.fields import Fields, Numbers, Row

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

LOOPS = "onceonly.sinks.kafka.records.record_loops"
"""Compiled, they do the same (``rows.compiled``)."""

BATCH_BYTES = _HEAD.size + _CHECKED.size
"""Of a batch without records."""

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


class Records(Protocol):
    """Makes records of some rows."""

    def make(self, rows: Numbers, deltas: Numbers) -> tuple[pa.Buffer, Numbers]:
        """Return these of the rows, in this order, as records, one behind the other; and where each begins.

        At last, where they end. ``deltas`` are the rows' places in their batches.
        """
        ...


def records(fields: Fields) -> Records:
    """Return what makes records of these rows: a compiled loop where there is one, else numpy and Arrow."""
    loops = compiled.loops(LOOPS)
    return record_views.Records(fields) if loops is None else loops.Records(fields)


def seal(
    found: Sequence[bytes | pa.Buffer],
    count: int,
    *,
    by: Identity,
    sequence: int,
    time_ms: int,
    codec: Codec = PLAIN,
    in_transaction: bool = True,
) -> Sealed:
    """Make a batch of pieces in which records stand one behind the other. They are not copied."""
    import google_crc32c

    packed = found if codec.compress is None else [codec.compress(b"".join(found))]
    checked = _CHECKED.pack(
        (_TRANSACTIONAL if in_transaction else 0) | codec.number,
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
    """Return the number of the row after ``count`` rows: after 2,147,483,647 comes 0."""
    return (sequence + count) % _SEQUENCES


def rows(found: Sequence[bytes | pa.Buffer], count: int) -> Iterator[Row]:
    """Read records back. Slow; by kafka-python."""
    from onceonly.sinks.kafka.wire.requests import MemoryRecords

    sealed = seal(found, count, by=Identity(-1, -1), sequence=-1, time_ms=0)
    batch = MemoryRecords(b"".join(sealed)).next_batch()
    assert batch is not None  # noqa: S101  seal made one
    for record in batch:
        yield record.key, record.value, record.headers
