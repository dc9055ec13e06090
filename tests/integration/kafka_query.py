"""One query with one Kafka sink, without Spark, and a plain reader of its topic."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING

import confluent_kafka
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from onceonly.model import Guarantee, Handle, RetryLater
from onceonly.ports import QueryContext, WriteContext
from onceonly.sinks.kafka import KafkaSink
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.wire.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly_proof.embedded.kafka import EmbeddedKafka
    from onceonly_proof.embedded.kafka_cluster import EmbeddedCluster

# Time-outs are looked for often, so that a test that waits for one is short.
PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
# Another broker has the partitions of a dead one some ten seconds later, and on a busy machine later still.
_BOUND_S = 60.0


class Query:
    """One query with one Kafka sink on a topic of its own."""

    def __init__(self, broker: EmbeddedKafka | EmbeddedCluster, **options: str) -> None:
        self.id = uuid.uuid4().hex
        self.topic = f"t-{self.id}"
        broker.create_topic(self.topic, partitions=2)
        self.options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": self.topic,
            **options,
        }
        self.sink = KafkaSink(self.options)
        self.context = QueryContext(query=self.id, sink="kafka", guarantee=Guarantee.EXACTLY_ONCE)
        self.facts = dict(self.sink.check(self.context))

    def attempt(self, epoch: int = 0, slot: int = 0, run: str = "run") -> WriteContext:
        return WriteContext(
            query=self.id,
            sink="kafka",
            run=run,
            epoch=epoch,
            plan=f"plan-{epoch}",
            slot=slot,
            attempt=uuid.uuid4().hex,
            guarantee=self.context.guarantee,
            facts=self.facts,
        )

    def prepare(self, *values: str, epoch: int = 0, slot: int = 0, run: str = "run") -> Handle:
        transaction = self.sink.begin_transaction(self.attempt(epoch, slot, run))
        self.sink.write(transaction, pa.RecordBatch.from_pydict({"value": list(values)}))
        handle = self.sink.pre_commit(transaction)
        assert handle is not None
        return Handle(transaction=handle.transaction, data=json.loads(json.dumps(dict(handle.data))))

    def commit(self, handle: Handle) -> object:
        """As the runtime does: RetryLater is tried again, within bounds."""
        deadline = time.monotonic() + _BOUND_S
        while isinstance(outcome := self.sink.commit(handle), RetryLater) and time.monotonic() < deadline:
            time.sleep(0.01)
        return outcome

    def write(self, *values: str) -> None:
        """Write by a producer that knows nothing of transactions, one value to a partition."""
        producer = Producer({"bootstrap.servers": self.options["kafka.bootstrap.servers"]})
        for partition, value in enumerate(values):
            producer.produce(self.topic, value.encode(), partition=partition)
        assert producer.flush(30) == 0

    def consumer(self, isolation: str) -> Consumer:
        """Return a reader of the whole topic, which says where it comes to the end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.options["kafka.bootstrap.servers"],
                "group.id": uuid.uuid4().hex,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(self.topic, number, 0) for number in (0, 1)])
        return consumer

    def read(self, isolation: str = "read_committed") -> list[str]:
        consumer = self.consumer(isolation)
        values: list[str] = []
        ended = 0
        deadline = time.monotonic() + 30
        while ended < 2 and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                ended += 1
            else:
                values.append((message.value() or b"").decode())
        consumer.close()
        return sorted(values)

    def until_read(self, *values: str) -> None:
        """Markers of a commit reach the data partitions milliseconds after its answer."""
        wait_for(lambda: self.read() == sorted(values), f"{values} in {self.topic}")

    def open_transactions(self) -> list[str]:
        return [leftover.transaction for leftover in self.sink.recover(self.context)]

    def admin(self) -> Admin:
        return Admin(KafkaOptions.parse(self.options))


def wait_for(condition: Callable[[], object], what: str, seconds: float = _BOUND_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
