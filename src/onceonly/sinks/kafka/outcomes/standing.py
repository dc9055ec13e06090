"""Whether a transaction that its coordinator holds open still stands in the partitions that it has rows in. Looks only.

``kafka-transactions.sh abort`` (``Admin.abortTransaction``) writes an abort into one partition. The coordinator does
not hear of it: it takes the commit all the same, and the rows of that partition stay aborted.

What is proven: a coordinator makes its own decision durable before any partition is told. So a partition in which the
transaction has ended, while *afterwards* the coordinator still holds it open, was told by somebody else. What is not:
somebody may do so between this look and the commit.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from onceonly.sinks.kafka.outcomes import marker
from onceonly.sinks.kafka.prepared import read_places
from onceonly.sinks.kafka.wire.admin import TRANSACTION
from onceonly.sinks.kafka.wire.answers import (
    ID_NOT_FOUND,
    LEADERLESS,
    NONE,
    TOPIC_FORBIDDEN,
    UNKNOWN_TOPIC,
    PutOffError,
    refuse_forbidden,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onceonly.sinks.kafka.prepared import Prepared
    from onceonly.sinks.kafka.wire.admin import Admin

log = logging.getLogger("onceonly")

ONGOING = "Ongoing"
"""The only state in which a transaction can still be committed: org.apache.kafka TransactionState.ONGOING."""

_OFFSETS = "__consumer_offsets"
_NOT_OPEN = -1
# A broker may be late to know a topic.
_UNKNOWN_S = 5.0
_PAUSE_S = 0.2
_NAMED_MAX = 5

Places = dict[tuple[str, int], int]


def describe(admin: Admin, transactional_id: str) -> Any:  # noqa: ANN401  kafka-python is untyped
    """Ask the coordinator of an id what it shows of it; for people, and where no proof is needed. Any process.

    ``error_code`` of the answer is 0 or ``ID_NOT_FOUND``. Raises ``NotAnsweredError``, ``ConfigurationError``.
    """
    from onceonly.sinks.kafka.wire.requests import DescribeTransactionsRequest

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    state = admin.to_coordinator(TRANSACTION, transactional_id, request).transaction_states[0]
    refuse_forbidden(state.error_code, transactional_id)
    if state.error_code not in {NONE, ID_NOT_FOUND}:
        admin.forget(TRANSACTION, transactional_id)
        raise PutOffError(state.error_code)
    return state


def is_open(state: Any, prepared: Prepared) -> bool:  # noqa: ANN401  kafka-python is untyped
    """Say whether a coordinator shows a transaction as open, and nobody has taken its id."""
    shown = (state.producer_id, state.producer_epoch)
    return (
        state.error_code == NONE
        and state.transaction_state == ONGOING
        and shown == (prepared.producer_id, prepared.producer_epoch)
    )


def fallen(admin: Admin, prepared: Prepared) -> str:
    """Say where somebody else has ended a part of a transaction that is open; empty where it stands, or is not open.

    Any process; a few requests. Raises ``NotAnsweredError``, ``ConfigurationError``.
    """
    state = describe(admin, prepared.transactional_id)
    if not is_open(state, prepared):
        return ""
    wrong = _ended(admin, prepared, places_of(state, prepared))
    if not marker.is_pending(admin, prepared.group, prepared.marker_topic):
        wrong.append(f"its marker in {_OFFSETS} (group {prepared.group})")
    # The coordinator may have been told to end it meanwhile, by another driver; then its answer tells.
    if not wrong or not is_open(describe(admin, prepared.transactional_id), prepared):
        return ""
    more = f" and {len(wrong) - _NAMED_MAX} more" if len(wrong) > _NAMED_MAX else ""
    return (
        f"a foreign abort, of a part of it and past its coordinator (as kafka-transactions.sh abort does): "
        f"{', '.join(wrong[:_NAMED_MAX])}{more}"
    )


def places_of(state: Any, prepared: Prepared) -> Places:  # noqa: ANN401  kafka-python is untyped
    """Return the partitions of a transaction, each with the offset of its first row, -1 where that is not known."""
    # What the handle does not name, the coordinator has noted: those that the client had it add.
    return read_places(prepared.written) or {
        (topic.topic, partition): _NOT_OPEN
        for topic in state.topics
        for partition in topic.partitions
        if topic.topic != _OFFSETS
    }


def _ended(admin: Admin, prepared: Prepared, places: Mapping[tuple[str, int], int]) -> list[str]:
    """Name the partitions in which it is not open from the first row on."""
    wrong = []
    for (topic, partition), start in starts(admin, prepared, places).items():
        first = places[topic, partition]
        if start == _NOT_OPEN:
            wrong.append(f"topic {topic}, partition {partition}")
        elif first not in {_NOT_OPEN, start}:
            wrong.append(f"topic {topic}, partition {partition} (rows from offset {first} to {start})")
    return wrong


def starts(admin: Admin, prepared: Prepared, places: Iterable[tuple[str, int]]) -> Places:
    """Return the offset from which on it is open in each partition, -1 where it is not. Any process.

    Partitions that may not be looked at are told and left out.
    """
    found: Places = {}
    forbidden: set[str] = set()
    left = set(places)
    deadline = time.monotonic() + _UNKNOWN_S
    while left:
        for leader, some in by_leader(admin, left).items():
            for place, answer in _ask(admin, leader, some).items():
                if answer.error_code == NONE:
                    found[place] = _start(answer, prepared)
                elif answer.error_code == TOPIC_FORBIDDEN:
                    forbidden.add(place[0])
                elif answer.error_code != UNKNOWN_TOPIC:
                    raise PutOffError(answer.error_code, f"topic {place[0]}, partition {place[1]}")
        left = {place for place in left if place not in found and place[0] not in forbidden}
        if left and time.monotonic() >= deadline:
            found |= dict.fromkeys(left, _NOT_OPEN)  # deleted, with the rows in it
            break
        if left:
            time.sleep(_PAUSE_S)
    for topic in sorted(forbidden):
        log.warning(
            "Transaction %s is committed without a look at topic %s, which needs the permission to READ it: a part "
            "that somebody has aborted by hand would be missing.",
            prepared.transactional_id,
            topic,
        )
    return found


def producers(admin: Admin, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Sequence[Any]]:
    """Return what the leader of each partition knows of its producers; those that may not be read are left out.

    Any process. Raises ``NotAnsweredError``.
    """
    found: dict[tuple[str, int], Sequence[Any]] = {}
    for leader, some in by_leader(admin, places).items():
        for place, answer in _ask(admin, leader, some).items():
            if answer.error_code == NONE:
                found[place] = answer.active_producers
            elif answer.error_code != TOPIC_FORBIDDEN:
                raise PutOffError(answer.error_code, f"topic {place[0]}, partition {place[1]}")
    return found


def by_leader(admin: Admin, places: Iterable[tuple[str, int]]) -> dict[int, list[tuple[str, int]]]:
    """Deal partitions out to their leaders; those of topics that are not known go nowhere."""
    from onceonly.sinks.kafka.wire.requests import metadata

    wanted = set(places)
    answer = admin.send(metadata(sorted({name for name, _ in wanted})))
    leaders: dict[int, list[tuple[str, int]]] = {}
    for topic in answer.topics:
        if topic.error_code not in {NONE, UNKNOWN_TOPIC, TOPIC_FORBIDDEN}:
            raise PutOffError(topic.error_code, f"topic {topic.name}")
        for each in topic.partitions:
            place = (topic.name, each.partition_index)
            if place in wanted:
                if each.leader_id < 0:
                    raise PutOffError(LEADERLESS, f"topic {place[0]}, partition {place[1]}")
                leaders.setdefault(each.leader_id, []).append(place)
    return leaders


def _ask(admin: Admin, leader: int, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Any]:
    from onceonly.sinks.kafka.wire.requests import DescribeProducersRequest

    of_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        of_topic.setdefault(topic, []).append(partition)
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=sorted(partitions))
            for topic, partitions in of_topic.items()
        ]
    )
    return {
        (topic.name, each.partition_index): each
        for topic in admin.send(request, leader).topics
        for each in topic.partitions
    }


def _start(answer: Any, prepared: Prepared) -> int:  # noqa: ANN401  kafka-python is untyped
    """Return the offset from which on a partition's leader shows the transaction as open."""
    for each in answer.active_producers:
        if (each.producer_id, each.producer_epoch) == (prepared.producer_id, prepared.producer_epoch):
            return int(each.current_txn_start_offset)
    return _NOT_OPEN
