"""The requests that open a transaction and fill it, but for the rows: id, partitions and marker. Executor.

None of them ends it. The versions are those of clients that add partitions and groups by requests of their own; brokers
take them also where they know the newer way (KIP-890), and a commit by the newest EndTxn is right after them.
"""

from __future__ import annotations

import contextlib
import math
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.sinks.kafka.producers.confluent import import_confluent
from onceonly.sinks.kafka.records.record_batches import Identity
from onceonly.sinks.kafka.wire.admin import GROUP, TRANSACTION, says_later
from onceonly.sinks.kafka.wire.answers import (
    NONE,
    NOT_ATTEMPTED,
    STILL_ENDING,
    NotAnsweredError,
    PutOffError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from onceonly.sinks.kafka.wire.admin import Admin

# v6 is the broker's own two-phase commit, KIP-939.
_INIT_VERSION_MAX = 5
# From 4 on for brokers among themselves.
_ADD_PARTITIONS_VERSION_MAX = 3
_ADD_OFFSETS_VERSION_MAX = 3
# From 5 on, the group is added by the commit itself.
_COMMIT_OFFSET_VERSION_MAX = 4
_PARTITION = 0
ENDING_S = 5.0
"""How long it is waited for where there are other ids."""


class StillEndingError(Exception):
    """The last transaction of a transactional id does not come to its end. Never leaves the pool of ids."""


def init_request(transactional_id: str | None, timeout_ms: int) -> Any:  # noqa: ANN401  kafka-python is untyped
    """Return the InitProducerId that takes an id, whoever has it: it aborts what is open and outdates that producer.

    Without one, it asks for a producer id that nobody has.
    """
    from onceonly.sinks.kafka.wire.requests import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        max_version=_INIT_VERSION_MAX,
    )


def take_id(
    admin: Admin, transactional_id: str | None, timeout_ms: int, wait_s: float, ending_s: float = math.inf
) -> Identity:
    """Take a transactional id by InitProducerId; what is open on it is aborted. Without one, any broker is asked.

    Raises ``UnavailableError``; ``StillEndingError`` where its last transaction is being ended for ``ending_s``;
    ``KafkaException`` where the broker refuses.
    """
    request = init_request(transactional_id, timeout_ms)
    ending: list[float] = []

    def attempt() -> Identity:
        if transactional_id is None:
            answer = admin.send(request)
        else:
            answer = admin.to_coordinator(TRANSACTION, transactional_id, request)
        if answer.error_code == STILL_ENDING:
            ending.append(time.monotonic())
            if ending[-1] - ending[0] >= ending_s:
                raise StillEndingError(
                    f"The last transaction of {transactional_id} is being ended for more than {ending_s:g} s"
                )
        _judge(admin, TRANSACTION, transactional_id or "", answer.error_code)
        return Identity(answer.producer_id, answer.producer_epoch)

    thing = "a producer id" if transactional_id is None else f"transactional id {transactional_id}"
    return admin.patiently(wait_s, thing, attempt)


@dataclass(frozen=True, slots=True)
class Sent:
    """A request to a coordinator, and how its answer is read."""

    kind: int
    key: str
    request: Any
    code: Callable[[Any], int]
    answer: Future[Any]

    def is_taken(self) -> bool:
        """Say whether it is answered, and was carried out."""
        return (
            self.answer.done() and self.answer.exception() is None and self.code(self.answer.result()) == NONE
        )


