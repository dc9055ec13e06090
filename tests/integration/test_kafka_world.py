"""The world changes under a prepared transaction: topics, groups and ids go; a thousand are left behind."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewPartitions
from kafka_query import PROPERTIES, Query, wait_for

from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import CommitDelayedError, ConfigurationError, UnavailableError, WriteFailedError
from onceonly.executor.slot import run_slot
from onceonly.log import open_log
from onceonly.model import (
    AlreadyCommitted,
    Committed,
    Guarantee,
    Handle,
    Mode,
    Plan,
    RetryLater,
    Unknown,
    Vote,
)
from onceonly.sinks.kafka import KafkaSink
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.outcomes import marker
from onceonly.sinks.kafka.producers.pool import this_worker
from onceonly.sinks.kafka.wire.admin import TRANSACTION
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
ENDED = {Committed(), AlreadyCommitted()}
FORGETFUL = {
    **PROPERTIES,
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    # A producer that is made ready for the next epoch asks for its topic, and so would make one that was just deleted.
    with EmbeddedKafka(properties={**PROPERTIES, "auto.create.topics.enable": "false"}) as kafka:
        yield kafka


def recreate(broker: EmbeddedKafka, topic: str) -> None:
    admin = broker.admin()
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=5).topics, f"{topic} to be gone")
    broker.create_topic(topic, partitions=2)


def test_partitions_added_while_a_transaction_is_pending_change_nothing(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = query.prepare("a", "b")
    admin = broker.admin()
    admin.create_partitions([NewPartitions(query.topic, 4)])[query.topic].result(30)
    assert query.commit(handle) in ENDED
    query.until_read("a", "b")


def test_a_topic_deleted_and_made_anew_while_rows_are_pending_stops_the_query_before_anything_is_touched(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """The rows that were prepared are gone with the topic; a commit would say that they are there."""
    query = Query(broker)
    first = coordinator(query, tmp_path)
    plan = first.plan(0, run="one")
    prepared = vote(query, plan, "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query.sink, "commit", lambda handle: RetryLater(f"{handle.transaction}: not now"))
        with pytest.raises(CommitDelayedError):
            first.decide(plan, [prepared])
    recreate(broker, query.topic)
    query.sink = KafkaSink(query.options)
    with pytest.raises(ConfigurationError, match="topic_id"):
        coordinator(query, tmp_path).plan(0, run="two")
    assert prepared.handle is not None
    assert query.open_transactions() == [prepared.handle.transaction]


def test_a_topic_deleted_and_made_anew_before_the_decision_gives_the_epoch_up_and_runs_it_again(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """A commit would succeed, of rows that went with the former topic."""
    query = Query(broker)
    at_work = coordinator(query, tmp_path)
    plan = at_work.plan(0, run="one")
    prepared = vote(query, plan, "a")
    recreate(broker, query.topic)
    with pytest.raises(UnavailableError, match="topic_id was"):
        at_work.decide(plan, [prepared])
    at_work.abort(plan, [prepared], run="one")

    again = coordinator(query, tmp_path)
    plan = again.plan(0, run="two")
    assert plan.mode is Mode.RUN
    again.decide(plan, [vote(query, plan, "a")])
    query.until_read("a")
    assert query.open_transactions() == []


@pytest.mark.parametrize("restarted", [False, True], ids=["idle", "restarted"])
def test_a_topic_deleted_and_made_anew_while_nothing_was_pending_is_gone_on_with(
    broker: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, restarted: bool
) -> None:
    """The decisions that follow name the new topic, so what is pending for it is no other topic's."""
    query = Query(broker)
    at_work = coordinator(query, tmp_path)
    plan = at_work.plan(0, run="run")
    at_work.decide(plan, [vote(query, plan, "former")])
    query.until_read("former")

    recreate(broker, query.topic)
    if restarted:
        query.sink = KafkaSink(query.options)
        at_work = coordinator(query, tmp_path)
    plan = at_work.plan(1, run="run", continues=None if restarted else plan.id)
    assert [each.levelname for each in caplog.records if "topic_id was" in each.message] == ["WARNING"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query.sink, "commit", lambda handle: RetryLater(f"{handle.transaction}: not now"))
        with pytest.raises(CommitDelayedError):
            at_work.decide(plan, [vote(query, plan, "new")])

    query.sink = KafkaSink(query.options)
    assert coordinator(query, tmp_path).plan(1, run="two").mode is Mode.DRAIN
    query.until_read("new")
    assert query.open_transactions() == []


