"""The guard of Spark's Kafka source: the topics that a checkpoint stands on, against those that are there now.

Spark compares offsets alone. A topic made anew that is as long as the former goes on in the middle, also with
``failOnDataLoss=true``; with ``false`` it passes over what retention has taken, and by default it reads rows of
transactions that were aborted.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.guards.source import Finding, some_of
from onceonly.sinks.kafka.checks.topic_ids import spelled_id
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.wire.admin import Admin
from onceonly.sinks.kafka.wire.answers import (
    LEADERLESS,
    NONE,
    TOPIC_FORBIDDEN,
    UNKNOWN_TOPIC,
    PutOffError,
)
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onceonly.guards.source import Source

PATIENCE_S = 10.0
_NEW_CHECKPOINT = "start on a new checkpoint to read the topic from its beginning"

Offsets = dict[str, dict[int, int]]
"""By topic and partition, as Spark's Kafka source writes them."""


def offsets_of(text: str) -> Offsets | None:
    """Read the offset of a Kafka source; None where it is one of another source. Pure."""
    try:
        found = json.loads(text[max(text.find("{"), 0) :])
        topics = {
            str(topic): {int(partition): int(at) for partition, at in partitions.items()}
            for topic, partitions in found.items()
        }
    except (ValueError, AttributeError, TypeError):
        return None
    return topics or None


def assigned(text: str) -> list[str]:
    """Return the topics of the option ``assign``. Pure."""
    try:
        return list(json.loads(text))
    except (ValueError, TypeError):
        return []


@dataclass(frozen=True, slots=True)
class Standing:
    """What an epoch reads of a source: from ``starts``, where they are known, to ``ends``."""

    ends: Offsets
    starts: Offsets = field(default_factory=dict)


@dataclass(slots=True)
class _Topic:
    id: str
    leaders: dict[int, int]


def look(
    source: Source, standing: Standing, known: Mapping[str, tuple[str, ...]], *, epoch: int
) -> tuple[dict[str, str], list[Finding]]:
    """Compare a source's topics with what the checkpoint says of them; return their ids, and what is wrong.

    Planner or driver, at a start; a few requests. ``known`` are the ids of earlier starts. Raises
    ``UnavailableError`` within bounded time, ``ConfigurationError`` and ``SetupError`` where nobody can look.
    """
    with closing(Admin(KafkaOptions.of_source(source.options))) as admin:
        topics = admin.patiently(PATIENCE_S, "topics of the source", lambda: _topics(admin, standing.ends))
        findings = [*_made_anew(standing, topics, known, epoch)]
        same = {
            name: topic
            for name, topic in topics.items()
            if topic is not None and (name not in known or topic.id in known[name])
        }
        from onceonly.sinks.kafka.wire.requests import EARLIEST, LATEST

        earliest, latest = (
            admin.patiently(PATIENCE_S, "offsets of the source", _asking(admin, same, standing, timestamp))
            for timestamp in (EARLIEST, LATEST)
        )
        findings += _passed_by(source, standing, earliest, epoch)
        findings += _cut_off(standing, latest, epoch)
        if source.options.get("kafka.isolation.level", "read_uncommitted").strip() != "read_committed":
            findings += admin.patiently(
                PATIENCE_S, "producers of the source", lambda: _uncommitted(admin, same, standing)
            )
    if source.may_pass_over:
        findings.append(
            Finding(
                "The Kafka source has failOnDataLoss=false: rows that retention takes before they are read are passed "
                "over, and only the next start looks",
                next_step="leave it out, so that Spark stops where rows are gone",
            )
        )
    return {name: topic.id for name, topic in topics.items() if topic is not None}, findings


def gone_since(
    source: Source, at: Offsets, known: Mapping[str, tuple[str, ...]], *, epoch: int
) -> list[Finding]:
    """Say why what follows the end of an epoch cannot be read again: topics made anew, and rows that are gone.

    Operator's process; a few requests. Raises as ``look``.
    """
    from onceonly.sinks.kafka.wire.requests import EARLIEST, LATEST

    standing = Standing(at)
    with closing(Admin(KafkaOptions.of_source(source.options))) as admin:
        topics = admin.patiently(PATIENCE_S, "topics of the source", lambda: _topics(admin, at))
        findings = [*_made_anew(standing, topics, known, epoch)]
        there = {name: topic for name, topic in topics.items() if topic is not None}
        earliest, latest = (
            admin.patiently(PATIENCE_S, "offsets of the source", _asking(admin, there, standing, timestamp))
            for timestamp in (EARLIEST, LATEST)
        )
    gone = [
        f"{topic} partition {partition} begins at {first}, and chk-{epoch} ends at {at[topic][partition]}"
        for topic, partitions in earliest.items()
        for partition, first in partitions.items()
        if first > at[topic][partition]
    ]
    if gone:
        what = f"Retention has passed: {some_of(gone)}"
        findings.append(Finding(what, next_step="take a newer savepoint", stops=True))
    # Of a topic made anew it is told already.
    return findings or [*_cut_off(standing, latest, epoch)]


