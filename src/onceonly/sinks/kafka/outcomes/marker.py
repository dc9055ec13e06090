"""The marker: a token inside the transaction, by which its outcome can be looked up afterwards.

It is the metadata of an offset that is committed *with* the transaction, to a group per (query, sink,
slot) and partition 0 of the marker topic. Kafka shows it once the transaction is committed, and never
if it was aborted; a *stable* read waits until no transaction on it is pending.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from onceonly import background
from onceonly.errors import UnavailableError
from onceonly.sinks.kafka.wire.admin import GROUP, says_later
from onceonly.sinks.kafka.wire.answers import NONE, UNSTABLE, PutOffError, refuse_forbidden

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.sinks.kafka.wire.admin import Admin

OFFSET = 0
"""What a marker commits beside its token: the end of a partition that stays empty, so it looks like nobody's lag."""

_PARTITION = 0
_SEED = "seed"
_STABLE_S = 2.0
_PLAIN_S = 10.0
_NO_OFFSET = -1
# An answer of some 150 KB; a broker looks all groups of a request up before it answers.
_GROUPS_A_REQUEST_MAX = 1000
_BROKERS_MAX = 8


def part(name: str) -> str:
    """Return a name such that it can stand between dots."""
    return name.replace("%", "%25").replace(".", "%2E")


def whole(part_: str) -> str:
    """Return the name that ``part`` was given."""
    return part_.replace("%2E", ".").replace("%25", "%")


def group_name(prefix: str, query: str, sink: str, slot: int) -> str:
    """Name the group that holds the marker of a slot."""
    return f"{prefix}.{part(query)}.{part(sink)}.{slot}"


def new_token(epoch: int) -> str:
    """Draw a token for a transaction of ``epoch``."""
    return f"{epoch}:{uuid.uuid4().hex}"


def epoch_of(token: str) -> int:
    """Return the epoch that its group has at least committed; -1 where the token tells none.

    A transaction's token tells its own epoch, a seed that of a former marker, which may be far older than its group's.
    """
    head = token.partition(":")[0]
    return int(head) if head.isdigit() else -1


def is_seed(token: str) -> bool:
    """Return whether a token was drawn outside any transaction, for a group that had none (``read_or_seed``)."""
    return _SEED in token.split(":")[:2]


def read(admin: Admin, group: str, topic: str, *, stable: bool, seconds: float = _PLAIN_S) -> str | None:
    """Look the token up: None where the group has none. Any process.

    Raises ``UnavailableError``: a stable read also if a transaction on the marker stays pending.
    """
    return admin.patiently(
        seconds, f"the marker of group {group}", lambda: _read(admin, group, topic, stable=stable)
    )


def read_once(admin: Admin, group: str, topic: str, *, stable: bool = True) -> str | None:
    """Look the token up by one read; None where there is none. Any process. Raises ``NotAnsweredError`` and others."""
    return _read(admin, group, topic, stable=stable)


def is_pending(admin: Admin, group: str, topic: str) -> bool:
    """Say whether a transaction that has not ended holds a marker of the group. Raises ``NotAnsweredError``."""
    answer = admin.to_coordinator(GROUP, group, _request([group], topic, stable=True)).groups[0]
    codes = [answer.error_code, *(each.error_code for entry in answer.topics for each in entry.partitions)]
    if UNSTABLE in codes:
        return True
    _token(admin, answer, topic)
    return False


def newest_epoch(admin: Admin, groups: str) -> int:
    """Return the newest epoch that a slot has committed by markers and seeds, -1 where none tells one.

    Markers of any topic count: which one they name may have changed. ``groups`` is what the names of the slots' groups
    begin with. Driver; two requests to each broker, which are asked side by side, more only for more than a thousand
    slots. What commits meanwhile may be missed. Raises ``UnavailableError``.
    """
    tokens = admin.patiently(_PLAIN_S, f"the markers of groups {groups}*", lambda: _all_tokens(admin, groups))
    return max(map(epoch_of, tokens), default=-1)


def read_or_seed(admin: Admin, group: str, topic: str) -> str:
    """Return the token that the next transaction will replace. Executor, before the transaction begins.

    A group without one gets a seed, so that "still the predecessor" can be shown later: ``seed:…``, or
    ``{epoch}:seed:…`` where markers of other topics tell an epoch. A read that is not stable in time gives what is
    visible: what is pending is a twin's, which no link names.
    """
    try:
        found = read(admin, group, topic, stable=True, seconds=_STABLE_S)
    except UnavailableError:
        found = read(admin, group, topic, stable=False)
    if found:
        return found
    # A seed is drawn, not computed: one that is written after the group was deleted must differ from
    # the one that a pending handle names. Of two twins the later seed stands; both read it back.
    seed = f"{_former(admin, group)}{_SEED}:{uuid.uuid4().hex}"
    admin.patiently(_PLAIN_S, f"the marker of group {group}", lambda: _write(admin, group, topic, seed))
    return read(admin, group, topic, stable=False) or seed


