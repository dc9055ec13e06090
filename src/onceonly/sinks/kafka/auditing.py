"""What a cluster holds of an epoch: its partitions are read from where the handles say that rows begin.

A topic is cut off (retention, ``kafka-delete-records.sh``), compacted, or damaged on a disk, and what others have
written there is not the epoch's. So its own batches are counted, by the producer that has written them, up to the
marker that ends its transaction; and their records are added up as the rows that they were. Only looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.errors import UnavailableError
from onceonly.ports.standing import Held
from onceonly.sinks.kafka.committer import require_cluster
from onceonly.sinks.kafka.outcomes import standing
from onceonly.sinks.kafka.outcomes.fetching import OUT_OF_RANGE, Place, fetch, judge
from onceonly.sinks.kafka.prepared import Prepared, read_places

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceonly.model import Handle
    from onceonly.sinks.kafka.reading_back import Values
    from onceonly.sinks.kafka.wire.admin import Admin

_PATIENCE_S = 10.0
_COMMIT = 1
"""The second number in the key of a control record: org.apache.kafka.common.record.ControlRecordType."""


def held(admin: Admin, handles: Sequence[Handle], values: Values | None = None) -> Held | None:
    """Count the rows of one epoch, and add up their ``values``; None where its handles do not say where they begin.

    An operator's process; reads as much as the epoch has written, and what others wrote between. Raises
    ``UnavailableError``, ``ConfigurationError``.
    """
    several = [Prepared.of(handle) for handle in handles]
    starts = [read_places(each.written) for each in several]
    if not several or not all(some and min(some.values()) >= 0 for some in starts):
        return None
    rows = 0
    wrong: list[str] = []
    places = {place for some in starts for place in some}
    one = several[0]  # all of an epoch are of one cluster
    admin.patiently(
        _PATIENCE_S, "cluster id", lambda: require_cluster(admin, one.cluster_id, one.transactional_id)
    )
    by_leader = admin.patiently(
        _PATIENCE_S, "leaders of the partitions", lambda: standing.by_leader(admin, places)
    )
    leaders = {place: leader for leader, some in by_leader.items() for place in some}
    for prepared, some in zip(several, starts, strict=True):
        for (topic, partition), first in some.items():
            if (topic, partition) not in leaders:
                wrong.append(f"{topic}-{partition} is not there any more")
                continue
            place = Place(topic, partition, leaders[topic, partition])
            found, told = _count(admin, prepared, place, first, values)
            rows += found
            wrong += told
    if values is None:
        return Held(rows=rows, wrong=tuple(wrong))
    return Held(rows=rows, wrong=tuple(wrong), checksum=values.checksum, unread=values.unread)


def _count(
    admin: Admin, prepared: Prepared, place: Place, first: int, values: Values | None
) -> tuple[int, list[str]]:
    """Count the rows that a transaction has in a partition; say what is wrong with them, if anything is."""
    start = admin.patiently(_PATIENCE_S, f"beginning of {place}", lambda: _start(admin, place))
    wrong: list[str] = []
    if start > first:
        wrong.append(
            f"{place}: what stood from offset {first} to {start - 1} is gone: retention, or somebody's hand"
        )
    rows = 0
    for batch in _batches(admin, place, max(first, start)):
        if batch.producer_id != prepared.producer_id:
            continue
        if not batch.is_control_batch:
            if values is not None and not _is_whole(batch):
                wrong.append(
                    f"{place}: the batch at offset {batch.base_offset} has other bytes than were written"
                )
                continue
            # A partition may begin within a batch.
            if batch.base_offset < start:
                rows += sum(each.offset >= start for each in batch)
                continue
            rows += batch.records_count
            if values is not None:
                values.add(place.topic, batch)
        elif int.from_bytes(next(iter(batch)).key[2:4], "big") == _COMMIT:
            return rows, wrong
        else:
            return 0, [
                f"{place}: {prepared.transactional_id} was aborted there, at offset {batch.base_offset}"
            ]
    return rows, wrong or [f"{place}: {prepared.transactional_id} has no end there"]


def _is_whole(batch: Any) -> bool:  # noqa: ANN401  kafka-python is untyped
    """Say whether a batch has the bytes of which it has the checksum."""
    # kafka-python's own way is a loop of Python's, unless another package is there.
    import google_crc32c

    data = bytes(batch._buffer[batch.ATTRIBUTES_OFFSET :])  # noqa: SLF001
    return bool(google_crc32c.value(data) == batch.crc)


def _start(admin: Admin, place: Place) -> int:
    from onceonly.sinks.kafka.wire.requests import EARLIEST, list_offsets

    [topic] = admin.send(list_offsets({place.topic: [place.partition]}, EARLIEST), place.leader).topics
    [found] = topic.partitions
    judge(found.error_code, place)
    return int(found.offset)


def _batches(admin: Admin, place: Place, offset: int) -> Iterator[Any]:
    """Yield the batches of a partition from an offset on, up to its end."""
    from onceonly.sinks.kafka.wire.requests import MemoryRecords

    while True:
        answer = admin.patiently(_PATIENCE_S, f"rows of {place}", lambda: fetch(admin, place, offset))  # noqa: B023
        if answer.error_code == OUT_OF_RANGE:
            return  # it ends before
        records = MemoryRecords(bytes(answer.records or b""))
        before = offset
        while (batch := records.next_batch()) is not None:
            if batch.next_offset > offset:
                yield batch
                offset = batch.next_offset
        if offset == before:
            if offset >= answer.high_watermark:
                return
            raise UnavailableError(
                f"Kafka gives no rows of {place} from offset {offset} on, and has some",
                next_step="look into the broker's log",
            )
