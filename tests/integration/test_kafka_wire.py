"""Connections cut, answers dropped and held, requests delivered twice and epochs later: each row is there once."""

from __future__ import annotations

import contextlib
import struct
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from kafka_proxy import Api, Fault, KafkaProxy
from kafka_query import PROPERTIES, Query, wait_for

from onceonly.errors import OnceonlyError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Lost, RetryLater
from onceonly.sinks.kafka.producers import direct_producer
from onceonly.sinks.kafka.wire import client
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
ENDED = {Committed(), AlreadyCommitted()}
WAYS = [
    (guarantee, producer)
    for guarantee in (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)
    for producer in ("direct", "row")
]


class Wire:
    """A broker behind a proxy; queries reach it through the proxy, and their readers do not."""

    def __init__(self, proxy: KafkaProxy, kafka: EmbeddedKafka) -> None:
        self.proxy = proxy
        self.kafka = kafka

    def query(self, **options: str) -> Query:
        return Query(self.kafka, **{"kafka.bootstrap.servers": self.proxy.address, **options})

    def last(self, api: Api, handle: Handle) -> bytes:
        """Return the newest request of a kind that names the transaction; send it again, late."""
        name = str(handle.data["transactional_id"]).encode()
        found = [each for each in self.proxy.requests(api) if name in each.body]
        assert found, f"no {api.name} for {name.decode()} was sent"
        return self.proxy.send_again(found[-1])


@contextlib.contextmanager
def wired() -> Iterator[tuple[KafkaProxy, EmbeddedKafka]]:
    with KafkaProxy() as proxy:
        kafka = EmbeddedKafka(properties={**PROPERTIES, **proxy.properties})
        proxy.forward_to(kafka)
        with kafka:
            yield proxy, kafka


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with wired() as (proxy, kafka):
        yield Wire(proxy, kafka)


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.DROP_ANSWER, Fault.TWICE])
def test_a_commit_whose_answer_is_missing_or_that_arrives_twice_commits_once(
    wire: Wire, fault: Fault
) -> None:
    query = wire.query()
    handle = query.prepare("a", "b")
    before = wire.proxy.done[Api.END_TXN, fault]
    wire.proxy.arm(Api.END_TXN, fault)
    if fault is not Fault.TWICE:
        assert isinstance(query.sink.commit(handle), RetryLater)
    assert query.commit(handle) in ENDED
    assert wire.proxy.done[Api.END_TXN, fault] == before + 1
    query.until_read("a", "b")


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.DROP_ANSWER, Fault.TWICE])
def test_of_many_commits_by_several_connections_those_of_one_that_breaks_are_asked_again(
    wire: Wire, fault: Fault
) -> None:
    query = wire.query()

    def all_end(handles: list[Handle]) -> bool:
        return set(query.sink.commit_many(handles)) <= ENDED

    def prepare(value: str, epoch: int) -> list[Handle]:
        return [query.prepare(value, epoch=epoch, slot=slot) for slot in range(8)]

    for epoch in range(3):  # by then the further connections are there
        assert all_end(prepare("a", epoch))
    handles = prepare("b", epoch=3)
    before = wire.proxy.done[Api.END_TXN, fault]
    wire.proxy.arm(Api.END_TXN, fault)
    outcomes = query.sink.commit_many(handles)
    assert wire.proxy.done[Api.END_TXN, fault] == before + 1
    assert sum(outcome in ENDED for outcome in outcomes) >= 7, "each had a connection of its own"
    if fault is not Fault.TWICE:
        assert sum(isinstance(outcome, RetryLater) for outcome in outcomes) == 1
    wait_for(lambda: all_end(handles), "all commits")
    query.until_read(*["a"] * 24, *["b"] * 8)


def test_an_answer_that_is_late_is_neither_success_nor_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "REQUEST_S", 1.0)
    with wired() as (proxy, kafka):
        query = Query(kafka, **{"kafka.bootstrap.servers": proxy.address})
        handle = query.prepare("a")
        proxy.arm(Api.END_TXN, Fault.HOLD_ANSWER)
        assert isinstance(query.sink.commit(handle), RetryLater)
        proxy.let_go()
        assert query.commit(handle) in ENDED
        query.until_read("a")


