"""Reading Kafka as any consumer would: what is visible, what is kept back, what is left open, what went in.

A plain ``read_committed`` consumer reads a topic from its beginning to the end that existed when it began, and
a look at the broker tells of transactions that somebody left open. Shares no code with any sink.
"""

from __future__ import annotations

import json
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly_proof.auditor.world import Input, Orphan, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from confluent_kafka import Consumer, Message

_POLL_S = 1.0
_BATCH = 2_000
_SETTLE_POLL_S = 0.1
# KIP-664's names of the states in which nothing is open.
_ENDED = {"Empty", "CompleteCommit", "CompleteAbort", "Dead"}
_NEXT_STEP = "see whether the broker is up and the topic is there, then run the audit again"


@dataclass(frozen=True, slots=True)
class Record:
    """One visible record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class KafkaReader:
    """Reads one topic that a sink writes, as ``read_committed``; fulfils ``Reader`` and ``LooksBehind``.

    It also tells what lies beyond the last stable offset, and which transactions are open. ``transactions`` is how the
    transactional ids of the query begin: with the prefix alone, those of other queries count, too.
    With ``newest_only`` a partition's last record of each key counts alone, as after compaction: for an upsert sink.
    """

    def __init__(
        self,
        sink: str,
        servers: str,
        topic: str,
        *,
        transactions: str = "",
        newest_only: bool = False,
        settle_s: float = 5.0,
    ) -> None:
        self._sink = sink
        self._servers = servers
        self._topic = topic
        self._transactions = transactions
        self._newest_only = newest_only
        self._settle_s = settle_s

    def rows(self) -> Iterator[Seen]:
        records: Iterable[Record] = read_committed(self._servers, self._topic)
        if self._newest_only:
            records = {(record.partition, record.key): record for record in records}.values()
        for record in records:
            yield seen(self._sink, self._topic, record)

    def uncommitted(self) -> Iterator[Seen]:
        """Yield what lies beyond the last stable offset of each partition, committed or not."""
        from confluent_kafka import TopicPartition

        consumer = plain_consumer(self._servers, self._topic)
        try:
            starts: dict[int, int] = {}
            for number in sorted(each.partition for each in consumer.assignment()):
                # For a read_committed consumer the high mark is the last stable offset.
                marks = consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=30)
                if marks is None:
                    raise UnavailableError(
                        f"topic {self._topic}: the end of partition {number} is not told",
                        next_step=_NEXT_STEP,
                    )
                starts[number] = marks[1]
        finally:
            consumer.close()
        for record in _read(self._servers, self._topic, isolation="read_uncommitted", starts=starts):
            yield seen(self._sink, self._topic, record)

    def orphans(self) -> list[Orphan]:
        """Return the open transactions of the query; waits up to ``settle_s`` for those that are just being ended."""
        names = open_transactions(self._servers, self._transactions, settle_s=self._settle_s)
        return [Orphan(self._sink, f"open transaction {name}") for name in names]

    def close(self) -> None:
        """Nothing is kept open between calls."""


def read_inputs(servers: str, topic: str) -> list[Input]:
    """Return what went into a query that reads a topic: every committed record, by its place in the topic.

    An input's id is the number ``id`` in its JSON text, else a running number. Anywhere; reads only.

    Raises:
        UnavailableError: the topic could not be read to its end in time.
    """
    return [
        Input(
            _id(record.value, number), f"{topic}/{record.partition}", record.offset, record.key, record.value
        )
        for number, record in enumerate(read_committed(servers, topic))
        if record.value is not None
    ]


def seen(sink: str, topic: str, record: Record, *, seen_s: float | None = None) -> Seen:
    """Return a record as a row that was seen."""
    place = f"{topic}/{record.partition}"
    return Seen(sink, record.key, record.value, place, record.offset, seen_s=seen_s)


def _id(value: bytes, number: int) -> int:
    try:
        fields = json.loads(value)
    except ValueError:
        return number
    found = fields.get("id") if isinstance(fields, dict) else None
    return found if isinstance(found, int) else number


# --- plain reading ----------------------------------------------------------------------------------------


def plain_consumer(
    servers: str,
    topic: str,
    *,
    appear_s: float = 5.0,
    isolation: str = "read_committed",
    starts: Mapping[int, int] | None = None,
) -> Consumer:
    """Make a consumer that stands at the beginning of every partition, or at ``starts``. Caller closes it.

    A broker may deny a topic for a moment after it has created it, so the topic has ``appear_s`` to appear.

    Raises:
        UnavailableError: no broker, or no such topic.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": servers,
        "group.id": f"audit-{uuid.uuid4().hex}",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 2,  # what matters comes as an error of the call
        # Brokers die and come back under our eyes: look again soon, or times seen would be the client's pauses.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "fetch.error.backoff.ms": 50,
        # By default it waits for a second whenever 100,000 records of a partition are in its queue.
        "fetch.queue.backoff.ms": 5,
    })  # fmt: skip
    with ExitStack() as on_error:
        on_error.callback(consumer.close)
        deadline = time.monotonic() + appear_s
        while True:
            try:
                metadata = consumer.list_topics(topic, timeout=10).topics[topic]
            except KafkaException as error:
                raise UnavailableError(f"topic {topic}: {error}", next_step=_NEXT_STEP) from error
            if metadata.error is None:
                break
            if time.monotonic() > deadline:
                raise UnavailableError(f"topic {topic}: {metadata.error}", next_step=_NEXT_STEP)
            time.sleep(_SETTLE_POLL_S)
        places = [
            TopicPartition(topic, number, (starts or {}).get(number, 0)) for number in metadata.partitions
        ]
        consumer.assign(places)
        on_error.pop_all()
    return consumer


