"""Prepare, commit, abort, look up and sweep, against a real broker. Every test asks the server."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent import futures
from traceback import walk_stack
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from kafka.net.connection import KafkaConnection
from kafka.net.transport import KafkaTCPTransport
from kafka_query import PROPERTIES, Query, wait_for

from onceonly.errors import ConfigurationError, LogError, UnavailableError, WriteFailedError
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Lost, RetryLater, Unknown
from onceonly.ports import QueryContext
from onceonly.ports.standing import Stands
from onceonly.sinks.kafka.committer import fence
from onceonly.sinks.kafka.outcomes import marker
from onceonly.sinks.kafka.producers.pool import this_worker
from onceonly.sinks.kafka.producers.row_producer import RowProducer
from onceonly.sinks.kafka.records.record_batches import Identity
from onceonly.sinks.kafka.wire.admin import Admin
from onceonly.sinks.kafka.wire.connections import CONNECTIONS_MAX
from onceonly.sinks.kafka.wire.end_txn import EndTxn
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]


END_TXN = (26).to_bytes(2, "big")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties=PROPERTIES) as kafka:
        yield kafka


def test_nothing_is_visible_before_the_commit_and_everything_after(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = query.prepare("a", "b")
    assert query.read() == []
    assert query.read("read_uncommitted") == ["a", "b"]
    assert query.commit(handle) == Committed()
    query.until_read("a", "b")


def test_a_repeated_commit_changes_nothing(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = query.prepare("a")
    assert query.commit(handle) == Committed()
    assert query.commit(handle) in {Committed(), AlreadyCommitted()}
    assert query.commit(handle) in {Committed(), AlreadyCommitted()}
    query.until_read("a")


WRITER = """
import json, sys, time
import pyarrow as pa
from onceonly.model import Guarantee
from onceonly.ports import WriteContext
from onceonly.sinks.kafka import KafkaSink
given = json.loads(sys.argv[1])
context = WriteContext(**given["context"], guarantee=Guarantee.EXACTLY_ONCE)
sink = KafkaSink(given["options"])
transaction = sink.begin_transaction(context)
sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["from the dead"]}))
handle = sink.pre_commit(transaction)
print(json.dumps({"transaction": handle.transaction, "data": dict(handle.data)}), flush=True)
time.sleep(600)
"""


def test_commit_from_another_process_after_the_writer_was_killed(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    attempt = query.attempt()
    names = ("query", "sink", "run", "epoch", "plan", "slot", "attempt", "facts")
    given = {"context": {name: getattr(attempt, name) for name in names}, "options": query.options}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, json.dumps(given)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        handle = Handle(**json.loads(writer.stdout.readline()))
        os.kill(writer.pid, signal.SIGKILL)
    assert query.commit(handle) == Committed()
    query.until_read("from the dead")


def test_a_transaction_that_timed_out_is_lost_and_written_again_once(broker: EmbeddedKafka) -> None:
    query = Query(broker, **{"kafka.transaction.timeout.ms": "1000"})
    lost = query.prepare("a")
    wait_for(lambda: not query.open_transactions(), "the broker's time-out")
    outcome = query.commit(lost)
    assert isinstance(outcome, Lost)
    assert str(lost.data["predecessor"]) in outcome.proof
    assert query.commit(query.prepare("a", run="next")) == Committed()
    query.until_read("a")
    # The proof stands for good: the late commit of the lost one changes nothing.
    assert not isinstance(query.commit(lost), Committed)
    assert query.read() == ["a"]


def test_committed_and_then_fenced_is_known_by_the_marker(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = query.prepare("a")
    assert query.commit(handle) == Committed()
    fence(query.admin(), handle.transaction, 1000)
    assert query.commit(handle) == AlreadyCommitted()
    query.until_read("a")


def test_committed_rows_whose_marker_the_brokers_have_forgotten_are_not_written_again(
    broker: EmbeddedKafka,
) -> None:
    """As after a loss of power of all brokers: of each partition they keep what was on its disk."""
    query = Query(broker)
    handle = query.prepare("a")
    assert query.commit(handle) == Committed()
    data = {name: str(value) for name, value in handle.data.items()}
    marker._write(query.admin(), data["group"], data["marker_topic"], data["predecessor"])
    fence(query.admin(), handle.transaction, 1000)
    assert query.commit(handle) == AlreadyCommitted()
    query.until_read("a")


def test_aborted_and_fenced_is_lost(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = query.prepare("a")
    query.sink.abort(handle)
    query.sink.abort(handle)
    assert isinstance(query.commit(handle), Lost)
    assert query.read() == []


def test_many_commits_at_once_have_each_its_own_outcome(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handles = [query.prepare(f"v{slot}", slot=slot) for slot in range(6)]
    assert query.commit(handles[0]) == Committed()
    fence(query.admin(), handles[0].transaction, 1000)
    query.sink.abort(handles[1])
    found: dict[str, object] = {}

    def all_are_told() -> bool:
        left = [handle for handle in handles if handle.transaction not in found]
        answers = zip(left, query.sink.commit_many(left), strict=True)
        found.update(
            (handle.transaction, told) for handle, told in answers if not isinstance(told, RetryLater)
        )
        return len(found) == len(handles)

    wait_for(all_are_told, "all outcomes")
    assert found[handles[0].transaction] == AlreadyCommitted()
    assert isinstance(found[handles[1].transaction], Lost)
    assert [found[handle.transaction] for handle in handles[2:]] == [Committed()] * 4
    query.until_read("v0", "v2", "v3", "v4", "v5")


def test_many_commits_at_once_are_asked_again_while_the_broker_is_down() -> None:
    with EmbeddedKafka(properties=PROPERTIES) as kafka:
        query = Query(kafka)
        handles = [query.prepare(f"v{slot}", slot=slot) for slot in range(3)]
        kafka.kill()
        assert all(isinstance(outcome, RetryLater) for outcome in query.sink.commit_many(handles))
        kafka.start()
        wait_for(
            lambda: not any(isinstance(outcome, RetryLater) for outcome in query.sink.commit_many(handles)),
            "the broker to be back",
        )
        query.until_read("v0", "v1", "v2")


def test_many_commits_at_once_go_to_the_broker_in_one_piece(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(broker)
    handles = [query.prepare(f"v{slot}", slot=slot) for slot in range(8)]
    pieces: list[int] = []
    send = KafkaTCPTransport._sock_send

    def counted(transport: Any) -> Any:  # noqa: ANN401  kafka-python is untyped
        # Behind its length, a request begins with its kind; further connections are being made meanwhile.
        if transport._write_buffer and transport._write_buffer[0][4:6] == END_TXN:
            pieces.append(len(transport._write_buffer))
        return send(transport)

    monkeypatch.setattr(KafkaTCPTransport, "_sock_send", counted)
    assert query.sink.commit_many(handles) == [Committed()] * 8
    assert pieces == [1]


def test_many_commits_at_once_go_by_several_connections_once_they_are_there(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(broker)
    used: list[int] = []
    send = KafkaConnection.send_request

    def noted(connection: Any, request: Any, *more: Any, **options: Any) -> Any:  # noqa: ANN401  as above
        if isinstance(request, EndTxn):
            used.append(id(connection))
        return send(connection, request, *more, **options)

    monkeypatch.setattr(KafkaConnection, "send_request", noted)

    def connections(epoch: int) -> int:
        used.clear()
        handles = [query.prepare(f"v{slot}", epoch=epoch, slot=slot) for slot in range(20)]
        outcomes = query.sink.commit_many(handles)
        assert [each for each in outcomes if each not in {Committed(), AlreadyCommitted()}] == []
        assert len(used) == len(handles)
        return len(set(used))

    assert connections(0) == 1, "none is waited for"
    epochs = itertools.count(1)
    wait_for(lambda: connections(next(epochs)) == CONNECTIONS_MAX, "all connections")
    query.until_read(*[f"v{slot}" for slot in range(20)] * next(epochs))


def forget(broker: EmbeddedKafka, handle: Handle) -> None:
    """Delete the group of a marker."""
    group = str(handle.data["group"])
    admin = broker.admin()
    admin.delete_consumer_groups([group])[group].result(30)


def by_no_rows(handle: Handle) -> Handle:
    """Return a handle as one of many partitions, which does not say where its rows are."""
    return Handle(transaction=handle.transaction, data={**handle.data, "written": ""})


def test_without_its_marker_its_rows_tell_that_it_is_committed(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = query.prepare("a", "b")
    assert query.commit(handle) == Committed()
    fence(query.admin(), handle.transaction, 1000)
    forget(broker, handle)
    assert query.commit(handle) == AlreadyCommitted()
    assert query.sink.look_up(handle).stands is Stands.COMMITTED
    outcome = query.commit(by_no_rows(handle))
    assert isinstance(outcome, Unknown)
    assert str(handle.data["group"]) in outcome.reason
    assert query.sink.look_up(by_no_rows(handle)).stands is Stands.UNKNOWN
    # A seed that is drawn after the deletion is not taken for the predecessor.
    query.sink.abort(query.prepare("b", run="next"))
    assert isinstance(query.commit(handle), Unknown)


def test_without_its_marker_its_rows_tell_that_it_was_aborted(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = query.prepare("a", "b")
    query.sink.abort(handle)
    query.write("after", "after")
    forget(broker, handle)
    assert query.sink.look_up(handle).stands is Stands.GONE
    assert isinstance(query.commit(by_no_rows(handle)), Unknown)
    assert isinstance(query.commit(handle), Lost)
    assert query.read() == ["after", "after"]


def test_rows_that_are_gone_or_follow_an_open_transaction_tell_nothing(broker: EmbeddedKafka) -> None:
    """Nor those of another producer that stand where its own should."""
    query = Query(broker)
    open_one = query.sink.begin_transaction(query.attempt(0, 1, "run"))
    both = {"value": ["open", "open"], "partition": pa.array([0, 1], pa.int32())}
    query.sink.write(open_one, pa.RecordBatch.from_pydict(both))
    holding = query.sink.pre_commit(open_one)
    assert holding is not None
    handle = query.prepare("a", "b")
    assert query.commit(handle) == Committed()
    fence(query.admin(), handle.transaction, 1000)
    forget(broker, handle)
    assert isinstance(query.commit(handle), Unknown)
    query.sink.abort(holding)
    wait_for(lambda: query.commit(handle) == AlreadyCommitted(), "readers to come to its rows")
    other = {"producer_id": int(str(handle.data["producer_id"])) + 1000}
    assert isinstance(
        query.commit(Handle(transaction=handle.transaction, data={**handle.data, **other})), Unknown
    )
    admin = broker.admin()
    for deleted in admin.delete_records(
        [TopicPartition(query.topic, each, OFFSET_END) for each in (0, 1)]
    ).values():
        deleted.result(30)
    assert isinstance(query.commit(handle), Unknown)


def test_twin_attempts_commit_one_and_the_other_is_swept(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    first = query.sink.begin_transaction(query.attempt())
    second = query.sink.begin_transaction(query.attempt())
    batch = pa.RecordBatch.from_pydict({"value": ["a"]})
    query.sink.write(first, batch)
    query.sink.write(second, batch)
    winner, loser = query.sink.pre_commit(first), query.sink.pre_commit(second)
    assert winner is not None
    assert loser is not None
    assert winner.data["predecessor"] == loser.data["predecessor"]
    assert query.commit(winner) == Committed()
    # The winner's own transaction may still be ending; then it is not listed as open.
    assert query.open_transactions() == [loser.transaction]
    for leftover in query.sink.recover(query.context):
        query.sink.abort(leftover.handle)
    assert query.open_transactions() == []
    query.until_read("a")


def test_the_sweep_leaves_foreign_transactions_alone(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    similar = f"onceonly.{query.id}.kafka2.run.worker.0"
    nested = f"onceonly.{query.id}.kafka.run.worker.0.more"
    producers = []
    for transactional_id in (similar, nested, f"app-{query.id}"):
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": transactional_id,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(query.topic, b"foreign")
        producer.flush(30)
        producers.append(producer)
    ours = query.prepare("ours")
    assert query.open_transactions() == [ours.transaction]
    query.sink.abort(ours)
    for producer in producers:
        producer.commit_transaction(30)
    query.until_read("foreign", "foreign", "foreign")


def test_another_cluster_behind_the_address_is_refused(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = query.prepare("a")
    foreign = Handle(transaction=handle.transaction, data={**handle.data, "cluster_id": "another"})
    with pytest.raises(ConfigurationError, match="another"):
        query.sink.commit(foreign)
    with pytest.raises(ConfigurationError, match="another"):
        query.sink.abort(foreign)
    assert query.open_transactions() == [handle.transaction]
    assert query.commit(handle) == Committed()


def test_a_late_commit_does_not_touch_the_next_transaction(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    first = query.prepare("first", epoch=0)
    assert query.commit(first) == Committed()
    handles = [query.prepare(f"next-{epoch}", epoch=epoch) for epoch in (1, 2)]
    again = [handle for handle in handles if handle.transaction == first.transaction]
    assert again, "an id is used again two epochs later"
    # The marker shows the first one's token: known as done, and nothing else became visible.
    assert query.commit(first) == AlreadyCommitted()
    assert query.read() == ["first"]


def test_ids_stay_few_over_many_epochs(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    used = set()
    for epoch in range(60):
        handle = query.prepare(str(epoch), epoch=epoch)
        used.add(handle.transaction)
        assert query.commit(handle) == Committed()
    assert len(used) <= 3
    query.until_read(*map(str, range(60)))


def test_slots_of_one_epoch_have_ids_of_their_own(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    for epoch in range(3):
        handles = [query.prepare(f"{epoch}-{slot}", epoch=epoch, slot=slot) for slot in range(4)]
        assert len({handle.transaction for handle in handles}) == 4
        assert [query.commit(handle) for handle in handles] == [Committed()] * 4
    assert len(query.read()) == 12


def test_the_handle_names_what_librdkafka_uses(broker: EmbeddedKafka) -> None:
    """The id and epoch that the coordinator describes are those in librdkafka's own statistics."""
    query = Query(broker)
    seen: list[dict[str, Any]] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": f"onceonly.{query.id}",
            "statistics.interval.ms": 10,
            "stats_cb": lambda text: seen.append(json.loads(text)["eos"]),
        }
    )
    producer.init_transactions(30)
    from onceonly.sinks.kafka.producers.pool import _describe

    described = _describe(query.admin(), f"onceonly.{query.id}")
    wait_for(lambda: producer.poll(0.05) is None or (seen and seen[-1]["producer_id"] >= 0), "statistics")
    wait_for(lambda: (producer.poll(0.05), seen[-1]["producer_id"] >= 0)[1], "a producer id")
    assert described == Identity(seen[-1]["producer_id"], seen[-1]["producer_epoch"])


