"""Where a query stands in its Kafka topics, written into a consumer group that monitors of lag look at. No Spark.

Nobody consumes with the group: offsets are committed to it as tools do, without a membership. What stands there names
the query and the epoch, so that a group that two queries were given is noticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.guards.guard import reader_of
from onceonly.guards.kafka import offsets_of, refuse_topic
from onceonly.guards.source import KAFKA, some_of
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.wire.admin import GROUP, Admin, import_kafka, says_later
from onceonly.sinks.kafka.wire.answers import (
    GROUP_FORBIDDEN,
    NONE,
    UNKNOWN_TOPIC,
    PutOffError,
    refuse_forbidden,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onceonly.guards.source import Source

PATIENCE_S = 10.0
RETENTION_S = 604_800.0
"""Kafka's default of ``offsets.retention.minutes``: for so long an offset stays after its own last commit."""

_NO_OFFSET = -1
_HAS_MEMBERS = frozenset({22, 25, 27, 69, 82, 113})
"""What a coordinator answers somebody who is no member, where there are members: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND (of a group of another kind), FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH."""
_WORDS = re.compile(r"onceonly (?P<query>\S+) chk-(?P<epoch>\d+)")

_OWN = "name a group of its own in onceonly.lag.group"
_DELETE = "delete the group (kafka-consumer-groups.sh --delete)"

Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class Stood:
    """What a group has of a partition: the offset of the next row, and the words beside it."""

    at: int
    words: str = ""


def words(query: str, epoch: int) -> str:
    """Return what is committed beside an offset. Pure."""
    return f"onceonly {query} chk-{epoch}"


def owner(found: Mapping[Place, Stood], query: str) -> str:
    """Return the words of another query that a group's offsets are of; empty where there is none. Pure."""
    others = (stood.words for _, stood in sorted(found.items()))
    return next((text for text in others if (made := _WORDS.match(text)) and made["query"] != query), "")


def require_own(found: Mapping[Place, Stood], query: str, *, is_start: bool) -> None:
    """See that the offsets of a group are this query's. Pure. Raises ``ConfigurationError``.

    At a start, offsets without our words alone are a consumer's, which would go on elsewhere if they were moved; later
    they are ours, set by somebody's hand.
    """
    other = owner(found, query)
    if other:
        raise ConfigurationError(
            f"the group shows the positions of another query ({other.removeprefix('onceonly ')})",
            next_step=f"{_OWN}; or, where that query is no more, {_DELETE}",
        )
    if is_start:
        refuse_strange(found)


def refuse_strange(found: Mapping[Place, Stood]) -> None:
    """See that offsets of a group have our words, or there are none. Pure. Raises ``ConfigurationError``."""
    if found and not any(_WORDS.match(stood.words) for stood in found.values()):
        (topic, partition), stood = min(found.items())
        raise ConfigurationError(
            f"the group has offsets that onceonly did not put there ({topic}-{partition} at {stood.at}): a consumer "
            "would go on elsewhere if they were moved",
            next_step=f"{_OWN}; or, where no consumer needs them any more, {_DELETE}",
        )


def positions(sources: Sequence[Source], barrier: Sequence[str]) -> list[tuple[Source, dict[Place, int]]]:
    """Return where an epoch ends in the topics of each cluster: the lowest, where several sources read one. Pure.

    Raises ``ConfigurationError`` where no source is Kafka's, or it cannot be told which of several reads a topic.
    """
    of_kafka = [each for each in sources if each.format == KAFKA]
    if not of_kafka:
        raise ConfigurationError(
            "none of the query's sources is Kafka's, so no group can show how far it is",
            next_step="leave onceonly.lag.group out; onceonly checkpoints show has the ranges of an epoch",
        )
    found: dict[str, tuple[Source, dict[Place, int]]] = {}
    for ends in filter(None, map(offsets_of, barrier)):
        source = reader_of(of_kafka, ends)
        if source is None:
            raise ConfigurationError(
                f"sources of several clusters may read the topics {some_of(ends)}, so no group can show where they are",
                next_step="name the topics of each source by subscribe or assign",
            )
        places = found.setdefault(source.options.get("kafka.bootstrap.servers", ""), (source, {}))[1]
        for topic, partitions in ends.items():
            for partition, at in partitions.items():
                places[topic, partition] = min(at, places.get((topic, partition), at))
    return list(found.values())


def due(now: Mapping[Place, int], before: Mapping[Place, Stood], *, back: bool) -> dict[Place, int]:
    """Return what is to be committed: all that does not go back, so that idle partitions do not expire. Pure.

    With ``back`` the checkpoint is known to stand where it says, and what is ahead of it goes back, too.
    """
    return {place: at for place, at in now.items() if back or place not in before or at >= before[place].at}


