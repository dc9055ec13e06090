"""Whatever a broker refuses, loses or answers twice, it has each row once, in order, or the attempt hears why not."""

from __future__ import annotations

import itertools
from collections import defaultdict
from concurrent.futures import Future
from threading import Timer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import google_crc32c
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest
from kafka.record import MemoryRecords

from onceonly.errors import UnavailableError
from onceonly.model import Guarantee
from onceonly.ports import WriteContext
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.producers import delivery, direct_producer
from onceonly.sinks.kafka.producers import reach as reaches
from onceonly.sinks.kafka.producers.direct_producer import DirectProducer
from onceonly.sinks.kafka.producers.pool import Pool
from onceonly.sinks.kafka.producers.reach import Reach
from onceonly.sinks.kafka.records import record_batches
from onceonly.sinks.kafka.wire.answers import NotAnsweredError, ThrottledError
from onceonly.sinks.kafka.wire.produce import Produce

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.sinks.kafka.producers.failures import Failure
    from onceonly.sinks.kafka.wire.admin import Admin

PARTITIONS = 3
OUT_OF_ORDER = 45
TOO_LARGE = 10
UNKNOWN_TOPIC = 3
NOT_LEADER = 6
FENCED = 47
# What may befall one request: lost before the broker has it, or after; refused by a leader that has moved; put off.
FAULTS = ["lost", "answer lost", "moved", "moved", "not enough replicas", None, None]
_CODES = {"moved": NOT_LEADER, "not enough replicas": 19}