class Transaction:
    """One transaction, from its first row to its marker. One thread.

    Its coordinator puts a request off while it carries out another one of the same transaction. Those sent over one
    connection come one after the other, so nobody waits for an answer before the next is sent.
    """

    def __init__(self, admin: Admin, transactional_id: str, identity: Identity, group: str) -> None:
        self._admin = admin
        self._id = transactional_id
        self._identity = identity
        self._group = group
        self._known: set[tuple[str, int]] = set()
        self._adding: list[Sent] = []
        self._adding_group: Sent | None = None

    def add(self, places: Collection[tuple[str, int]]) -> None:
        """Begin to add partitions that are not in it yet; ``until_added`` waits."""
        new = set(places) - self._known
        if new:
            self._adding.append(self._send(TRANSACTION, self._id, self._partitions(new), _code_of_partitions))
            self._known |= new

    def until_added(self, deadline: float) -> None:
        """Wait until what was added is in it; rows may be sent then, and not before.

        Raises ``UnavailableError``; ``KafkaException`` where the coordinator refuses.
        """
        adding, self._adding = self._adding, []
        for sent in adding:
            self._finish(sent, deadline)

    def wait_with(self, others: Collection[Future[Any]], deadline: float) -> None:
        """Wait until one of ``others`` is there, or ``until_added`` has less to wait for; not where it has nothing."""
        if self._adding:
            answers = [*others, *(sent.answer for sent in self._adding)]
            wait(answers, max(deadline - time.monotonic(), 0), FIRST_COMPLETED)

    def begin_offset(self, topic: str, offset: int, metadata: str, deadline: float) -> Sent:
        """Begin to put an offset of partition 0 of the group into it; ``end_offset`` waits.

        Raises as ``until_added`` does, if the group cannot be added.
        """
        from onceonly.sinks.kafka.wire.requests import TxnOffsetCommitRequest

        adding = self.add_group()
        self._finish(adding, deadline)
        in_topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        place = in_topic.TxnOffsetCommitRequestPartition(
            partition_index=_PARTITION,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata=metadata,
        )
        request = TxnOffsetCommitRequest(
            **self._by_group(),
            generation_id=-1,  # no member of the group
            member_id="",
            group_instance_id=None,
            topics=[in_topic(name=topic, partitions=[place])],
            max_version=_COMMIT_OFFSET_VERSION_MAX,
        )
        return self._send(GROUP, self._group, request, _code_of_offset)

    def end_offset(self, sent: Sent, deadline: float) -> None:
        """Wait until the offset is in it. Raises as ``until_added`` does."""
        self._finish(sent, deadline)

    def add_group(self) -> Sent:
        """Begin to add the group, once; ``begin_offset`` waits for it."""
        from onceonly.sinks.kafka.wire.requests import AddOffsetsToTxnRequest

        if self._adding_group is None:
            request = AddOffsetsToTxnRequest(**self._by_group(), max_version=_ADD_OFFSETS_VERSION_MAX)
            self._adding_group = self._send(TRANSACTION, self._id, request, _code_of_group)
        return self._adding_group

    def _by_group(self) -> dict[str, Any]:
        return {
            "transactional_id": self._id,
            "producer_id": self._identity.producer_id,
            "producer_epoch": self._identity.producer_epoch,
            "group_id": self._group,
        }

    def _send(self, kind: int, key: str, request: Any, code: Callable[[Any], int]) -> Sent:  # noqa: ANN401
        try:
            client = self._admin.client()
            answer = client.post(request, client.coordinator(kind, key))
        except NotAnsweredError as error:
            answer = Future()
            answer.set_exception(error)
        return Sent(kind, key, request, code, answer)

    def _finish(self, sent: Sent, deadline: float) -> None:
        """Wait for an answer; send it again while there is none. What is in it already may be added again."""
        with contextlib.suppress(NotAnsweredError):
            try:
                answer = sent.answer.result(max(deadline - time.monotonic(), 0))
            except (NotAnsweredError, TimeoutError):
                # Who does not answer may not be the coordinator any more.
                self._admin.forget(sent.kind, sent.key)
            else:
                _judge(self._admin, sent.kind, sent.key, sent.code(answer))
                return

        def attempt() -> None:
            answer = self._admin.to_coordinator(sent.kind, sent.key, sent.request)
            _judge(self._admin, sent.kind, sent.key, sent.code(answer))

        thing = f"{type(sent.request).__name__.removesuffix('Request')} of transaction {self._id}"
        self._admin.patiently(max(deadline - time.monotonic(), 0), thing, attempt)

    def _partitions(self, places: Collection[tuple[str, int]]) -> Any:  # noqa: ANN401  kafka-python is untyped
        from onceonly.sinks.kafka.wire.requests import AddPartitionsToTxnRequest

        of_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(places):
            of_topic.setdefault(topic, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                for topic, partitions in of_topic.items()
            ],
            max_version=_ADD_PARTITIONS_VERSION_MAX,
        )


def _code_of_partitions(answer: Any) -> int:  # noqa: ANN401  kafka-python is untyped
    """Return the first error; one partition is not added without the others."""
    codes = (
        place.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for place in topic.results_by_partition
    )
    found = [code for code in codes if code != NONE]
    return min(found, key=lambda code: code == NOT_ATTEMPTED, default=NONE)


def _code_of_group(answer: Any) -> int:  # noqa: ANN401  kafka-python is untyped
    return int(answer.error_code)


def _code_of_offset(answer: Any) -> int:  # noqa: ANN401  kafka-python is untyped
    return int(answer.topics[0].partitions[0].error_code)


def _judge(admin: Admin, kind: int, key: str, code: int) -> None:
    if code == NONE:
        return
    if says_later(
        admin, kind, key, code
    ):  # also of a topic just created, which is not known everywhere at once
        raise PutOffError(code)
    kafka = import_confluent()
    raise kafka.KafkaException(kafka.KafkaError(code))
