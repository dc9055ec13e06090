"""The auditor against a real broker with doctored topics: every lie that a topic can tell is named."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from onceonly_proof.auditor import Anomaly, KafkaReader, KafkaWatcher, audit, read_inputs
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onceonly_proof.auditor import Input, Verdict

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]


class Topics:
    """An input topic with twelve rows in two partitions, and an output topic to doctor."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self.name = f"auditor-{uuid.uuid4().hex[:8]}"
        self.events, self.results = f"{self.name}-events", f"{self.name}-results"
        kafka.create_topic(self.events, partitions=2)
        kafka.create_topic(self.results, partitions=2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 2})
        for number in range(12):
            value = json.dumps({"id": number, "p": number % 2, "n": number // 2})
            producer.produce(self.events, value, b"%d" % (number % 4), partition=number % 2)
        assert producer.flush(30) == 0
        self.inputs = sorted(read_inputs(kafka.bootstrap_servers, self.events), key=lambda row: row.id)

    def write(self, rows: Iterable[Input], end: str = "commit") -> Producer:
        """Write rows to the output partition of their key in one transaction, and end it or leave it open."""
        producer = Producer({
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "transactional.id": f"{self.name}.{uuid.uuid4().hex}",
            "log_level": 2,
        })  # fmt: skip
        producer.init_transactions(30)
        producer.begin_transaction()
        for row in rows:
            producer.produce(self.results, row.value, row.key, partition=int(row.key or b"0") % 2)
        producer.flush(30)
        if end == "commit":
            producer.commit_transaction(30)
        if end == "abort":
            producer.abort_transaction(30)
        return producer

    def reader(self) -> KafkaReader:
        return KafkaReader(
            "kafka", self.kafka.bootstrap_servers, self.results, transactions=self.name, settle_s=1
        )

    def audit(self) -> Verdict:
        return audit(self.inputs, sinks={"kafka": self.reader()})

    def found(self) -> dict[Anomaly, int]:
        return {anomaly: count for anomaly, count in self.audit().anomalies.items() if count}


@pytest.fixture(scope="module")
def mortal() -> Iterator[EmbeddedKafka]:
    """A broker of our own: the last test kills it."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture
def topics(mortal: EmbeddedKafka) -> Topics:
    return Topics(mortal)


def test_what_went_in_is_read_with_its_place(topics: Topics) -> None:
    assert [row.id for row in topics.inputs] == list(range(12))
    fifth = topics.inputs[5]
    assert (fifth.partition, fifth.position, fifth.key) == (f"{topics.events}/1", 2, b"1")
    assert json.loads(fifth.value) == {"id": 5, "p": 1, "n": 2}


def test_committed_rows_are_clean_and_aborted_ones_do_not_count(topics: Topics) -> None:
    topics.write(topics.inputs[:5], end="abort")
    topics.write(topics.inputs[:5])
    topics.write(topics.inputs[5:])
    assert topics.audit().is_clean
    assert [row.value for row in topics.reader().uncommitted()] == []


def test_only_an_aborted_transaction_leaves_its_rows_lost(topics: Topics) -> None:
    topics.write(topics.inputs[:5], end="abort")
    topics.write(topics.inputs[5:])
    assert topics.found() == {Anomaly.LOST: 5}


def test_rows_behind_an_open_transaction_are_unseen_and_it_is_an_orphan(topics: Topics) -> None:
    topics.write(topics.inputs[:4])
    left_open = topics.write(
        [replace(topics.inputs[0], key=b"0"), replace(topics.inputs[0], key=b"1")], end=""
    )
    topics.write(topics.inputs[4:])
    assert topics.found() == {Anomaly.UNSEEN_AFTER_HEALING: 8, Anomaly.ORPHAN: 1}
    left_open.abort_transaction(30)
    assert topics.found() == {}


def test_of_a_compacted_topic_the_newest_record_of_each_key_counts(topics: Topics) -> None:
    def found() -> dict[Anomaly, int]:
        reader = KafkaReader("kafka", topics.kafka.bootstrap_servers, topics.results, newest_only=True)
        verdict = audit(topics.inputs, sinks={"kafka": reader}, upserts={"kafka"})
        return {anomaly: count for anomaly, count in verdict.anomalies.items() if count}

    topics.write(topics.inputs)
    assert found() == {}
    topics.write(topics.inputs[:1])
    assert found() == {Anomaly.STALE_UPSERT: 1}


def test_the_open_transactions_of_others_are_not_ours(topics: Topics) -> None:
    topics.write(topics.inputs)
    other = Topics(topics.kafka)
    left_open = other.write(other.inputs[:1], end="")
    assert topics.found() == {}
    left_open.abort_transaction(30)


def test_copies_and_foreign_rows_are_named(topics: Topics) -> None:
    first = topics.inputs[0]
    topics.write(topics.inputs)
    topics.write([first, replace(first, key=None), replace(first, value=b'{"id": 0}')])
    verdict = topics.audit()
    assert {anomaly: count for anomaly, count in verdict.anomalies.items() if count} == {
        Anomaly.DUPLICATED: 1,
        Anomaly.FOREIGN: 2,
    }
    assert any(f"{topics.results}/0@" in example for example in verdict.examples)


def test_rows_that_changed_places_are_out_of_order(topics: Topics) -> None:
    # All even ids go from one input partition to one output partition, the odd ones from the other to the other.
    zero, one, two, *rest = topics.inputs
    topics.write([two, one, zero, *rest])
    assert topics.found() == {Anomaly.OUT_OF_ORDER: 1}


def test_a_watcher_survives_the_death_of_the_broker_and_sees_each_row_once(
    mortal: EmbeddedKafka, topics: Topics
) -> None:
    with KafkaWatcher("kafka", mortal.bootstrap_servers, topics.results) as watcher:
        began = time.time()
        topics.write(topics.inputs[:6])
        assert watcher.wait_for(6, 30)
        topics.write(topics.inputs[6:9], end="abort")
        pid = mortal.pid
        assert pid is not None
        mortal.kill()
        killed = time.time()
        mortal.start()
        topics.write(topics.inputs[6:])
        assert watcher.wait_for(12, 60), watcher.trouble
        during = watcher.seen()
    assert len(during) == 12
    assert all(began <= (row.seen_s or 0) <= killed for row in during[:6])
    assert all((row.seen_s or 0) > killed for row in during[6:])
    verdict = audit(topics.inputs, sinks={"kafka": topics.reader()}, during=during)
    assert verdict.is_clean, verdict.examples
    # What it saw and nobody finds any more was an aborted read.
    vanished = [*during, replace(during[0], order=999)]
    told = audit(topics.inputs, sinks={"kafka": topics.reader()}, during=vanished)
    assert told.anomalies[Anomaly.ABORTED_READ] == 1