class Broker:
    """One that stands for kafka-python and a cluster: it checks sequence numbers as a leader does."""

    def __init__(
        self, faults: list[str | None], bytes_max: int = 1 << 30, request_bytes_max: int = 1 << 30
    ) -> None:
        self.faults = iter(faults)
        self.bytes_max = bytes_max
        self.request_bytes_max = request_bytes_max
        self.rows: dict[int, list[Any]] = defaultdict(list)
        self.batches: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self.in_transaction = True
        self.ids = 0
        """How many producer ids it has drawn."""
        self.added: set[int] = set()
        self.posted: list[str] = []
        self.group_codes: Iterator[int] = iter(())
        self.groups: list[str] = []
        self.forgotten: list[str] = []
        self.offsets: list[tuple[str, int]] = []
        self.looked_up = 0
        self.partitions = PARTITIONS

    def client(self) -> Broker:
        return self

    def coordinator(self, _kind: int, _key: str) -> int:
        return 1

    def forget(self, _kind: int, key: str) -> None:
        self.forgotten.append(key)

    def patiently(self, _seconds: float, _thing: str, attempt: Any) -> Any:  # noqa: ANN401
        while True:
            try:
                return attempt()
            except NotAnsweredError:
                continue

    def send(self, request: Any, _node: int | None = None) -> Any:  # noqa: ANN401
        places = [SimpleNamespace(partition_index=number, leader_id=1) for number in range(self.partitions)]
        if type(request).__name__ == "InitProducerIdRequest":
            assert request.transactional_id is None
            self.ids += 1
            return SimpleNamespace(error_code=0, producer_id=5 + self.ids, producer_epoch=2)
        assert type(request).__name__ == "MetadataRequest"
        self.looked_up += 1
        return SimpleNamespace(
            topics=[SimpleNamespace(error_code=0, partitions=places, topic_id=UUID(int=self.partitions))]
        )

    def to_coordinator(self, _kind: int, _key: str, request: Any) -> Any:  # noqa: ANN401
        if type(request).__name__ == "InitProducerIdRequest":
            return SimpleNamespace(error_code=0, producer_id=5, producer_epoch=2)
        if type(request).__name__ == "AddOffsetsToTxnRequest":
            return self._add_group(request)
        if type(request).__name__ == "TxnOffsetCommitRequest":
            return self._take_offset(request)
        return self._add(request)

    def post(self, request: Any, _node: int, _timeout_ms: int = 0) -> Future[Any]:  # noqa: ANN401
        answer: Future[Any] = Future()
        self.posted.append(type(request).__name__.removesuffix("Request"))
        if self.posted[-1] == "AddOffsetsToTxn":
            answer.set_result(self._add_group(request))
            return answer
        if self.posted[-1] == "TxnOffsetCommit":
            answer.set_result(self._take_offset(request))
            return answer
        fault = next(self.faults, None)
        if fault == "lost" or _bytes(request) > self.request_bytes_max:
            answer.set_exception(NotAnsweredError(fault))
            return answer
        given = (
            self._add(request) if hasattr(request, "v3_and_below_topics") else self._produce(request, fault)
        )
        if fault == "answer lost":
            answer.set_exception(NotAnsweredError(fault))
        else:
            answer.set_result(given)
        return answer

    def _add(self, request: Any) -> Any:  # noqa: ANN401
        for topic in request.v3_and_below_topics:
            self.added |= set(topic.partitions)
        answered = [
            SimpleNamespace(
                partition_index=number, partition_error_code=0 if number < self.partitions else UNKNOWN_TOPIC
            )
            for topic in request.v3_and_below_topics
            for number in topic.partitions
        ]
        return SimpleNamespace(results_by_topic_v3_and_below=[SimpleNamespace(results_by_partition=answered)])

    def _add_group(self, request: Any) -> Any:  # noqa: ANN401
        code = next(self.group_codes, 0)
        if not code:
            self.groups.append(request.group_id)
        return SimpleNamespace(error_code=code)

    def _take_offset(self, request: Any) -> Any:  # noqa: ANN401
        assert request.group_id in self.groups, "an offset before its group is in the transaction"
        place = request.topics[0].partitions[0]
        self.offsets.append((request.group_id, place.committed_offset))
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[SimpleNamespace(error_code=0)])])

    def _produce(self, request: Any, fault: str | None) -> Any:  # noqa: ANN401
        topics, decoded = [], _decoded(request)
        self.in_transaction = decoded.transactional_id is not None
        for topic in decoded.topic_data:
            places = [
                SimpleNamespace(
                    index=place.index,
                    record_errors=[],
                    error_message=None,
                    base_offset=100 + len(self.rows[place.index]),
                    error_code=_CODES[fault] if fault in _CODES else self._append(place.index, place.records),
                )
                for place in topic.partition_data
            ]
            topics.append(SimpleNamespace(name=topic.name, partition_responses=places))
        return SimpleNamespace(responses=topics)

    def _append(self, partition: int, text: memoryview) -> int:
        if self.in_transaction:
            assert partition in self.added, "rows before their partition is in the transaction"
        if len(text) > self.bytes_max:
            return TOO_LARGE
        batch = cast("Any", MemoryRecords(bytes(text)).next_batch())
        assert batch.validate_crc()
        assert (batch.producer_id, batch.producer_epoch) == (5 + self.ids, 2)
        assert batch.is_transactional == self.in_transaction
        found = (batch.base_sequence, batch.last_offset_delta + 1)
        known = self.batches[partition, batch.producer_id]
        if found in known:
            return 0
        if found[0] != (sum(known[-1]) if known else 0):
            return OUT_OF_ORDER
        known.append(found)
        self.rows[partition] += [(each.key, each.value, each.headers) for each in batch]
        return 0


def _bytes(request: Any) -> int:  # noqa: ANN401
    return len(_encoded(request)) if type(request) is Produce else 0


def _encoded(request: Produce) -> bytes:
    request.API_VERSION = 11
    return request.encode()


def _decoded(request: Produce) -> Any:  # noqa: ANN401
    """Take a request for what kafka-python reads in its bytes."""
    return ProduceRequest.decode(_encoded(request), version=11)


@pytest.fixture(scope="module", autouse=True)
def _no_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "_PAUSE_S", 0.0)
        patch.setattr(direct_producer, "_ROWS_AT_ONCE", 5)
        yield


def producer(broker: Broker, **options: str) -> DirectProducer:
    made = DirectProducer(reach(broker, **options), "id", 60_000)
    made.take_id(1)
    made.begin_transaction("group")
    return made


def reach(broker: Broker, **options: str) -> Reach:
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    parsed = KafkaOptions.parse({"kafka.bootstrap.servers": "none:1", "topic": "t", **named})
    return Reach(parsed, cast("Admin", broker), cast("Admin", broker))


def at_least_once(here: Reach) -> DirectProducer:
    made = here.take_plain()
    assert isinstance(made, DirectProducer)
    return made


Rows = list[tuple[bytes | None, bytes, int | None]]