def test_an_older_checkpoint_over_a_newer_world_writes_nothing(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    assert query.commit(query.prepare("a", epoch=7)) == Committed()
    for epoch in (5, 7):  # the very epoch that is committed, too: as new it has nothing committed
        context = query.attempt(epoch=epoch, run="restored")
        for is_expected in (False, True):
            if is_expected:
                query.sink.expect(context)
            with pytest.raises(LogError, match="epoch 7"):
                query.sink.begin_transaction(context)
    assert query.open_transactions() == []


@pytest.mark.parametrize("groups_a_request", [1, 1000])
def test_what_is_open_is_listed_with_the_newest_committed_epoch(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, groups_a_request: int
) -> None:
    monkeypatch.setattr(marker, "_GROUPS_A_REQUEST_MAX", groups_a_request)
    query = Query(broker)
    other = Query(broker)
    assert other.commit(other.prepare("another query", epoch=99)) == Committed()
    query.prepare("never", epoch=6)
    assert [found.committed for found in query.sink.recover(query.context)] == [-1]
    for epoch, slot in ((10, 10), (7, 1), (8, 2)):
        assert query.commit(query.prepare("seen", epoch=epoch, slot=slot)) == Committed()
    query.prepare("never", epoch=11)
    asked: list[str] = []
    send = Admin.send

    def noted(self: Admin, request: object, node: int | None = None) -> object:
        asked.append(type(request).__name__)
        return send(self, request, node)

    monkeypatch.setattr(Admin, "send", noted)
    (leftover,) = query.sink.recover(query.context)
    assert asked.count("OffsetFetchRequest") == (4 if groups_a_request == 1 else 1)
    assert (leftover.committed, leftover.epoch) == (10, None)
    query.sink.abort(leftover.handle)


def test_a_discarded_attempt_is_swept(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    transaction = query.sink.begin_transaction(query.attempt())
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["never"]}))
    transaction.producer.flush(30)
    query.sink.discard(transaction)
    (leftover,) = query.sink.recover(query.context)
    query.sink.abort(leftover.handle)
    assert query.read() == []
    assert query.open_transactions() == []


