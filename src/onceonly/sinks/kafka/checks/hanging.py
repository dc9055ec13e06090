"""What is open in the sink's topics: under our ids as coordinators say, and what none of them knows as leaders do.

A coordinator's list tells ids. The state of producers in the partitions tells what really holds readers up: also a
transaction that was ended while a late request of its producer was on its way, which nothing ends any more
(KAFKA-9144, KIP-664, KIP-890). Looks only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.ports.standing import Hanging
from onceonly.sinks.kafka import committer
from onceonly.sinks.kafka.outcomes import marker, standing
from onceonly.words import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.wire.admin import Admin

_LOOK_S = 20.0
_AGAIN_S = 1.0
"""What ends or begins between two looks is not hanging."""
_LIVE = frozenset({standing.ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""A coordinator is at work, or waits for its producer."""
_ID_PARTS = 5  # query, sink, run, worker, number
_OFFSETS = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class _Held:
    """A producer's transaction in one partition, and the offset of its first row."""

    topic: str
    partition: int
    producer_id: int
    start: int


def hanging(admin: Admin, options: KafkaOptions) -> list[Hanging]:
    """List what is open. Any process. Raises ``UnavailableError`` rather than give a part, ``ConfigurationError``."""
    return admin.patiently(_LOOK_S, "what is open in its topics", lambda: _look(admin, options))


def _look(admin: Admin, options: KafkaOptions) -> list[Hanging]:
    # Partitions first: what they show as begun, a coordinator has known before.
    held = _held(admin, options)
    listed = [state for _, state in committer.listed(admin, states=(), what="transactions")]
    live = {state.producer_id for state in listed if state.transaction_state in _LIVE}
    found = [
        _named(state, [each for each in held if each.producer_id == state.producer_id], options.prefix)
        for state in listed
        if state.transaction_state == standing.ONGOING and _parts(state.transactional_id, options.prefix)
    ]
    suspects = {each for each in held if each.producer_id not in live}
    if suspects:
        time.sleep(_AGAIN_S)
        again = _held(admin, options)
        found += [_unknown(each, at, options) for each, at in again.items() if each in suspects]
    return found


def _held(admin: Admin, options: KafkaOptions) -> dict[_Held, int]:
    """Return what is open in the partitions of the sink's topics and of markers, each with the time of its last row."""
    from onceonly.sinks.kafka.wire.requests import metadata

    topics = [options.topic, _OFFSETS] if options.topic is not None else None
    answer = admin.send(metadata(topics))
    places = [
        (topic.name, each.partition_index)
        for topic in answer.topics
        for each in topic.partitions
        if topics is None or topic.name in topics
    ]
    return {
        _Held(topic, partition, each.producer_id, each.current_txn_start_offset): each.last_timestamp
        for (topic, partition), producers in standing.producers(admin, places).items()
        for each in producers
        if each.current_txn_start_offset >= 0
    }


def _parts(name: str, prefix: str) -> Sequence[str]:
    """Return the parts of one of our ids; none of any other."""
    parts = name.removeprefix(f"{prefix}.").split(".") if name.startswith(f"{prefix}.") else []
    return parts if len(parts) == _ID_PARTS else ()


def _named(state: Any, held: Sequence[_Held], prefix: str) -> Hanging:  # noqa: ANN401  kafka-python is untyped
    query, sink, *_ = map(marker.whole, _parts(state.transactional_id, prefix))
    return Hanging(
        transaction=state.transactional_id,
        query=query,
        sink=sink,
        told=f"its coordinator has it as {state.transaction_state}, of the sink {sink}",
        blocks=", ".join(map(_blocked, held)),
    )


def _unknown(held: _Held, last_ms: int, options: KafkaOptions) -> Hanging:
    return Hanging(
        told=f"no coordinator shows an open transaction of its producer {held.producer_id}, whose last row is of "
        f"{time_of(last_ms)}: nobody ends it. Whose it was, nothing tells; of an id that this user may not DESCRIBE, "
        "it may be alive",
        blocks=_blocked(held),
        command=f"kafka-transactions.sh --bootstrap-server {options.servers} abort --topic {held.topic} "
        f"--partition {held.partition} --start-offset {held.start}",
    )


def _blocked(held: _Held) -> str:
    return f"readers of {held.topic}-{held.partition} stop at offset {held.start}"