def write(made: DirectProducer, batches: list[Rows]) -> Failure | None:
    """Write rows, with a column of partitions where a row names one; flush them, and give what failed."""
    first = 0
    names = ["key", "value"]
    if any(named is not None for rows in batches for _, _, named in rows):
        names.append("partition")
    for rows in batches:
        keys, values, partitions = zip(*rows, strict=True)
        columns = {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array(partitions, pa.int32()),
        }
        batch = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
        made.write(batch, "t", first, wait_s=5)
        first += len(rows)
    assert made.flush(5) == 0
    return made.failures.first


def put_offset(made: DirectProducer) -> None:
    offset = made.begin_offset("markers", 7, "token", 5)
    assert not offset.done()
    made.flush(5)
    offset.result(0)


ROWS = st.tuples(
    st.none() | st.binary(max_size=6), st.binary(max_size=80), st.none() | st.integers(0, PARTITIONS - 1)
)


@settings(deadline=None)
@given(
    st.lists(st.lists(ROWS, min_size=1, max_size=12), min_size=1, max_size=6),
    st.lists(st.sampled_from(FAULTS), max_size=40),
    st.integers(1, 400),
    st.sampled_from([200, 1 << 30]),
    st.sampled_from(["as named", "by key"]),
    st.sampled_from(Guarantee),
)
def test_every_row_is_there_once_and_in_order_whatever_befalls_the_requests(
    batches: list[Rows],
    faults: list[str | None],
    batch_bytes: int,
    bytes_max: int,
    placed: str,
    guarantee: Guarantee,
) -> None:
    numbers = itertools.count()
    batches = [
        [
            (key, b"%04d" % next(numbers) + value, named if placed == "as named" else None)
            for key, value, named in rows
        ]
        for rows in batches
    ]
    broker = Broker(faults, bytes_max)
    options = {"batch_size": str(batch_bytes), "buffer_memory": "1024"}
    if guarantee is Guarantee.AT_LEAST_ONCE:  # one attempt after the other
        here = reach(broker, **options)
        for some in batches:
            made = at_least_once(here)
            assert write(made, [some]) is None
            here.keep_plain(made)
        assert broker.ids == 1
    else:
        assert write(producer(broker, **options), batches) is None
    rows = [row for each in batches for row in each]
    found = {value: partition for partition, some in broker.rows.items() for _, value, _ in some}
    assert sum(map(len, broker.rows.values())) == len(rows), "each once"
    of_keys: dict[bytes, int] = {}
    for key, value, named in rows:
        assert (key, value, []) in broker.rows[found[value]]
        if named is not None:
            assert found[value] == named
        elif key is not None:
            assert of_keys.setdefault(key, found[value]) == found[value]
    for taken in broker.rows.values():
        values = [value for _, value, _ in taken]
        assert values == sorted(values), "in order"