def _former(admin: Admin, group: str) -> str:
    """Return what a seed begins with: the newest epoch of other topics' markers; an older checkpoint is noticed by it.

    A commit that was answered a moment ago may not have come to the group yet, so a stable read is first tried.
    """

    def look(*, stable: bool) -> list[str]:
        answer = admin.to_coordinator(GROUP, group, _request([group], None, stable=stable)).groups[0]
        if any(each.error_code == UNSTABLE for entry in answer.topics for each in entry.partitions):
            raise PutOffError(UNSTABLE)
        return _tokens(admin, answer)

    what = f"the former marker of group {group}"
    try:
        tokens = admin.patiently(_STABLE_S, what, lambda: look(stable=True))
    except UnavailableError:
        tokens = admin.patiently(_PLAIN_S, what, lambda: look(stable=False))
    newest = max(map(epoch_of, tokens), default=-1)
    return f"{newest}:" if newest >= 0 else ""


def _all_tokens(admin: Admin, groups: str) -> list[str]:
    from onceonly.sinks.kafka.wire.requests import ListGroupsRequest, metadata

    topology = admin.send(metadata())

    def of_broker(node: int) -> list[str]:
        answer = admin.send(ListGroupsRequest(max_version=2), node)
        _judge(admin, groups, answer.error_code)
        names = [entry.group_id for entry in answer.groups]
        slots = [name for name in names if name.startswith(groups) and name.removeprefix(groups).isdecimal()]
        tokens: list[str] = []
        # A broker lists the groups that it coordinates, so it is asked for their markers, too. One whose groups
        # move meanwhile says so, and all are listed again.
        for first in range(0, len(slots), _GROUPS_A_REQUEST_MAX):
            some = slots[first : first + _GROUPS_A_REQUEST_MAX]
            for each in admin.send(_request(some, None, stable=False), node).groups:
                tokens += _tokens(admin, each)
        return tokens

    nodes = [broker.node_id for broker in topology.brokers]
    found = background.spread("onceonly-markers", of_broker, nodes, threads_max=_BROKERS_MAX)
    return [token for some in found for token in some]


def _read(admin: Admin, group: str, topic: str, *, stable: bool) -> str | None:
    answer = admin.to_coordinator(GROUP, group, _request([group], topic, stable=stable))
    return _token(admin, answer.groups[0], topic)


def _request(groups: Sequence[str], topic: str | None, *, stable: bool) -> Any:  # noqa: ANN401  untyped
    """Ask for the markers of groups: those that name a topic, or all."""
    from onceonly.sinks.kafka.wire.requests import OffsetFetchRequest

    in_group = OffsetFetchRequest.OffsetFetchRequestGroup
    markers = None
    if topic is not None:
        markers = [in_group.OffsetFetchRequestTopics(name=topic, partition_indexes=[_PARTITION])]
    return OffsetFetchRequest(
        groups=[in_group(group_id=group, topics=markers) for group in groups],
        require_stable=stable,
        min_version=8,
        max_version=8,  # with 10, topics are named by id
    )


def _token(admin: Admin, answer: Any, topic: str) -> str | None:  # noqa: ANN401  kafka-python is untyped
    """Return the token in the answer for one group."""
    partitions = [partition for entry in answer.topics for partition in entry.partitions]
    for code in (answer.error_code, *(partition.error_code for partition in partitions)):
        _judge(admin, answer.group_id, code, topic)
    offset = partitions[0].committed_offset if partitions else _NO_OFFSET
    # confluent-kafka sends the text with the NUL that ends it in C.
    return None if offset == _NO_OFFSET else partitions[0].metadata.rstrip("\0")


def _tokens(admin: Admin, answer: Any) -> list[str]:  # noqa: ANN401  kafka-python is untyped
    """Return all tokens in the answer for one group, whatever topics they name."""
    _judge(admin, answer.group_id, answer.error_code)
    return [
        partition.metadata.rstrip("\0")
        for entry in answer.topics
        for partition in entry.partitions
        if partition.error_code == NONE and partition.committed_offset != _NO_OFFSET
    ]


def _write(admin: Admin, group: str, topic: str, token: str) -> None:
    from onceonly.sinks.kafka.wire.requests import OffsetCommitRequest

    in_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = in_topic.OffsetCommitRequestPartition(
        partition_index=_PARTITION,
        committed_offset=OFFSET,
        committed_leader_epoch=-1,
        committed_metadata=token,
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,  # no member: as tools commit offsets
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[in_topic(name=topic, partitions=[partition])],
        max_version=8,
    )
    answer = admin.to_coordinator(GROUP, group, request)
    _judge(admin, group, answer.topics[0].partitions[0].error_code, topic)


def _judge(admin: Admin, group: str, code: int, topic: str = "") -> None:
    if code == NONE:
        return
    refuse_forbidden(code, group, topic=topic)
    if says_later(
        admin, GROUP, group, code
    ):  # also of a topic just created, which is not known everywhere at once
        raise PutOffError(code)
    raise UnavailableError(
        f"Kafka answers error {code} for the marker of group {group}.",
        next_step="look into the broker's log; the query may be restarted",
    )