def test_a_writer_that_was_fenced_votes_abort(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    transaction = query.sink.begin_transaction(query.attempt())
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["zombie"]}))
    transaction.producer.flush(30)
    (leftover,) = query.sink.recover(query.context)
    query.sink.abort(leftover.handle)
    with pytest.raises(WriteFailedError, match=leftover.transaction):
        query.sink.pre_commit(transaction)
    assert query.read() == []


@pytest.mark.parametrize("producer", ["direct", "row"])
def test_a_writer_that_was_fenced_while_it_had_rows_left_says_so(
    broker: EmbeddedKafka, producer: str
) -> None:
    query = Query(broker, **{"onceonly.producer": producer})
    transaction = query.sink.begin_transaction(query.attempt())
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["zombie"]}))
    transaction.producer.flush(30)
    (leftover,) = query.sink.recover(query.context)
    query.sink.abort(leftover.handle)
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["zombie's next"]}))
    with pytest.raises(WriteFailedError, match="somebody else has ended the transaction or taken its id"):
        query.sink.pre_commit(transaction)
    query.sink.discard(transaction)
    assert query.read() == []


def test_a_failed_flush_waits_for_the_marker_before_the_client_goes(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, steps = Query(broker, **{"onceonly.producer": "row"}), list[str]()
    transaction = query.sink.begin_transaction(query.attempt())
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["a"]}))
    assert isinstance(transaction.producer, RowProducer)
    flushed, send, close = threading.Event(), transaction.producer.send_offset, transaction.producer.close

    def late(*offset: Any) -> None:  # noqa: ANN401  as given
        flushed.wait(30)
        send(*offset)
        steps.append("marker sent")

    def closed() -> None:
        steps.append("closed")
        close()

    def none_is_acknowledged(_timeout_s: float) -> int:
        flushed.set()
        return 1

    monkeypatch.setattr(transaction.producer, "send_offset", late)
    monkeypatch.setattr(transaction.producer, "flush", none_is_acknowledged)
    monkeypatch.setattr(transaction.producer, "close", closed)
    with pytest.raises(WriteFailedError, match="1 row was not acknowledged"):
        query.sink.pre_commit(transaction)
    query.sink.discard(transaction)
    assert steps == ["marker sent", "closed"]
    assert query.read() == []