@pytest.mark.parametrize(
    "api",
    [
        Api.PRODUCE,
        Api.FIND_COORDINATOR,
        Api.INIT_PRODUCER_ID,
        Api.ADD_PARTITIONS_TO_TXN,
        Api.ADD_OFFSETS_TO_TXN,
        Api.TXN_OFFSET_COMMIT,
        Api.OFFSET_FETCH,
    ],
)
@pytest.mark.parametrize("fault", [Fault.CUT, Fault.DROP_ANSWER])
@pytest.mark.parametrize("producer", ["direct", "row"])
def test_a_connection_lost_while_an_attempt_writes_or_prepares_costs_no_row(
    wire: Wire, api: Api, fault: Fault, producer: str
) -> None:
    query = wire.query(**{"onceonly.producer": producer})
    before = wire.proxy.done[api, fault]
    wire.proxy.arm(api, fault)
    handle = None
    for run in ("one", "two", "three"):  # an attempt may vote abort, and is then tried again
        try:
            handle = query.prepare(*map(str, range(100)), run=run)
        except OnceonlyError:
            continue
        break
    assert handle is not None
    if api not in {each.api for each in wire.proxy.requests(api)}:
        pytest.fail(f"no {api.name} was sent")
    assert wire.proxy.done[api, fault] == before + 1
    assert query.read() == []
    assert query.commit(handle) in ENDED
    for leftover in query.sink.recover(query.context):
        query.sink.abort(leftover.handle)
    query.until_read(*map(str, range(100)))


@pytest.mark.parametrize(("fault", "times"), [(None, 1), (Fault.CUT, 2), (Fault.DROP_ANSWER, 2)])
def test_what_an_attempt_has_to_know_is_asked_before_its_rows_come_until_it_is_answered(
    wire: Wire, fault: Fault | None, times: int
) -> None:
    query = wire.query()
    assert query.commit(query.prepare("a")) in ENDED
    query.until_read("a")  # a marker that is still being committed would be asked for again
    asked = len(wire.proxy.requests(Api.OFFSET_FETCH))
    context = query.attempt(epoch=1)
    if fault is not None:
        wire.proxy.arm(Api.OFFSET_FETCH, fault)
    query.sink.expect(context)
    wait_for(lambda: len(wire.proxy.requests(Api.OFFSET_FETCH)) == asked + 1, "the marker's look-up")
    transaction = query.sink.begin_transaction(context)
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["b"]}))
    handle = query.sink.pre_commit(transaction)
    assert handle is not None
    assert len(wire.proxy.requests(Api.OFFSET_FETCH)) == asked + times
    assert query.commit(handle) in ENDED
    query.until_read("a", "b")


@pytest.mark.parametrize(("guarantee", "producer"), WAYS)
def test_every_connection_cut_in_mid_write_costs_no_row_and_no_order(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee, producer: str
) -> None:
    monkeypatch.setattr(direct_producer, "_ROWS_AT_ONCE", 1)
    query = wire.query(**{"kafka.batch.size": "500", "onceonly.producer": producer})
    transaction = query.sink.begin_transaction(replace(query.attempt(), guarantee=guarantee))
    for start in range(0, 1_000, 100):
        rows = [str(number) for number in range(start, start + 100)]
        query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": rows, "key": ["k"] * 100}))
        wire.proxy.cut_all()
    handle = query.sink.pre_commit(transaction)
    if handle is not None:
        assert query.commit(handle) in ENDED
    query.until_read(*map(str, range(1_000)))