def test_a_topic_that_rows_name_and_that_was_made_anew_between_two_starts_is_told_once(
    broker: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(broker)
    other = f"{query.topic}-too"
    broker.create_topic(other)
    del query.options["topic"]
    rows = pa.RecordBatch.from_pydict({"topic": [query.topic, other], "value": ["a", "b"]})

    def start(epoch: int) -> list[str]:
        caplog.clear()
        query.sink = KafkaSink(query.options)
        query.facts = dict(query.sink.check(query.context))
        this_worker()._pools.clear()  # another start has other processes
        for here in this_worker()._reaches.values():
            here.topics._leaders.clear()
        at_work = coordinator(query, tmp_path)
        plan = at_work.plan(epoch, run=f"run-{epoch}")
        at_work.decide(plan, [vote(query, plan, rows)])
        return [each for each in caplog.messages if "made anew" in each]

    assert start(0) == []
    assert start(1) == []
    recreate(broker, query.topic)
    (told,) = start(2)
    assert f"topics {query.topic}." in told
    assert start(3) == []
    query.until_read("a", "a")


def test_after_a_topic_was_made_anew_with_fewer_partitions_one_attempt_fails_and_the_next_one_writes(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """Both are in one process, which knows the topic by then."""
    query = Query(broker, **{"kafka.delivery.timeout.ms": "2000"})
    admin = broker.admin()
    admin.create_partitions([NewPartitions(query.topic, 4)])[query.topic].result(30)
    at_work = coordinator(query, tmp_path)
    texts = [f"{number:02d}" for number in range(20)]
    keyed = pa.RecordBatch.from_pydict({"key": texts, "value": texts})
    plan = at_work.plan(0, run="run")
    at_work.decide(plan, [vote(query, plan, keyed)])
    recreate(broker, query.topic)
    plan = at_work.plan(1, run="run", continues=plan.id)
    with pytest.raises(UnavailableError, match="AddPartitionsToTxn"):
        vote(query, plan, keyed)
    at_work.decide(plan, [vote(query, plan, keyed)])
    query.until_read(*texts)
    assert query.open_transactions() == []


def vote(query: Query, plan: Plan, rows: str | pa.RecordBatch) -> Vote:
    context = replace(query.attempt(epoch=plan.epoch), plan=plan.id)
    batch = pa.RecordBatch.from_pydict({"value": [rows]}) if isinstance(rows, str) else rows
    return run_slot(query.sink, plan, context, [batch]).vote


def coordinator(query: Query, folder: Path) -> Coordinator:
    log = open_log(str(folder / "checkpoint"), query=query.id, create=True)
    made = Coordinator(log=log, actor="test", commit_timeout_s=0.1)
    made.join("kafka", Participant(sink=query.sink, guarantee=Guarantee.EXACTLY_ONCE))
    return made


def test_a_markers_topic_deleted_after_the_commit_leaves_the_outcome_to_its_rows(
    broker: EmbeddedKafka,
) -> None:
    topic = "markers-to-go"
    broker.create_topic(topic)
    query = Query(broker, **{"onceonly.marker.topic": topic})
    handle = query.prepare("a")
    assert query.commit(handle) in ENDED
    query.sink.abort(handle)  # outdated, so that only the marker can tell
    assert query.commit(handle) == AlreadyCommitted()
    admin = broker.admin()
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    broker.create_topic(topic)
    no_rows = Handle(transaction=handle.transaction, data={**handle.data, "written": ""})
    wait_for(lambda: isinstance(query.commit(no_rows), Unknown), "the marker to go with its topic")
    assert query.commit(handle) == AlreadyCommitted(), "its rows tell"
    assert query.read() == ["a"]


def test_a_transactional_id_that_the_broker_forgot_is_known_by_its_marker() -> None:
    with EmbeddedKafka(properties=FORGETFUL) as broker:
        query = Query(broker)
        handle = query.prepare("a")
        assert query.commit(handle) in ENDED
        wait_for(lambda: not known(query, handle.transaction), "the broker to forget the id")
        assert query.commit(handle) == AlreadyCommitted()
        # The producer that lay ready is forgotten as well; its attempt votes abort, and the next one takes another.
        for _ in range(3):
            try:
                following = query.prepare("b", epoch=1)
            except WriteFailedError:
                continue
            break
        assert query.commit(following) in ENDED
        query.until_read("a", "b")


def known(query: Query, transaction: str) -> bool:
    from kafka.protocol.admin.transactions import DescribeTransactionsRequest

    request = DescribeTransactionsRequest(transactional_ids=[transaction], max_version=0)
    state = query.admin().to_coordinator(TRANSACTION, transaction, request).transaction_states[0]
    return int(state.error_code) == 0


ABANDONED = 1_000
# The promise is 5 s. 3.3 s were measured (median of 5, the worst 4.4; load 9 on two cores); the rest is for slower
# machines.
AT_THE_END_WITHIN_S = 5.0
ALLOWANCE = 4


def abandon(query: Query, number: int) -> None:
    """Leave what a dead worker leaves: an open transaction under a name of this query's, with a row in it.

    And the marker of a slot, as of a query that has had as many slots.
    """
    from kafka.protocol.producer import ProduceRequest
    from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest, InitProducerIdRequest
    from kafka.record.default_records import DefaultRecordBatchBuilder

    admin = this_worker().reach(KafkaOptions.parse(query.options)).admin
    name = f"onceonly.{query.id}.kafka.dead.worker.{number}"
    got = admin.patiently(
        30, "a producer id", lambda: admin.to_coordinator(
            TRANSACTION, name, InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=600_000, producer_id=-1, producer_epoch=-1, max_version=4,
            ),
        ),
    )  # fmt: skip
    in_topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    added = admin.to_coordinator(TRANSACTION, name, AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name, v3_and_below_producer_id=got.producer_id,
        v3_and_below_producer_epoch=got.producer_epoch,
        v3_and_below_topics=[in_topic(name=query.topic, partitions=[number % 2])], max_version=3,
    ))  # fmt: skip
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    rows = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=True, producer_id=got.producer_id,
        producer_epoch=got.producer_epoch, base_sequence=0, batch_size=1_000,
    )  # fmt: skip
    rows.append(0, timestamp=round(time.time() * 1000), key=None, value=b"never", headers=[])
    to_topic = ProduceRequest.TopicProduceData
    batch = to_topic.PartitionProduceData(index=number % 2, records=bytes(rows.build()))
    written = admin.send(ProduceRequest(
        transactional_id=name, acks=-1, timeout_ms=10_000, max_version=11,
        topic_data=[to_topic(name=query.topic, partition_data=[batch])],
    ))  # fmt: skip
    assert written.responses[0].partition_responses[0].error_code == 0
    marker.read_or_seed(admin, marker.group_name("onceonly", query.id, "kafka", number), query.topic)