def ids_of(source: Source, topics: Iterable[str]) -> dict[str, str]:
    """Return the ids of those topics that are there. Operator's process; one request. Raises as ``look``."""
    with closing(Admin(KafkaOptions.of_source(source.options))) as admin:
        found = admin.patiently(
            PATIENCE_S, "topics of the source", lambda: _topics(admin, {each: {} for each in topics})
        )
    return {name: topic.id for name, topic in found.items() if topic is not None}


def keeps_s(source: Source, at: Offsets) -> tuple[str, float] | None:
    """Name the topic with rows behind these offsets that keeps rows for the shortest time, and tell it in seconds.

    None where no topic has any, or none may be asked. Operator's process; a few requests. Raises as ``look``.
    """
    from onceonly.sinks.kafka.records.refusals import topic_setting
    from onceonly.sinks.kafka.wire.requests import LATEST

    standing, found = Standing(at), []
    with closing(Admin(KafkaOptions.of_source(source.options))) as admin:
        topics = admin.patiently(PATIENCE_S, "topics of the source", lambda: _topics(admin, at))
        there = {name: topic for name, topic in topics.items() if topic is not None}
        latest = admin.patiently(PATIENCE_S, "offsets of the source", _asking(admin, there, standing, LATEST))
        for topic, ends in latest.items():
            if all(end <= at[topic][partition] for partition, end in ends.items()):
                continue
            policy, kept_ms = (
                admin.patiently(
                    PATIENCE_S,
                    f"settings of topic {topic}",
                    partial(topic_setting, admin, topic, name),
                )
                for name in ("cleanup.policy", "retention.ms")
            )
            if "delete" in (policy or "delete") and kept_ms and int(kept_ms) >= 0:
                found.append((int(kept_ms) / 1000, topic))
    return (f"the topic {min(found)[1]}", min(found)[0]) if found else None


def _topics(admin: Admin, ends: Offsets) -> dict[str, _Topic | None]:
    """Ask for the ids and leaders of topics, None for one that is not there."""
    from onceonly.sinks.kafka.wire.requests import metadata

    found: dict[str, _Topic | None] = {}
    for topic in admin.send(metadata(sorted(ends))).topics:
        refuse_topic(topic.error_code, topic.name)
        if topic.error_code not in {NONE, UNKNOWN_TOPIC}:
            raise PutOffError(topic.error_code, f"topic {topic.name}")
        leaders = {each.partition_index: each.leader_id for each in topic.partitions}
        found[topic.name] = None if topic.error_code == UNKNOWN_TOPIC else _Topic(spelled_id(topic), leaders)
    return found


def _made_anew(
    standing: Standing,
    topics: Mapping[str, _Topic | None],
    known: Mapping[str, tuple[str, ...]],
    epoch: int,
) -> Iterable[Finding]:
    for name in sorted(standing.ends):
        topic = topics.get(name)
        if topic is None:
            yield Finding(
                f"The topic {name} of the Kafka source is not there, and chk-{epoch} reads it",
                next_step=f"see that the cluster is the right one; or {_NEW_CHECKPOINT}",
                stops=True,
            )
        elif name in known and topic.id not in known[name]:
            yield Finding(
                f"The topic {name} of the Kafka source is another one than the checkpoint stands on (id {topic.id}, "
                f"and it was {' or '.join(known[name])}): it was deleted and made anew, or another cluster answers. "
                f"Spark would go on at the old offsets and pass over the rows before them",
                next_step=f"see that the cluster is the right one; or {_NEW_CHECKPOINT}",
                stops=True,
            )


def _asking(
    admin: Admin, topics: Mapping[str, _Topic], standing: Standing, timestamp: int
) -> Callable[[], Offsets]:
    return lambda: _offsets(admin, topics, standing, timestamp)