@pytest.mark.parametrize("fault", ["lost", "answer lost", "moved", "not enough replicas"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_befalls_one_request_costs_no_row(fault: str, place: int) -> None:
    broker = Broker([None] * place + [fault])
    made = producer(broker, batch_size="1")
    rows: Rows = [(None, b"%d" % number, 0) for number in range(4)]
    assert write(made, [rows[:2], rows[2:]]) is None
    assert [value for _, value, _ in broker.rows[0]] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("fault", ["lost", "answer lost"])
@pytest.mark.parametrize("count", [2, 6])
def test_rows_wait_until_their_partition_is_in_the_transaction_also_a_later_one(
    fault: str, count: int
) -> None:
    broker = Broker([None, None, fault])  # partition 0 is added, its first row is sent, partition 1 is added
    made = producer(broker, batch_size="1")
    # Sent when all is flushed, or, of 6 rows, when they come.
    given = {
        place: [(key, b"%d" % (place * count + number), None) for number in range(count)]
        for place, key in enumerate((b"f", b"a"))
    }
    assert write(made, [list(rows) for rows in given.values()]) is None
    assert {number: [value for _, value, _ in some] for number, some in broker.rows.items()} == {
        place: [value for _, value, _ in rows] for place, rows in given.items()
    }


def test_a_transaction_is_opened_by_the_group_of_its_marker_and_the_offset_is_one_request() -> None:
    broker = Broker([])
    made = producer(broker)
    # Before the first rows are looked at: when all is flushed it is there, and nobody waits.
    assert broker.posted == ["AddOffsetsToTxn"]
    write(made, [[(None, b"v", 0)], [(None, b"v", 1)]])
    assert broker.posted[1:] == ["AddPartitionsToTxn", "AddPartitionsToTxn", "Produce"]
    put_offset(made)
    assert broker.posted[4:] == ["TxnOffsetCommit"]
    assert (broker.groups, broker.offsets) == (["group"], [("group", 7)])


@pytest.mark.parametrize(("options", "requests"), [({}, 1), ({"max_request_size": "1048576"}, 3)])
def test_batches_of_several_partitions_share_a_request_as_far_as_the_user_lets_it_grow(
    options: dict[str, str], requests: int
) -> None:
    broker = Broker([])
    made = producer(broker, **options)
    write(made, [[(None, b"v" * 600_000, number) for number in range(PARTITIONS)]])
    assert made.failures.first is None
    assert broker.posted.count("Produce") == requests
    assert sorted(broker.rows) == list(range(PARTITIONS))


def test_batches_go_alone_after_a_request_that_a_broker_hung_up_on_for_its_size() -> None:
    broker = Broker([], request_bytes_max=700_000)
    made = producer(broker)
    write(made, [[(None, b"v" * 600_000, number) for number in range(PARTITIONS)]])
    assert made.failures.first is None
    assert broker.posted.count("Produce") == 1 + PARTITIONS
    assert sorted(broker.rows) == list(range(PARTITIONS))


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("lost", ["AddOffsetsToTxnRequest", "TxnOffsetCommitRequest"])
def test_an_offset_and_its_group_are_sent_again_where_nothing_is_known_of_them(
    rows: int, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker([])
    post = broker.post

    def lose(request: Any, node: int, timeout_ms: int = 0) -> Future[Any]:  # noqa: ANN401
        if type(request).__name__ != lost:
            return post(request, node, timeout_ms)
        answer: Future[Any] = Future()
        answer.set_exception(NotAnsweredError("lost"))
        return answer

    monkeypatch.setattr(broker, "post", lose)
    made = producer(broker)
    if rows:
        write(made, [[(None, b"v", 0)]])
    put_offset(made)
    assert broker.offsets == [("group", 7)]
    # Who did not answer may not be the coordinator any more.
    assert broker.forgotten == ["id" if lost == "AddOffsetsToTxnRequest" else "group"]


@pytest.mark.parametrize("what", ["refused", "not acknowledged", "interrupted"])
def test_a_marker_beside_rows_that_fail_is_not_waited_for(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker([], bytes_max=200 if what == "refused" else 1 << 30)
    made = producer(broker)
    made.write(pa.RecordBatch.from_pydict({"value": [b"v" * 300]}), "t", 0, wait_s=5)
    offset = made.begin_offset("markers", 7, "token", 5)
    if what == "not acknowledged":
        monkeypatch.setattr(broker, "_produce", lambda _request, _fault: None)
        monkeypatch.setattr(made._delivery, "move", lambda: None)
        assert made.flush(0.01) == 1
    elif what == "interrupted":
        monkeypatch.setattr(made._delivery, "move", lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            made.flush(5)
    else:
        assert made.flush(5) == 0
        assert made.failures.first is not None
    assert offset.done()
    with pytest.raises(NotAnsweredError):
        offset.result()


def test_the_marker_goes_out_while_the_partitions_of_the_rows_are_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker([])
    post, slow, group = broker.post, Future[Any](), Future[Any]()

    def late(request: Any, node: int, timeout_ms: int = 0) -> Future[Any]:  # noqa: ANN401
        answer = post(request, node, timeout_ms)
        if type(request).__name__ == "AddOffsetsToTxnRequest":
            Timer(0.02, group.set_result, [answer.result()]).start()
            return group
        if type(request).__name__ == "AddPartitionsToTxnRequest":
            return slow
        if type(request).__name__ == "TxnOffsetCommitRequest":
            slow.set_result(SimpleNamespace(results_by_topic_v3_and_below=[]))
        return answer

    monkeypatch.setattr(broker, "post", late)
    made = producer(broker)
    made.write(pa.RecordBatch.from_pydict({"value": [b"a"]}), "t", 0, wait_s=5)
    offset = made.begin_offset("markers", 7, "token", 5)
    assert made.flush(2) == 0
    assert slow.done(), "it waited for the partitions"
    offset.result(0)
    assert broker.posted == ["AddOffsetsToTxn", "AddPartitionsToTxn", "TxnOffsetCommit", "Produce"]


def test_rows_go_on_while_the_group_of_the_marker_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker([])
    post, slow = broker.post, Future[Any]()

    def late(request: Any, node: int, timeout_ms: int = 0) -> Future[Any]:  # noqa: ANN401
        if type(request).__name__ == "AddOffsetsToTxnRequest":
            return slow
        answer = post(request, node, timeout_ms)
        if broker.posted.count("Produce") == 3 and not slow.done():
            slow.set_exception(NotAnsweredError("lost"))
        return answer

    monkeypatch.setattr(broker, "post", late)
    made = producer(broker, batch_size="1")
    made.write(pa.RecordBatch.from_pydict({"value": [b"a", b"b", b"c"]}), "t", 0, wait_s=5)
    offset = made.begin_offset("markers", 7, "token", 2)
    assert made.flush(1) == 0
    assert sum(map(len, broker.rows.values())) == 3
    # Only then it is asked for again.
    offset.result(0)
    assert (broker.groups, broker.offsets) == (["group"], [("group", 7)])


def test_a_transaction_that_could_not_be_opened_is_heard_of_with_the_next_rows() -> None:
    broker = Broker([])
    made = producer(broker)
    refused: Future[Any] = Future()
    refused.set_result(
        SimpleNamespace(
            results_by_topic_v3_and_below=[
                SimpleNamespace(results_by_partition=[SimpleNamespace(partition_error_code=FENCED)])
            ]
        )
    )
    post = broker.post
    broker.post = lambda *_request: refused  # type: ignore[method-assign]
    batch = pa.RecordBatch.from_pydict({"value": [b"a"]})
    made.write(batch, "t", 0, wait_s=5)
    assert made.failures.first is None
    broker.post = post  # type: ignore[method-assign]
    made.write(batch, "t", 1, wait_s=5)
    failure = made.failures.first
    assert failure is not None
    assert failure.error.code() == FENCED


@pytest.mark.parametrize("code", [51, 16, 14, 7])
def test_an_offset_waits_until_its_group_is_in_the_transaction(code: int) -> None:
    broker = Broker([])
    broker.group_codes = iter([code, code])
    made = producer(broker)
    write(made, [[(None, b"v", 0)]])
    assert broker.groups == []
    put_offset(made)
    assert (broker.groups, broker.offsets) == (["group"], [("group", 7)])


def test_an_offset_of_a_producer_that_was_replaced_is_refused() -> None:
    broker = Broker([])
    broker.group_codes = iter([FENCED])
    made = producer(broker)
    write(made, [[(None, b"v", 0)]])
    with pytest.raises(KafkaException):
        put_offset(made)
    assert broker.offsets == []


def test_a_batch_that_is_held_back_by_a_quota_is_sealed_once_and_nobody_else_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker([])
    sealed: list[int] = []
    seal, send = record_batches.seal, broker.post

    def noted(*given: Any, **how: Any) -> Any:  # noqa: ANN401
        sealed.append(how["sequence"])
        return seal(*given, **how)

    monkeypatch.setattr(record_batches, "seal", noted)
    made = producer(broker)
    held = [3]

    def post(request: Any, node: int, timeout_ms: int = 0) -> Future[Any]:  # noqa: ANN401
        if not isinstance(request, Produce) or not held[0]:
            return send(request, node, timeout_ms)
        held[0] -= 1
        answer: Future[Any] = Future()
        answer.set_exception(ThrottledError("a quota"))
        return answer

    monkeypatch.setattr(broker, "post", post)
    assert write(made, [[(b"k", b"v", None)]]) is None
    assert held == [0]
    assert sealed == [0], "it goes out as it is, once it may"
    assert broker.looked_up == 1, "who leads is known"
    assert sum(len(rows) for rows in broker.rows.values()) == 1


def test_a_row_that_the_topic_does_not_take_is_named_by_its_size() -> None:
    broker = Broker([], bytes_max=200)
    made = producer(broker)
    failure = write(made, [[(b"k", b"v", 0), (b"key", b"v" * 300, 0), (b"k", b"v", 0)]])
    assert failure is not None
    assert (failure.error.code(), failure.row_bytes) == (TOO_LARGE, 303)


def test_a_partition_with_few_rows_does_not_keep_the_memory_of_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(direct_producer, "_ROWS_AT_ONCE", 100)
    made = producer(Broker([]))
    for _ in range(10):
        partitions = pa.array([1] + [0] * 99, pa.int32())
        batch = pa.RecordBatch.from_arrays(
            [pa.array([b"v" * 50] * 100), partitions], names=["value", "partition"]
        )
        made.write(batch, "t", 0, wait_s=5)
    pieces = {queue.partition: batch.records for queue, batch in made._batches._open.items()}
    assert len(pieces[1]) == 10
    assert {type(piece) for piece in pieces[1]} == {bytes}
    assert {type(piece) for piece in pieces[0]} == {pa.Buffer}


def test_after_a_batch_that_was_too_large_the_next_ones_are_smaller() -> None:
    broker = Broker([], bytes_max=2_000)
    made = producer(broker)
    rows: Rows = [(b"k", b"%04d" % number + b"v" * 96, 0) for number in range(1_000)]
    assert write(made, [rows[begin : begin + 100] for begin in range(0, 1_000, 100)]) is None
    assert [value for _, value, _ in broker.rows[0]] == [value for _, value, _ in rows]
    assert 0 < made._delivery.limits["t"] < 4_000
    made = producer(broker)
    made._delivery.limits["t"] = 1_000
    made.write(pa.RecordBatch.from_pydict({"value": [b"v" * 96] * 100}), "t", 0, wait_s=5)
    assert {batch.size <= 1_000 for queue in made._delivery._queues for batch in queue.waiting} == {True}


def test_who_leads_is_asked_once_and_not_for_every_topic_where_nobody_answers() -> None:
    broker = Broker([])
    made = producer(broker)
    topics = ["t", "u", "v"]
    made.write(pa.RecordBatch.from_pydict({"value": [b"v"] * 3, "topic": topics}), None, 0, wait_s=5)
    made._encode(5)
    made._batches.close_all()
    asked = []

    def silent(*request: object) -> None:
        asked.append(request)
        raise NotAnsweredError("down")

    for topic in topics:
        made._topics.forget(topic)
    broker.send = silent  # type: ignore[method-assign,assignment]
    made._delivery.move()
    assert len(asked) == 1
    del broker.send
    assert made.flush(5) == 0
    assert sum(map(len, broker.rows.values())) == 3


def pool_of(broker: Broker) -> Pool:
    context = WriteContext(
        query="q", sink="s", run="r", epoch=0, plan="p", slot=0, attempt="1", guarantee=Guarantee.EXACTLY_ONCE
    )
    return Pool(context, reach(broker), 60_000)


def test_what_is_known_of_a_topic_serves_all_producers_of_a_run() -> None:
    broker = Broker([])
    pool = pool_of(broker)
    for epoch in range(3):
        made = pool.take(epoch).producer
        assert isinstance(made, DirectProducer)
        made.begin_transaction("group")
        write(made, [[(None, b"v", 0)]])
        broker.batches.clear()  # each begins its sequence anew
    assert len(broker.rows[0]) == 3
    assert broker.looked_up == 1


def test_what_was_known_of_a_topic_outlives_no_attempt_whose_partitions_are_not_there() -> None:
    """It was made anew with fewer; Spark's next attempt in the same process must not go by the former one."""

    class Impatient(Broker):
        def patiently(self, _seconds: float, thing: str, attempt: Any) -> Any:  # noqa: ANN401
            try:
                return attempt()
            except NotAnsweredError as error:
                raise UnavailableError(f"{thing}: {error}.", next_step="none") from error

    broker = Impatient([])
    pool = pool_of(broker)
    keys = [b"%d" % number for number in range(30)]
    rows = pa.RecordBatch.from_pydict({"key": keys, "value": keys})

    def attempt(epoch: int) -> None:
        made = pool.take(epoch).producer
        broker.batches.clear()
        made.begin_transaction("group")
        made.write(rows, "t", 0, wait_s=5)
        assert made.flush(5) == 0

    attempt(0)
    broker.partitions = 1
    with pytest.raises(UnavailableError, match="AddPartitionsToTxn"):
        attempt(1)
    broker.rows.clear()
    attempt(2)
    assert {number: len(taken) for number, taken in broker.rows.items()} == {0: len(keys)}


def test_what_another_thread_forgets_while_it_is_asked_for_is_not_kept() -> None:
    class Moving(Broker):
        def send(self, request: Any, node: int | None = None) -> Any:  # noqa: ANN401
            answer = super().send(request, node)
            if self.looked_up == 1:
                topics.forget("t")
            return answer

    broker = Moving([])
    topics = delivery.Topics(cast("Admin", broker), 300)
    for _ in range(3):
        assert len(topics.leaders("t")) == PARTITIONS
    assert broker.looked_up == 2


def test_a_partition_that_is_added_is_seen_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("onceonly.sinks.kafka.producers.delivery.time.monotonic", lambda: now[0])
    broker = Broker([])
    topics = delivery.Topics(cast("Admin", broker), 300)
    assert len(topics.leaders("t")) == 3
    broker.partitions = 4
    now[0] = 299
    assert len(topics.leaders("t")) == 3
    now[0] = 300
    assert len(topics.leaders("t")) == 4


def test_a_producer_that_was_replaced_stops_and_says_so() -> None:
    broker = Broker([])
    broker._append = lambda *_: FENCED  # type: ignore[method-assign]
    made = producer(broker)
    failure = write(made, [[(b"k", b"v", None)]])
    assert failure is not None
    assert failure.error.fatal()


def test_a_broker_that_never_takes_a_row_is_named_by_its_reason_when_the_time_is_over() -> None:
    made = producer(Broker([None] + ["not enough replicas"] * 10_000))
    made.write(pa.RecordBatch.from_pydict({"value": [b"v"]}), "t", 0, wait_s=5)
    assert made.flush(0.05) == 1
    failure = made.failures.first
    assert failure is not None
    assert failure.error.name() == "NOT_ENOUGH_REPLICAS"


def test_a_broker_that_never_answers_leaves_rows_of_which_nothing_is_known() -> None:
    made = producer(Broker([None] + ["answer lost"] * 10_000))
    made.write(pa.RecordBatch.from_pydict({"value": [b"v"]}), "t", 0, wait_s=5)
    assert made.flush(0.05) == 1
    assert made.failures.first is None
    assert made.failures.trouble().startswith("answer lost"), "what the attempt's error will say"


def test_a_broker_that_is_silent_now_is_not_blamed_for_what_it_once_said() -> None:
    made = producer(Broker([None, "moved"] + ["lost"] * 10_000))
    made.write(pa.RecordBatch.from_pydict({"value": [b"v"]}), "t", 0, wait_s=5)
    assert made.flush(0.05) == 1
    assert made.failures.first is None
    assert made.failures.trouble().startswith("lost")


def test_a_partition_that_nobody_leads_is_named_as_such_when_the_time_is_over() -> None:
    class Leaderless(Broker):
        def send(self, request: Any, node: int | None = None) -> Any:  # noqa: ANN401
            answer = super().send(request, node)
            for place in answer.topics[0].partitions:
                place.leader_id = -1
            return answer

    made = producer(Leaderless([]))
    made.write(pa.RecordBatch.from_pydict({"value": [b"v"]}), "t", 0, wait_s=5)
    assert made.flush(0.05) == 1
    failure = made.failures.first
    assert failure is not None
    assert failure.error.name() == "LEADER_NOT_AVAILABLE"


@pytest.mark.parametrize("fault", [None, "not enough replicas"])
def test_open_batches_and_those_on_their_way_have_one_bound(fault: str | None) -> None:
    broker = Broker([fault, None] * 10_000)
    made = producer(broker, batch_size="300", buffer_memory="2048")
    most = 0
    for number in range(60):
        batch = pa.RecordBatch.from_pydict(
            {"key": [b"%d" % key for key in range(4)], "value": [b"v" * 50] * 4}
        )
        made.write(batch, "t", 4 * number, wait_s=5)
        made._encode(5)
        made._bound(5)
        most = max(most, made._delivery.bytes + made._batches.bytes)
    assert made.flush(5) == 0
    assert made.failures.first is None
    assert sum(map(len, broker.rows.values())) == 240
    assert most <= 2048


def test_a_buffer_that_stays_full_ends_the_wait() -> None:
    made = producer(Broker([None] + ["lost"] * 100_000), batch_size="100", buffer_memory="1024")
    batch = pa.RecordBatch.from_pydict({"value": [b"v" * 50] * 100})
    with pytest.raises(BufferError, match="lost"):
        made.write(batch, "t", 0, wait_s=0.05)


@pytest.mark.parametrize(("version", "lacks"), [("17.0.0", "pyarrow 18"), ("18.0.0", ""), ("26.0.1", "")])
def test_an_arrow_that_casts_nothing_to_views_makes_no_batches(
    monkeypatch: pytest.MonkeyPatch, *, version: str, lacks: str
) -> None:
    monkeypatch.setattr(pa, "__version__", version)
    assert direct_producer.lacks().startswith(lacks)
    assert bool(direct_producer.lacks()) == bool(lacks)


def test_the_way_back_to_librdkafka_is_told_once_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reaches._tell_once.cache_clear()
    assert pool_of(Broker([]))._reach.is_direct()
    assert caplog.messages == []
    monkeypatch.setattr(google_crc32c, "implementation", "python")
    for _ in range(3):
        assert not pool_of(Broker([]))._reach.is_direct()
    (told,) = caplog.messages
    assert "through librdkafka" in told
    assert "google-crc32c with its part in C" in told


def test_what_was_written_is_named_with_the_offset_of_the_first_row_in_each_partition() -> None:
    made = producer(Broker([]))
    write(made, [[(None, b"a", 0), (None, b"b", 2)], [(None, b"c", 2), (None, b"d", 0)]])
    write(made, [[(None, b"e", 2)]])
    assert made.written() == {("t", 0): 100, ("t", 2): 100}


def test_the_topics_that_were_written_to_are_named_with_their_ids() -> None:
    made = producer(Broker([]))
    write(made, [[(None, b"a", 0), (None, b"b", 2)]])
    assert made.topic_ids() == {"t": "AAAAAAAAAAAAAAAAAAAAAw"}


def test_rows_without_a_key_take_turns_in_each_topic_by_itself() -> None:
    made = producer(Broker([]))
    found: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}
    for _ in range(PARTITIONS):
        for topic, seen in found.items():
            partitions = made._partitions(topic, 1, None, None, 1.0)
            assert partitions is not None
            seen.add(int(partitions[0]))
    assert all(seen == set(range(PARTITIONS)) for seen in found.values())


def test_at_least_once_one_attempt_after_the_other_goes_on_under_one_producer_id() -> None:
    broker = Broker([])
    here = reach(broker)
    for value in (b"a", b"b", b"c"):
        made = at_least_once(here)
        assert write(made, [[(None, value, 0)]]) is None
        here.keep_plain(made)
    assert broker.ids == 1
    assert [value for _, value, _ in broker.rows[0]] == [b"a", b"b", b"c"]


def test_an_attempt_at_least_once_that_fails_leaves_its_producer_id_behind() -> None:
    """What it has sent is not known; the next one's rows must not be taken for that."""
    broker = Broker([])
    here = reach(broker)
    made = at_least_once(here)
    assert write(made, [[(None, b"a", 0)]]) is None
    here.keep_plain(made)
    made = at_least_once(here)
    append, broker._append = broker._append, lambda *_: OUT_OF_ORDER  # type: ignore[method-assign]
    failure = write(made, [[(None, b"b", 0)]])
    assert failure is not None
    assert failure.error.code() == OUT_OF_ORDER
    made.close()
    broker._append = append  # type: ignore[method-assign]
    assert write(at_least_once(here), [[(None, b"b", 0)]]) is None
    assert broker.ids == 2
    assert [value for _, value, _ in broker.rows[0]] == [b"a", b"b"]


def test_two_attempts_at_a_time_have_no_producer_in_common() -> None:
    """A late one, which nobody waits for any more, may still write when the next one begins."""
    here = reach(Broker([]))
    late, mine = at_least_once(here), at_least_once(here)
    assert late is not mine
    here.keep_plain(mine)
    late.close()
    assert here.take_plain() is mine
    assert here.take_plain() is not mine


def test_a_producer_id_that_is_refused_says_so() -> None:
    broker = Broker([])
    refused = SimpleNamespace(error_code=31, producer_id=-1, producer_epoch=-1)
    broker.send = lambda *_: refused  # type: ignore[method-assign]
    with pytest.raises(KafkaException) as caught:
        reach(broker).take_plain()
    assert caught.value.args[0].code() == 31