class Reader:
    """A ``read_committed`` reader that reads on; says what it has read, and when it saw the last of it."""

    def __init__(self, query: Query) -> None:
        self.values: list[str] = []
        self.ends = 0
        self.last_s = 0.0
        self._over = threading.Event()
        self._consumer = query.consumer("read_committed")
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is not None:
                self.ends += 1
            elif message is not None:
                self.values.append((message.value() or b"").decode())
                self.last_s = time.monotonic()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()


def test_a_thousand_abandoned_transactions_are_gone_and_readers_at_the_end_within_seconds_of_the_start(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    query = Query(broker)
    query.write("before", "before")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: abandon(query, number), range(ABANDONED)))
    query.write("after", "after")
    assert len(query.open_transactions()) == ABANDONED
    assert len(query.read("read_uncommitted")) == ABANDONED + 4
    reader = Reader(query)
    try:
        wait_for(lambda: reader.ends >= 2, "the reader to come to the first open transaction")
        assert reader.values == ["before", "before"]
        started = time.monotonic()
        coordinator(query, tmp_path).plan(0, run="run")
        planned_s = time.monotonic() - started
        wait_for(lambda: len(reader.values) == 4, "the reader to come to the end", AT_THE_END_WITHIN_S)
    finally:
        reader.close()
    seconds = reader.last_s - started
    assert reader.values[2:] == ["after", "after"]
    assert query.open_transactions() == []
    figures = f"planned in {planned_s:.2f} s, read to the end in {seconds:.2f} s"
    print(f"{ABANDONED} abandoned transactions: {figures}")  # noqa: T201  for who measures
    assert seconds < ALLOWANCE * AT_THE_END_WITHIN_S
