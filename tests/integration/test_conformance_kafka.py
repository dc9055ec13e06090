"""The conformance suite for the Kafka sink, on one broker for all tests."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaAdminClient

from onceonly.sinks.kafka import KafkaSink
from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
SERVERS, PREFIX = "kafka.bootstrap.servers", "onceonly.transactional.id.prefix"
BYTES = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class TestKafka(SinkConformance):
    sink = KafkaSink
    every_pass = False

    @pytest.fixture(autouse=True)
    def broker(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka

    def options(self, folder: Path) -> dict[str, str]:
        name = f"t{uuid.uuid4().hex}"
        self.kafka.create_topic(name, partitions=2)
        # Nobody asks for this password: the broker has no users.
        secret = {"kafka.ssl.key.password": "5ecret-of-the-key"}
        return {SERVERS: self.kafka.bootstrap_servers, "topic": name, PREFIX: name, **secret}

    def batch(self, numbers: list[int]) -> pa.RecordBatch:
        """Values that are no text, and keys that are null."""
        rows = {"key": [None] * len(numbers), "value": [b"\xff\x00%d" % number for number in numbers]}
        return pa.RecordBatch.from_pydict(rows, schema=BYTES)

    def samples(self) -> Mapping[str, pa.RecordBatch]:
        values = [b"", b"\x00", b"\xff" * 1000, "Ünïcödé".encode(), None]
        return {"bytes": pa.RecordBatch.from_pydict({"key": values[::-1], "value": values}, schema=BYTES)}

    def visible(self, options: Mapping[str, str]) -> list[tuple[bytes | None, ...]]:
        return read_committed(options)

    def orphans(self, options: Mapping[str, str]) -> Iterator[str]:
        admin = KafkaAdminClient(bootstrap_servers=options[SERVERS])
        try:
            for found in admin.list_transactions(state_filters=["Ongoing"]).values():
                yield from (
                    each.transactional_id
                    for each in found
                    if each.transactional_id.startswith(options[PREFIX])
                )
        finally:
            admin.close()


def read_committed(options: Mapping[str, str]) -> list[tuple[bytes | None, ...]]:
    """Read key and value of all that is committed, as any consumer would."""
    consumer = Consumer(
        {
            "bootstrap.servers": options[SERVERS],
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(options["topic"], number, 0) for number in (0, 1)])
    rows: list[tuple[bytes | None, ...]] = []
    ended = 0
    deadline = time.monotonic() + 30
    while ended < 2:
        assert time.monotonic() < deadline, "the topic could not be read to its end"
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            rows.append((message.key(), message.value()))
            continue
        assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
        ended += 1
    consumer.close()
    return rows
