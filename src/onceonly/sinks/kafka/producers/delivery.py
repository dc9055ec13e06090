"""Batches on their way to the leaders of their partitions: each is acknowledged once, in order. Executor.

Of a partition, one batch is on the wire at a time. What becomes of it unknown, the same batch goes out again under the
same sequence number, and the broker that has it already says so. With a second one behind it, a broker that knows
nothing of the producer could take the second for the first (ADR 9).
"""

from __future__ import annotations

import random
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly.sinks.kafka.checks.topic_ids import spelled_id
from onceonly.sinks.kafka.producers.confluent import import_confluent
from onceonly.sinks.kafka.producers.failures import Failure
from onceonly.sinks.kafka.records import columns, record_batches
from onceonly.sinks.kafka.records.fields import Fields
from onceonly.sinks.kafka.wire.answers import (
    LEADERLESS,
    NONE,
    UNKNOWN_TOPIC,
    Meaning,
    NotAnsweredError,
    PutOffError,
    ThrottledError,
    meaning,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from onceonly.sinks.kafka.records.fields import Row
    from onceonly.sinks.kafka.records.record_batches import Codec, Identity, Sealed
    from onceonly.sinks.kafka.wire.admin import Admin

_PAUSE_S = 0.01
_PAUSE_S_MAX = 1.0
_NO_LEADER = -1
# A request of at most so many bytes: it carries one batch, however large that is.
_ONE_BATCH = 0


@dataclass(slots=True, eq=False)
class Batch:
    """Records that will share a batch."""

    count: int = 0
    size: int = 0
    """In bytes, as a bound from above."""
    records: list[bytes | pa.Buffer] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Queue:
    """What is on its way to one partition of a topic."""

    topic: str
    partition: int
    sequence: int = 0
    """Of the first row that is not acknowledged."""
    start: int = -1
    """The offset of the first row, once it is acknowledged; -1 where the broker does not tell."""
    waiting: deque[Batch] = field(default_factory=deque)
    sealed: Sealed | None = None
    """The first of them as it went out, while it may go out again."""
    is_on_the_wire: bool = False
    pause_s: float = _PAUSE_S
    not_before: float = 0.0
    trouble: int | None = None
    """The error that the first batch was put off for last; None where nobody answered."""


class Topics:
    """Who leads the partitions of topics, asked when first needed, and again after ``age_s``: partitions are added.

    Thread-safe: two threads at once may ask twice.
    """

    def __init__(self, admin: Admin, age_s: float) -> None:
        self._admin = admin
        self._age_s = age_s
        self._leaders: dict[str, tuple[float, list[int]]] = {}
        self._ids: dict[str, str] = {}
        self._forgotten = 0

    def leaders(self, name: str) -> Sequence[int]:
        """Return each partition's leader, -1 where there is none now.

        Raises ``NotAnsweredError`` for a topic that is not there (yet), ``KafkaException`` where access is refused.
        """
        asked, leaders = self._leaders.get(name, (-self._age_s, []))
        now = time.monotonic()
        if not leaders or now - asked >= self._age_s:
            forgotten = self._forgotten
            leaders = self._ask(name)
            # What another thread forgets meanwhile may be this answer.
            if self._forgotten == forgotten:
                self._leaders[name] = now, leaders
        return leaders

    def forget(self, name: str) -> None:
        """Ask again next time."""
        self._forgotten += 1
        self._leaders.pop(name, None)

    def id_of(self, name: str) -> str:
        """Return the id that the cluster drew for a topic when it was made, as last asked; empty where never."""
        return self._ids.get(name, "")

    def _ask(self, name: str) -> list[int]:
        from onceonly.sinks.kafka.wire.requests import metadata

        topic = self._admin.send(metadata([name], create=True)).topics[0]
        if topic.error_code != NONE:
            if meaning(topic.error_code) is Meaning.LATER:
                raise PutOffError(topic.error_code, f"topic {name}")
            kafka = import_confluent()
            raise kafka.KafkaException(kafka.KafkaError(topic.error_code))
        found = sorted(topic.partitions, key=lambda each: each.partition_index)
        if not found:
            raise PutOffError(UNKNOWN_TOPIC, f"topic {name}, which has no partitions")
        self._ids[name] = spelled_id(topic)
        return [each.leader_id for each in found]


@dataclass(frozen=True, slots=True)
class _Flight:
    """One request on the wire: a batch for each of some queues of one leader."""

    answer: Future[Any]
    queues: Sequence[Queue]


class Delivery:
    """Sends batches and takes their acknowledgements. One thread calls it, and things move on only while it does."""

    def __init__(
        self,
        admin: Admin,
        topics: Topics,
        *,
        transactional_id: str | None,
        by: Identity,
        codec: Codec,
        request_bytes: int,
        request_ms: int,
    ) -> None:
        self._admin = admin
        self._topics = topics
        self._transactional_id = transactional_id
        self._by = by
        self._codec = codec
        self._request_bytes = request_bytes
        self._request_ms = request_ms
        self._queues: dict[Queue, None] = {}
        self._flights: list[_Flight] = []
        self.failure: Failure | None = None
        """Why it has stopped: nothing more is sent after it."""
        self.bytes = 0
        """Of all batches that are not acknowledged."""
        self._silence = ""
        self.limits: dict[str, int] = {}
        """The most bytes that a batch for a topic should have, where one was too large."""

    def put(self, queue: Queue, batch: Batch) -> None:
        """Send a batch behind those of its queue, once ``move`` is called."""
        queue.waiting.append(batch)
        self._queues[queue] = None
        self.bytes += batch.size

    @property
    def rows(self) -> int:
        """How many rows are not acknowledged."""
        return sum(batch.count for queue in self._queues for batch in queue.waiting)

    def move(self) -> None:
        """Take the answers that are there, and send what may be sent. Never waits for an answer."""
        landed = [flight for flight in self._flights if flight.answer.done()]
        if landed:
            self._flights = [flight for flight in self._flights if flight not in landed]
            for flight in landed:
                self._land(flight)
        if self.failure is None:
            self._send()

    def wait(self, seconds: float, *others: Future[Any]) -> None:
        """Wait until an answer is there, one of ``others``, too, or something may be sent again; at most so long."""
        now = time.monotonic()
        pauses = [
            queue.not_before - now for queue in self._queues if queue.waiting and not queue.is_on_the_wire
        ]
        seconds = max(min([seconds, *pauses]), 0)
        answers = [*others, *(flight.answer for flight in self._flights)]
        if answers:
            wait(answers, seconds, FIRST_COMPLETED)
        else:
            time.sleep(seconds)

    def trouble(self) -> str:
        """Say why batches are not acknowledged: a broker's last word on one that was put off, or why none came."""
        kafka = import_confluent()
        for queue in self._queues:
            if queue.waiting and queue.trouble is not None:
                return f"{queue.topic}-{queue.partition}: {kafka.KafkaError(queue.trouble).str()}"
        return self._silence

    def give_up(self) -> None:
        """Note why the oldest batch was put off, when there is no more time for it."""
        for queue in self._queues:
            if queue.waiting and queue.trouble is not None:
                self._fail(queue, queue.trouble)

    def drop(self) -> None:
        """Send nothing more, and forget what is not acknowledged."""
        self._queues.clear()
        self._flights.clear()
        self.bytes = 0

    def _send(self) -> None:
        now = time.monotonic()
        by_topic: dict[str, list[Queue]] = {}
        for queue in self._queues:
            if queue.waiting and not queue.is_on_the_wire and queue.not_before <= now:
                by_topic.setdefault(queue.topic, []).append(queue)
        by_leader: dict[int, list[Queue]] = {}
        does_answer = True
        for topic, queues in by_topic.items():
            leaders: Sequence[int] = ()
            if does_answer:  # a look-up that is not answered may take half a minute, and so would the next
                try:
                    leaders = self._topics.leaders(topic)
                except NotAnsweredError as error:
                    does_answer, self._silence = False, str(error)
            for queue in queues:
                leader = leaders[queue.partition] if queue.partition < len(leaders) else _NO_LEADER
                if leader == _NO_LEADER:
                    self._put_off(queue, _why_none_leads(queue, leaders))
                else:
                    by_leader.setdefault(leader, []).append(queue)
        for leader, queues in by_leader.items():
            for some in self._shares(queues):
                self._post(leader, some)

    def _shares(self, queues: Iterable[Queue]) -> Iterator[list[Queue]]:
        """Deal queues out to requests that a broker takes."""
        share: list[Queue] = []
        size = 0
        for queue in queues:
            more = queue.waiting[0].size
            if share and size + more > self._request_bytes:
                yield share
                share, size = [], 0
            share.append(queue)
            size += more
        if share:
            yield share

    def _post(self, leader: int, queues: Sequence[Queue]) -> None:
        from onceonly.sinks.kafka.wire.produce import Produce

        sealed: dict[str, list[tuple[int, Sealed]]] = {}
        time_ms = int(time.time() * 1000)
        for queue in queues:
            batch = queue.waiting[0]
            if queue.sealed is None:
                queue.sealed = record_batches.seal(
                    batch.records,
                    batch.count,
                    by=self._by,
                    sequence=queue.sequence,
                    time_ms=time_ms,
                    codec=self._codec,
                    in_transaction=self._transactional_id is not None,
                )
            sealed.setdefault(queue.topic, []).append((queue.partition, queue.sealed))
        request = Produce(sealed, transactional_id=self._transactional_id, timeout_ms=self._request_ms)
        try:
            answer = self._admin.post(request, leader, self._request_ms)
        except NotAnsweredError as error:
            self._silence = str(error)
            for queue in queues:
                self._put_off(queue)
            return
        for queue in queues:
            queue.is_on_the_wire = True
        self._flights.append(_Flight(answer, queues))

    def _land(self, flight: _Flight) -> None:
        for queue in flight.queues:
            queue.is_on_the_wire = False
        try:
            answer = flight.answer.result()
        except ThrottledError as error:
            # Nothing was sent, and who leads is known: it is there, and holds us back.
            self._silence = str(error)
            for queue in flight.queues:
                queue.trouble = None
                self._wait_a_while(queue)
            return
        except NotAnsweredError as error:
            self._silence = str(error)
            # Arrived or not: the same batch again tells. A broker also hangs up on a request that is too large for it,
            # and does not say why: so until the attempt ends, each request carries one batch.
            self._request_bytes = _ONE_BATCH
            for queue in flight.queues:
                self._put_off(queue)
            return
        found = {
            (topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses
        }
        for queue in flight.queues:
            self._judge(queue, found[queue.topic, queue.partition])

    def _judge(self, queue: Queue, answer: Any) -> None:  # noqa: ANN401  kafka-python is untyped
        code: int = answer.error_code
        batch, found = queue.waiting[0], meaning(code)
        if found in {Meaning.DONE, Meaning.KNOWN}:
            queue.waiting.popleft()
            queue.sealed = None
            if not queue.sequence and queue.start < 0:
                queue.start = answer.base_offset
            queue.sequence = record_batches.next_sequence(queue.sequence, batch.count)
            queue.pause_s, queue.not_before, queue.trouble, self._silence = _PAUSE_S, 0.0, None, ""
            self.bytes -= batch.size
        elif found is Meaning.TOO_LARGE and batch.count > 1:
            self.limits[queue.topic] = min(self.limits.get(queue.topic, batch.size), batch.size // 2)
            queue.waiting.popleft()
            queue.sealed = None
            queue.waiting.extendleft(reversed(_halves(batch)))
        elif found in {Meaning.LATER, Meaning.ELSEWHERE}:
            self._put_off(queue, code)
        else:
            self._fail(queue, code, answer)

    def _put_off(self, queue: Queue, code: int | None = None) -> None:
        """Send its batch again a moment later, to whoever leads then."""
        self._topics.forget(queue.topic)
        queue.trouble = code
        self._wait_a_while(queue)

    def _wait_a_while(self, queue: Queue) -> None:
        queue.not_before = time.monotonic() + queue.pause_s * random.uniform(0.5, 1)  # noqa: S311  to spread load
        queue.pause_s = min(queue.pause_s * 2, _PAUSE_S_MAX)

    def _fail(self, queue: Queue, code: int, answer: Any = None) -> None:  # noqa: ANN401  kafka-python is untyped
        if self.failure is not None:
            return
        batch = queue.waiting[0]
        wrong = (answer is not None and answer.record_errors) or ()
        places = [each.batch_index for each in wrong]
        # Why, in the broker's words; brokers before 2.4 have none.
        words = [each.batch_index_error_message for each in wrong]
        said = next(filter(None, [*words, answer.error_message if answer is not None else None]), None)
        size = None
        if places or batch.count == 1:
            key, value, headers = _rows(batch)[places[0] if places else 0]
            size = columns.size((queue.topic, value, key, queue.partition, headers))
        error = import_confluent().KafkaError(code, said, fatal=meaning(code) is Meaning.ENDED)
        self.failure = Failure(error, size, is_alone=batch.count == 1)


def _why_none_leads(queue: Queue, leaders: Sequence[int]) -> int | None:
    """Return the error that says why a partition has no leader; None where nobody has told who leads."""
    if not leaders:
        return None
    return LEADERLESS if queue.partition < len(leaders) else UNKNOWN_TOPIC


def _rows(batch: Batch) -> list[Row]:
    return list(record_batches.rows(batch.records, batch.count))


def _halves(batch: Batch) -> list[Batch]:
    """Make two batches of one that the topic does not take: its ``max.message.bytes`` is lower than ours."""
    import numpy as np

    rows = _rows(batch)
    made = []
    for some in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        all_of_them = np.arange(len(some))
        found, bounds = record_batches.records(Fields.of_rows(some)).make(all_of_them, all_of_them)
        # The bound stays the sum of the two, so that what is counted adds up.
        size = batch.size * len(some) // len(rows)
        made.append(Batch(len(some), size, [found.slice(0, int(bounds[-1]))]))
    made[1].size = batch.size - made[0].size
    return made
