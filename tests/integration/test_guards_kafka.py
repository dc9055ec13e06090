"""The guard of Spark's Kafka source against a real broker: what it finds of topics, and what it leaves alone."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from kafka_query import wait_for

from onceonly.guards import kafka as guard
from onceonly.guards.source import KAFKA, Source
from onceonly_proof.embedded.kafka_settings import FEEDER

if TYPE_CHECKING:
    from onceonly.guards.source import Finding
    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]


class Topic:
    """A topic of one partition, and a source that reads it."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self.name = f"g{uuid.uuid4().hex[:8]}"
        self.known: dict[str, tuple[str, ...]] = {}
        self.make()

    def make(self) -> None:
        self.kafka.create_topic(self.name, partitions=1)

    def delete(self) -> None:
        admin = self.kafka.admin()
        admin.delete_topics([self.name], operation_timeout=30)[self.name].result(30)
        wait_for(lambda: self.name not in admin.list_topics(timeout=10).topics, "the end of the topic")

    def feed(self, rows: int) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, **FEEDER})
        for number in range(rows):
            producer.produce(self.name, str(number))
        assert producer.flush(30) == 0

    def look(self, start: int, end: int, **options: str) -> list[Finding]:
        """Look as a query does that is to read from one offset to another, and keep what it learns."""
        source = Source(KAFKA, {"kafka.bootstrap.servers": self.kafka.bootstrap_servers, **options})
        standing = guard.Standing({self.name: {0: end}}, {self.name: {0: start}})
        ids, findings = guard.look(source, standing, self.known, epoch=7)
        self.known = self.known or {name: (found,) for name, found in ids.items()}
        return findings


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> Topic:
    return Topic(kafka)


def test_a_topic_that_is_as_it_was_gives_no_word(topic: Topic) -> None:
    topic.feed(20)
    assert topic.look(10, 20) == []
    topic.feed(5)
    assert topic.look(20, 25) == []


def test_a_topic_made_anew_is_named_though_it_is_longer(topic: Topic) -> None:
    topic.feed(10)
    assert topic.look(0, 10) == []
    former = topic.known[topic.name][0]
    topic.delete()
    gone = topic.look(10, 10)
    assert [each.stops for each in gone] == [True]
    assert f"The topic {topic.name} of the Kafka source is not there, and chk-7 reads it" in gone[0].what
    topic.make()
    topic.feed(30)
    found = topic.look(10, 30)
    assert [each.stops for each in found] == [True]
    assert f"{topic.name} of the Kafka source is another one" in found[0].what
    assert former in found[0].what
    # Whoever went on knows the new one.
    topic.known = {}
    topic.look(10, 30)
    assert topic.look(10, 30) == []


@pytest.mark.parametrize("lossy", [False, True])
def test_rows_that_retention_has_taken_are_counted(topic: Topic, *, lossy: bool) -> None:
    topic.feed(20)
    options = {"failondataloss": "false"} if lossy else {}
    told = [each for each in topic.look(5, 20, **options) if "failOnDataLoss=false" in each.what]
    assert [each.stops for each in told] == ([False] if lossy else [])
    admin = topic.kafka.admin()
    admin.delete_records([TopicPartition(topic.name, 0, 12)])[TopicPartition(topic.name, 0)].result(30)
    found = [each for each in topic.look(5, 20, **options) if each.stops]
    assert len(found) == 1
    assert f"up to 7 rows are gone ({topic.name} partition 0)" in found[0].what
    assert ("with failOnDataLoss=false on the source" in found[0].next_step) is not lossy
    assert [each for each in topic.look(12, 20, **options) if each.stops] == []


def test_a_topic_that_ends_before_the_checkpoint_does_is_named(topic: Topic) -> None:
    topic.feed(5)
    found = topic.look(5, 9)
    assert [each.stops for each in found] == [True]
    assert f"{topic.name} partition 0 ends at 5, and chk-7 at 9" in found[0].what


def test_what_follows_a_savepoint_is_seen_to_be_there(topic: Topic) -> None:
    source = Source(KAFKA, {"kafka.bootstrap.servers": topic.kafka.bootstrap_servers})
    topic.feed(20)
    topic.look(0, 20)

    def gone(at: int) -> str:
        found = guard.gone_since(source, {topic.name: {0: at}}, topic.known, epoch=7)
        return "; ".join(each.what for each in found)

    assert gone(5) == ""
    admin = topic.kafka.admin()
    admin.delete_records([TopicPartition(topic.name, 0, 12)])[TopicPartition(topic.name, 0)].result(30)
    assert gone(12) == ""
    assert f"{topic.name} partition 0 begins at 12, and chk-7 ends at 11" in gone(11)
    assert f"{topic.name} partition 0 ends at 20, and chk-7 at 21" in gone(21)
    topic.delete()
    assert "is not there" in gone(12)
    topic.make()
    topic.feed(30)
    assert "is another one than the checkpoint stands on" in gone(12)


@pytest.mark.parametrize("ending", ["open", "aborted"])
def test_a_source_that_reads_rows_of_aborted_transactions_is_told_so(topic: Topic, ending: str) -> None:
    producer = Producer({"bootstrap.servers": topic.kafka.bootstrap_servers, "transactional.id": topic.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic.name, "x")
    assert producer.flush(30) == 0
    if ending == "aborted":
        producer.abort_transaction(30)
    found = topic.look(0, 1)
    assert [each.stops for each in found] == [False]
    assert f"topic {topic.name} is written in transactions" in found[0].what
    assert "kafka.isolation.level" in found[0].next_step
    assert topic.look(0, 1, **{"kafka.isolation.level": "read_committed"}) == []
    if ending == "open":
        producer.abort_transaction(30)
