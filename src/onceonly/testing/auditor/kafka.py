"""Reading what a sink has made visible, as any consumer would. Shares no code with any sink.

For proofs: a plain ``read_committed`` consumer that reads a topic from its beginning to the end that existed
when it began, and a look at the broker for transactions that somebody left open.
"""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def plain_consumer(servers: str, topic: str, *, appear_s: float = 5.0) -> Consumer:
    """Make a ``read_committed`` consumer that stands at the beginning of every partition. Caller closes it.

    A broker may deny a topic for a moment after it has created it, so the topic has ``appear_s`` to appear.

    Raises:
        UnavailableError: no broker, or no such topic.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": servers,
        "group.id": f"audit-{uuid.uuid4().hex}",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 2,  # what matters comes as an error of the call
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
        consumer.assign([TopicPartition(topic, number, 0) for number in metadata.partitions])
        on_error.pop_all()
    return consumer


def read_committed(servers: str, topic: str, *, timeout_s: float = 120.0) -> Iterator[Record]:
    """Give every visible record, partition by partition in the order of offsets.

    Anywhere; reads only. Under ``read_committed`` a partition ends before its first open transaction.

    Raises:
        UnavailableError: the topic could not be read to its end in time.
    """
    consumer = plain_consumer(servers, topic)
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
                record = _record(message, topic)
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


def _record(message: Message, topic: str) -> Record | None:
    """Give the record, or None for the end of a partition."""
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