def _offsets(admin: Admin, topics: Mapping[str, _Topic], standing: Standing, timestamp: int) -> Offsets:
    """Ask the leaders where partitions begin or end."""
    from onceonly.sinks.kafka.wire.requests import list_offsets

    found: Offsets = {}
    for leader, places in _by_leader(topics, standing).items():
        request = list_offsets(places, timestamp)
        for topic in admin.send(request, leader).topics:
            for each in topic.partitions:
                _require(each.error_code, topic.name, each.partition_index)
                found.setdefault(topic.name, {})[each.partition_index] = each.offset
    return found


def _by_leader(topics: Mapping[str, _Topic], standing: Standing) -> dict[int, dict[str, list[int]]]:
    """Deal out the partitions that the checkpoint knows and that are there."""
    found: dict[int, dict[str, list[int]]] = {}
    for name, topic in topics.items():
        for partition in standing.ends[name]:
            leader = topic.leaders.get(partition)
            if leader is None:
                continue
            if leader < 0:
                raise PutOffError(LEADERLESS, f"topic {name}, partition {partition}")
            found.setdefault(leader, {}).setdefault(name, []).append(partition)
    return found


def refuse_topic(code: int, topic: str) -> None:
    """Raise ``ConfigurationError`` where the code says that a permission on the topic is missing."""
    if code == TOPIC_FORBIDDEN:
        raise ConfigurationError(
            f"Kafka refuses access to topic {topic} (error {code}).",
            next_step=f"grant the client's user READ and DESCRIBE on topic {topic}",
        )


def _require(code: int, topic: str, partition: int) -> None:
    refuse_topic(code, topic)
    if code != NONE:
        raise PutOffError(code, f"topic {topic}, partition {partition}")


def _passed_by(source: Source, standing: Standing, earliest: Offsets, epoch: int) -> Iterable[Finding]:
    """Say which rows of the epoch retention has taken."""
    gone = {
        f"{topic} partition {partition}": min(first, standing.ends[topic][partition]) - start
        for topic, partitions in earliest.items()
        for partition, first in partitions.items()
        for start in [standing.starts.get(topic, {}).get(partition)]
        if start is not None and start < min(first, standing.ends[topic][partition])
    }
    if gone:
        go_on = "" if source.may_pass_over else ", with failOnDataLoss=false on the source"
        yield Finding(
            f"Retention has passed: chk-{epoch} begins at offsets that Kafka does not hold any more; up to "
            f"{n(sum(gone.values()), 'row is')} gone ({some_of(gone)})",
            next_step=f"have the rows written again from elsewhere, or do without them{go_on}",
            stops=True,
        )


def _cut_off(standing: Standing, latest: Offsets, epoch: int) -> Iterable[Finding]:
    """Say where a partition ends before what the checkpoint says of it."""
    short = [
        f"{topic} partition {partition} ends at {last}, and chk-{epoch} at {standing.ends[topic][partition]}"
        for topic, partitions in latest.items()
        for partition, last in partitions.items()
        if last < standing.ends[topic][partition]
    ]
    if short:
        yield Finding(
            f"Kafka holds less than the checkpoint stands on: {some_of(short)}. The topic was made anew, or the "
            "cluster went back",
            next_step=f"see that the cluster is the right one; or {_NEW_CHECKPOINT}",
            stops=True,
        )


def _uncommitted(admin: Admin, topics: Mapping[str, _Topic], standing: Standing) -> list[Finding]:
    """Say which topics have rows of transactions: of those that brokers still know the producers of."""
    from onceonly.sinks.kafka.wire.requests import DescribeProducersRequest

    found: set[str] = set()
    for leader, places in _by_leader(topics, standing).items():
        request = DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=name, partition_indexes=sorted(partitions))
                for name, partitions in places.items()
            ]
        )
        for topic in admin.send(request, leader).topics:
            for each in topic.partitions:
                _require(each.error_code, topic.name, each.partition_index)
                if any(map(_is_transactional, each.active_producers)):
                    found.add(topic.name)
    if not found:
        return []
    return [
        Finding(
            f"The Kafka source reads rows of transactions, also of those that were aborted: topic {some_of(found)} is "
            "written in transactions, and the source has not kafka.isolation.level=read_committed",
            next_step="set .option('kafka.isolation.level', 'read_committed') on the source",
        )
    ]


def _is_transactional(producer: Any) -> bool:  # noqa: ANN401  kafka-python is untyped
    # A coordinator has ended a transaction of its, or one is open.
    return bool(producer.coordinator_epoch >= 0 or producer.current_txn_start_offset >= 0)
