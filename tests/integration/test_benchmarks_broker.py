"""What the benchmark counts and times is what a real broker has."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from benchmarks import data, reading
from benchmarks.figures import counts
from benchmarks.load import receiver, sender
from benchmarks.visible import Visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS = 2


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex}"
    kafka.create_topic(name, PARTITIONS, {"retention.ms": "-1"})
    yield name
    admin = kafka.admin()  # a name of its own: the answer needs the client alive
    admin.delete_topics([name])[name].result(30)


def fill(kafka: EmbeddedKafka, topic: str, records: int, first: int = 0) -> None:
    data.fill(
        kafka.bootstrap_servers,
        topic,
        records=records,
        first=first,
        partitions=PARTITIONS,
        record_bytes=100,
        compression="lz4",
    )


def counted(kafka: EmbeddedKafka, topic: str, records: int) -> tuple[int, int]:
    found = reading.read(kafka.bootstrap_servers, topic, PARTITIONS)
    return reading.missing_and_again(found, records)


def test_rows_that_a_contender_lost_or_doubled_are_counted(kafka: EmbeddedKafka, topic: str) -> None:
    fill(kafka, topic, 1_000)
    assert counted(kafka, topic, 1_000) == (0, 0)
    assert counted(kafka, topic, 1_007) == (7, 0)
    fill(kafka, topic, 5, first=990)
    assert counted(kafka, topic, 1_000) == (0, 5)


def test_rows_of_transactions_count_once_they_are_committed(kafka: EmbeddedKafka, topic: str) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic}
    producer: Producer = Producer(settings)
    producer.init_transactions(30)

    def write(first: int) -> None:
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce(topic, data.value(number, 0, b""), b"app000", partition=number % PARTITIONS)

    with Visible(kafka.admin(), topic, PARTITIONS) as visible:
        write(0)
        producer.commit_transaction(30)
        # Five rows and a marker in each partition.
        assert visible.wait_for(12, 30)
        write(10)
        producer.flush(30)
        producer.abort_transaction(30)
        write(10)
        producer.commit_transaction(30)
        assert visible.wait_for(36, 30)
    found = reading.read(kafka.bootstrap_servers, topic, PARTITIONS)
    assert reading.missing_and_again(found, 20) == (0, 0)
    rows = counts(visible.marks, [each.offsets for each in found]).tolist()
    assert rows[0] == 0
    assert rows[-1] == 20
    assert rows == sorted(rows)


def test_latency_is_from_the_time_at_which_a_record_was_due(kafka: EmbeddedKafka, topic: str) -> None:
    rate, total = 500, 500
    sent = sender.send(
        kafka.bootstrap_servers, topic, rate=rate, total=total, partitions=PARTITIONS, record_bytes=100
    )
    called: list[bool] = []
    # The reader comes when all has been sent: it is late, and the first record has waited longest.
    numbers, latencies_ms = receiver.receive(
        kafka.bootstrap_servers,
        topic,
        total=total,
        partitions=PARTITIONS,
        silence_s=10,
        ready=lambda: called.append(True),
    )
    assert sent["taken"] == total
    assert json.loads(json.dumps(sent)) == sent
    assert called == [True]
    assert sorted(numbers) == list(range(total))
    by_number = dict(zip(numbers, latencies_ms, strict=True))
    # Due a second apart, read within a moment.
    assert by_number[0] - by_number[total - 1] == pytest.approx(1000 * (total - 1) / rate, abs=300)
    assert by_number[0] > 900


def test_a_reader_that_waits_in_vain_ends(kafka: EmbeddedKafka, topic: str) -> None:
    fill(kafka, topic, 10)
    numbers, _ = receiver.receive(
        kafka.bootstrap_servers, topic, total=11, partitions=PARTITIONS, silence_s=1, ready=lambda: None
    )
    assert sorted(numbers) == list(range(10))
