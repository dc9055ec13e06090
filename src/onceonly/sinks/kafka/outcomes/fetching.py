"""What stands in a partition from an offset on, as its leader gives it. Looks only; needs READ on the topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.sinks.kafka.wire.answers import NONE, PutOffError, refuse_forbidden

if TYPE_CHECKING:
    from onceonly.sinks.kafka.wire.admin import Admin

OUT_OF_RANGE = 1  # OFFSET_OUT_OF_RANGE
FETCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A partition, and the broker that leads it."""

    topic: str
    partition: int
    leader: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def fetch(
    admin: Admin, place: Place, offset: int, *, bytes_max: int = FETCH_BYTES, committed: bool = False
) -> Any:  # noqa: ANN401  kafka-python is untyped
    """Return what a leader gives of a partition from an offset on: one batch at least, if there is one. Any process.

    ``committed`` leaves out what follows an open transaction, and names those that were aborted. The error of the
    answer is 0 or ``OUT_OF_RANGE``. Raises ``NotAnsweredError``, ``ConfigurationError``.
    """
    from onceonly.sinks.kafka.wire.requests import FetchRequest

    in_topic = FetchRequest.FetchTopic
    partition = in_topic.FetchPartition(
        partition=place.partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=bytes_max,
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=0,
        max_bytes=bytes_max,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
        topics=[in_topic(topic=place.topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
        min_version=4,  # which has record batches
        max_version=12,  # with 13, topics are named by id
    )
    [topic] = admin.send(request, place.leader).responses
    [found] = topic.partitions
    if found.error_code != OUT_OF_RANGE:
        judge(found.error_code, place)
    return found


def judge(code: int, place: Place) -> None:
    """Raise ``ConfigurationError`` where a permission is missing, ``NotAnsweredError`` for any other error."""
    refuse_forbidden(code, place.topic)
    if code != NONE:
        raise PutOffError(code, str(place))