@pytest.mark.parametrize(("guarantee", "producer"), WAYS)
def test_first_rows_that_a_moved_leader_refuses_are_not_lost_behind_those_that_follow(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee, producer: str
) -> None:
    """A broker that knows nothing of a producer takes any sequence number for its first."""
    monkeypatch.setattr(direct_producer, "_ROWS_AT_ONCE", 1)
    # Batches of one row, so that there are some behind the first.
    query = wire.query(**{"kafka.linger.ms": "0", "kafka.batch.size": "1", "onceonly.producer": producer})
    transaction = query.sink.begin_transaction(replace(query.attempt(), guarantee=guarantee))
    before = len(wire.proxy.requests(Api.PRODUCE))
    refused = wire.proxy.done[Api.PRODUCE, Fault.REFUSE]
    wire.proxy.arm(Api.PRODUCE, Fault.REFUSE)
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["1", "2"], "key": ["k", "k"]}))
    wait_for(lambda: len(wire.proxy.requests(Api.PRODUCE)) > before, "the first rows on the wire")
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["3", "4"], "key": ["k", "k"]}))
    handle = query.sink.pre_commit(transaction)
    assert wire.proxy.done[Api.PRODUCE, Fault.REFUSE] == refused + 1
    if handle is not None:
        assert query.commit(handle) in ENDED
    query.until_read("1", "2", "3", "4")


def test_a_commit_delivered_again_epochs_later_ends_no_other_transaction(wire: Wire) -> None:
    query = wire.query()
    done = [query.prepare("0", epoch=0)]
    assert query.commit(done[0]) in ENDED
    done.append(query.prepare("1", epoch=1))
    assert query.commit(done[1]) in ENDED
    pending = query.prepare("2", epoch=2)
    assert pending.transaction in {each.transaction for each in done}, "an id is used again"
    for handle in done:
        answer = wire.last(Api.END_TXN, handle)
        if handle.transaction == pending.transaction:
            # No tagged fields, four bytes of throttle time, the error: it is not taken for the next transaction.
            assert struct.unpack_from(">xih", answer)[1] != 0
    query.until_read("0", "1")
    assert query.commit(pending) in ENDED
    query.until_read("0", "1", "2")


def test_an_abort_delivered_again_late_is_a_proven_loss_and_doubles_nothing(wire: Wire) -> None:
    """Our abort is a fence, InitProducerId: whoever holds the id then is outdated, and the proof finds out."""
    query = wire.query()
    handle = query.prepare("a", run="one")
    wire.last(Api.INIT_PRODUCER_ID, handle)
    assert isinstance(query.commit(handle), Lost)
    assert query.commit(query.prepare("a", run="two")) in ENDED
    query.until_read("a")


def test_a_sweep_that_cannot_list_gives_no_part_of_the_list(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onceonly.sinks.kafka import committer

    monkeypatch.setattr(committer, "_LIST_S", 0.5)
    query = wire.query()
    handle = query.prepare("a")
    wire.proxy.arm(Api.LIST_TRANSACTIONS, *[Fault.CUT] * 200)
    with pytest.raises(UnavailableError, match="list of transactions"):
        query.sink.recover(query.context)
    wire.proxy.disarm()
    assert query.open_transactions() == [handle.transaction]
    assert query.commit(handle) in ENDED


def test_a_broker_killed_while_many_handles_are_committed_shows_each_row_once(wire: Wire) -> None:
    query = wire.query()
    handles = [query.prepare(str(slot), slot=slot) for slot in range(16)]
    done: list[object] = []

    def commit(part: list[Handle]) -> None:
        done.extend(query.commit(each) for each in part)

    threads = [threading.Thread(target=commit, args=(handles[number::4],)) for number in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(done) >= 2, "the first commits")
    wire.kafka.kill()
    wire.kafka.start()
    for thread in threads:
        thread.join(60)
    # Who gave up in time is asked again, as the next run of the query would.
    assert [query.commit(each) for each in handles if query.commit(each) not in ENDED] == []
    query.until_read(*map(str, range(16)))


def test_a_broker_killed_while_rows_are_written_and_again_while_they_are_prepared(wire: Wire) -> None:
    query = wire.query()
    transaction = query.sink.begin_transaction(query.attempt())
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["a", "b"]}))
    wire.kafka.kill()
    wire.kafka.start()
    query.sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["c"]}))
    wire.kafka.kill()
    held: list[Handle | None] = []
    preparing = threading.Thread(target=lambda: held.append(query.sink.pre_commit(transaction)))
    preparing.start()
    wire.kafka.start()
    preparing.join(60)
    (handle,) = held
    assert handle is not None
    assert query.commit(handle) in ENDED
    query.until_read("a", "b", "c")