def test_an_interrupted_attempt_leaves_its_client_to_the_marker_that_is_on_its_way(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, steps, go_on = Query(broker, **{"onceonly.producer": "row"}), list[str](), threading.Event()
    transaction = query.sink.begin_transaction(query.attempt())
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["a"]}))
    assert isinstance(transaction.producer, RowProducer)
    send, close, main = transaction.producer.send_offset, transaction.producer.close, threading.get_ident()

    def waits() -> bool:
        return any(
            frame.f_code is futures.wait.__code__ for frame, _ in walk_stack(sys._current_frames()[main])
        )

    def interrupted(*_signal: object) -> None:
        raise KeyboardInterrupt

    def late(*offset: Any) -> None:  # noqa: ANN401  as given
        wait_for(waits, "the attempt to wait for its marker")
        signal.pthread_kill(main, signal.SIGUSR1)
        go_on.wait(30)
        send(*offset)
        steps.append("marker sent")

    def closed() -> None:
        close()
        steps.append("closed")

    monkeypatch.setattr(transaction.producer, "send_offset", late)
    monkeypatch.setattr(transaction.producer, "close", closed)
    former = signal.signal(signal.SIGUSR1, interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            query.sink.pre_commit(transaction)
    finally:
        signal.signal(signal.SIGUSR1, former)
    query.sink.discard(transaction)
    assert steps == []
    go_on.set()
    wait_for(lambda: steps == ["marker sent", "closed"], "the client to be destroyed after its marker")
    assert query.read() == []


def test_an_interrupt_before_the_flush_is_raised_and_the_producer_closed(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, steps = Query(broker), list[str]()
    transaction = query.sink.begin_transaction(query.attempt())
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["a"]}))

    def interrupted(_timeout_s: float) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(transaction.producer, "flush", interrupted)
    monkeypatch.setattr(transaction.producer, "close", lambda: steps.append("closed"))
    with pytest.raises(KeyboardInterrupt):
        query.sink.pre_commit(transaction)
    query.sink.discard(transaction)
    assert steps == ["closed"]
    assert query.read() == []