def read_committed(servers: str, topic: str, *, timeout_s: float = 120.0) -> Iterator[Record]:
    """Return every visible record, partition by partition in the order of offsets.

    Anywhere; reads only. Under ``read_committed`` a partition ends before its first open transaction.

    Raises:
        UnavailableError: the topic could not be read to its end in time.
    """
    return _read(servers, topic, timeout_s=timeout_s)


def _read(
    servers: str,
    topic: str,
    *,
    isolation: str = "read_committed",
    starts: Mapping[int, int] | None = None,
    timeout_s: float = 120.0,
) -> Iterator[Record]:
    consumer = plain_consumer(servers, topic, isolation=isolation, starts=starts)
    try:
        unread = {each.partition for each in consumer.assignment()}
        deadline = time.monotonic() + timeout_s
        while unread:
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"topic {topic} could not be read to its end within {timeout_s:g} s; partitions "
                    f"{sorted(unread)} are left",
                    next_step=_NEXT_STEP,
                )
            for message in consumer.consume(_BATCH, _POLL_S):
                record = record_of(message, topic)
                if record is None:
                    unread.discard(_partition(message))
                else:
                    yield record
    finally:
        consumer.close()


def open_transactions(servers: str, prefix: str = "", *, settle_s: float = 5.0) -> list[str]:
    """Name the transactions, of all whose id begins with ``prefix``, that are not ended. Reads only.

    The broker completes an ended transaction a moment after it has answered, so the look is repeated for up
    to ``settle_s`` seconds before a transaction counts as open.
    """
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=servers)
    deadline = time.monotonic() + settle_s
    try:
        while True:
            listing = [each for found in admin.list_transactions().values() for each in found]
            names = sorted(
                str(each.transactional_id)
                for each in listing
                if each.transactional_id.startswith(prefix) and each.state.value not in _ENDED
            )
            if not names or time.monotonic() > deadline:
                return names
            time.sleep(_SETTLE_POLL_S)
    finally:
        admin.close()


def record_of(message: Message, topic: str) -> Record | None:
    """Return the record, or None for the end of a partition. Raises ``UnavailableError`` for any other event."""
    from confluent_kafka import KafkaError

    error = message.error()
    if error is None:
        offset = message.offset()
        assert offset is not None  # noqa: S101  a message without an error has one
        return Record(_partition(message), offset, message.key(), message.value())
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its documented name
        return None
    raise UnavailableError(f"topic {topic}: {error}", next_step=_NEXT_STEP)


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None  # noqa: S101  as above
    return partition