class Group:
    """A consumer group on one cluster. Driver, one thread. Raises as its calls say; ``close`` it.

    To make one raises ``SetupError`` where kafka-python is missing.
    """

    def __init__(self, name: str, source: Source) -> None:
        import_kafka()
        self._name = name
        self._admin = Admin(KafkaOptions.of_source(source.options))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._admin.close()

    def read(self, places: Iterable[Place] | None = None) -> dict[Place, Stood]:
        """Return what the group has of partitions, or of all. Raises ``ConfigurationError``, ``UnavailableError``."""
        from onceonly.sinks.kafka.wire.requests import OffsetFetchRequest

        in_group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = (
            None
            if places is None
            else [
                in_group.OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)
                for topic, partitions in _by_topic(places).items()
            ]
        )
        request = OffsetFetchRequest(
            groups=[in_group(group_id=self._name, topics=topics)],
            require_stable=False,
            min_version=8,
            max_version=8,  # with 10, topics are named by id
        )

        def attempt() -> dict[Place, Stood]:
            answer = self._admin.to_coordinator(GROUP, self._name, request).groups[0]
            self._judge(answer.error_code)
            found: dict[Place, Stood] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    self._judge(each.error_code, topic.name)
                    if each.committed_offset != _NO_OFFSET:
                        found[topic.name, each.partition_index] = Stood(
                            each.committed_offset, (each.metadata or "").rstrip("\0")
                        )
            return found

        return self._admin.patiently(PATIENCE_S, f"the offsets of group {self._name}", attempt)

    def commit(self, places: Mapping[Place, int], text: str) -> None:
        """Commit offsets, as no member of the group. Idempotent.

        Raises ``ConfigurationError`` where the group has members, by their names, or a permission is missing;
        ``UnavailableError`` in bounded time.
        """
        from onceonly.sinks.kafka.wire.requests import OffsetCommitRequest

        in_topic = OffsetCommitRequest.OffsetCommitRequestTopic
        request = OffsetCommitRequest(
            group_id=self._name,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=[
                in_topic(
                    name=topic,
                    partitions=[
                        in_topic.OffsetCommitRequestPartition(
                            partition_index=each,
                            committed_offset=places[topic, each],
                            committed_leader_epoch=-1,
                            committed_metadata=text,
                        )
                        for each in partitions
                    ],
                )
                for topic, partitions in _by_topic(places).items()
            ],
            max_version=8,
        )

        def attempt() -> None:
            for topic in self._admin.to_coordinator(GROUP, self._name, request).topics:
                for each in topic.partitions:
                    self._judge(each.error_code, topic.name)

        self._admin.patiently(PATIENCE_S, f"offsets of group {self._name}", attempt)

    def retention_s(self) -> float:
        """Return for how long an offset stays: the broker's setting, Kafka's default where this user may not see it."""
        from onceonly.sinks.kafka.checks.target import broker_settings

        told = broker_settings(self._admin, "offsets.retention.minutes").get("offsets.retention.minutes")
        return 60 * float(told) if told else RETENTION_S

    def _judge(self, code: int, topic: str = "") -> None:
        if code == NONE:
            return
        if code in _HAS_MEMBERS:
            raise ConfigurationError(
                f"the group {self._name} has members ({self._named()}), and Kafka takes its offsets from them alone",
                next_step="name a group of its own in onceonly.lag.group, or stop those consumers",
            )
        if code == GROUP_FORBIDDEN:
            refuse_forbidden(code, self._name)
        refuse_topic(code, topic)
        if code == UNKNOWN_TOPIC or says_later(self._admin, GROUP, self._name, code):
            raise PutOffError(code, f"topic {topic}" if topic else "")
        raise UnavailableError(
            f"Kafka answers error {code} for the group {self._name}",
            next_step="look into the broker's log",
        )

    def members(self) -> str:
        """Name who is in the group; empty where nobody is, or the broker does not say. Raises ``UnavailableError``."""
        return self._admin.patiently(PATIENCE_S, f"the group {self._name}", self._members)

    def _named(self) -> str:
        return self._members() or "Kafka does not say who"

    def _members(self) -> str:
        from onceonly.sinks.kafka.wire.requests import DescribeGroupsRequest

        request = DescribeGroupsRequest(
            groups=[self._name], include_authorized_operations=False, min_version=3, max_version=5
        )
        [answer] = self._admin.to_coordinator(GROUP, self._name, request).groups
        if says_later(self._admin, GROUP, self._name, answer.error_code):
            raise PutOffError(answer.error_code)
        return some_of({f"{each.client_id} at {each.client_host.lstrip('/')}" for each in answer.members})


def post(
    group: Group,
    now: Mapping[Place, int],
    before: Mapping[Place, Stood],
    *,
    query: str,
    epoch: int,
    back: bool,
) -> dict[Place, int]:
    """Bring a group to where the query stands, from what it had ``before``; return what was committed.

    Raises as ``Group.commit``.
    """
    chosen = due(now, before, back=back)
    if chosen:
        group.commit(chosen, words(query, epoch))
    return chosen


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return found