@pytest.mark.parametrize("producer", ["direct", "row"])
def test_at_least_once_is_visible_at_once_and_has_no_handle(broker: EmbeddedKafka, producer: str) -> None:
    query = Query(broker, **{"onceonly.producer": producer})
    query.context = QueryContext(query=query.id, sink="kafka", guarantee=Guarantee.AT_LEAST_ONCE)
    query.facts = dict(query.sink.check(query.context))
    values, used = list[str](), list[object]()
    for epoch in range(3):
        transaction = query.sink.begin_transaction(query.attempt(epoch))
        used.append(transaction.producer)
        query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": [f"{epoch}a", f"{epoch}b"]}))
        assert query.sink.pre_commit(transaction) is None
        query.sink.discard(transaction)  # as where something else has failed since
        values += [f"{epoch}a", f"{epoch}b"]
        assert query.read() == values
    assert used == used[:1] * 3, "one after the other by one producer"
    assert query.open_transactions() == []


@pytest.mark.parametrize("producer", ["direct", "row"])
def test_at_least_once_what_a_dropped_attempt_has_left_holds_up_nobody(
    broker: EmbeddedKafka, producer: str
) -> None:
    query = Query(broker, **{"onceonly.producer": producer})
    query.context = QueryContext(query=query.id, sink="kafka", guarantee=Guarantee.AT_LEAST_ONCE)
    query.facts = dict(query.sink.check(query.context))
    rows = pa.RecordBatch.from_pydict({"value": ["a", "b"]})
    dropped = query.sink.begin_transaction(query.attempt())
    query.sink.write(dropped, rows)
    query.sink.discard(dropped)
    transaction = query.sink.begin_transaction(query.attempt())
    assert transaction.producer is not dropped.producer
    query.sink.write(transaction, rows)
    assert query.sink.pre_commit(transaction) is None
    assert {*query.read()} == {"a", "b"}


def test_a_broker_that_is_down_delays_and_is_named() -> None:
    with EmbeddedKafka() as broker:
        query = Query(broker)
        handle = query.prepare("a")
        broker.kill()
        assert isinstance(query.sink.commit(handle), RetryLater)
        with pytest.raises(UnavailableError, match=broker.bootstrap_servers):
            query.sink.recover(query.context)
        broker.start()
        assert query.commit(handle) == Committed()
        query.until_read("a")


def test_the_marker_of_a_pending_transaction_is_not_shown(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = query.prepare("a")
    group, topic = str(handle.data["group"]), str(handle.data["marker_topic"])
    assert marker.read(query.admin(), group, topic, stable=False) == handle.data["predecessor"]
    with pytest.raises(UnavailableError):
        marker.read(query.admin(), group, topic, stable=True, seconds=0.2)
    assert query.commit(handle) == Committed()
    assert marker.read(query.admin(), group, topic, stable=True) == handle.data["token"]


def test_a_new_run_drops_the_pool_of_the_former(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    query.prepare("a", run="one")
    query.prepare("b", run="two", slot=1)
    pools = [pool for place, (_, pool) in this_worker()._pools.items() if place[0] == query.id]
    assert len(pools) == 1
    assert "two" in pools[0]._leases._prefix
