"""Somebody aborts a part of a decided transaction by hand: nothing is lost, nothing comes twice, and it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import foreign_hands
import pyarrow as pa
import pytest
from kafka_query import PROPERTIES, Query
from tests.unit.late_bench import KILLED, Lives

from onceonly.model import AlreadyCommitted, Committed, Handle, LinkKind, Lost, Unknown
from onceonly.sinks.kafka import KafkaSink, committer
from onceonly.sinks.kafka.outcomes import standing
from onceonly.sinks.kafka.prepared import Prepared, read_places
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties={**PROPERTIES, "offsets.topic.num.partitions": "1"}) as kafka:
        yield kafka


def in_both(query: Query, *, epoch: int = 0, run: str = "run") -> Handle:
    """Prepare two rows, one in each partition."""
    transaction = query.sink.begin_transaction(query.attempt(epoch=epoch, run=run))
    batch = pa.record_batch({"value": ["a", "b"], "partition": pa.array([0, 1], pa.int32())})
    query.sink.write(transaction, batch)
    handle = query.sink.pre_commit(transaction)
    assert handle is not None
    return handle


@pytest.fixture(params=["direct", "row", "of an older version"])
def prepared(request: pytest.FixtureRequest, broker: EmbeddedKafka) -> tuple[Query, Handle]:
    """A prepared transaction, whose handle names its partitions or not."""
    is_older = str(request.param).startswith("of")
    query = Query(broker, **{"onceonly.producer": "direct" if is_older else str(request.param)})
    query.write("before")  # so that rows do not begin at offset 0
    handle = in_both(query)
    if request.param == "direct":
        assert read_places(str(handle.data["written"])) == {(query.topic, 0): 1, (query.topic, 1): 0}
    if is_older:
        data = {name: value for name, value in handle.data.items() if name != "written"}
        handle = Handle(transaction=handle.transaction, data=data)
    return query, handle


def restarted(query: Query) -> KafkaSink:
    return KafkaSink(query.options)


def test_what_stands_is_committed_after_a_restart(prepared: tuple[Query, Handle]) -> None:
    query, handle = prepared
    sink = restarted(query)
    assert sink.commit(handle) == Committed()
    query.until_read("a", "b", "before")
    # Sent again, as after an answer that was lost: its partitions have ended, by its own coordinator's word.
    assert sink.commit(handle) in {Committed(), AlreadyCommitted()}
    assert query.read() == ["a", "b", "before"]


def test_a_part_that_was_aborted_by_hand_is_lost_with_all_of_it_and_said(
    prepared: tuple[Query, Handle],
) -> None:
    query, handle = prepared
    assert foreign_hands.abort(query.admin(), query.topic, 1) == 1
    (outcome,) = restarted(query).commit_many([handle])
    assert isinstance(outcome, Lost)
    for part in (query.topic, "partition 1", "foreign abort", handle.transaction):
        assert part in outcome.proof
    assert "partition 0" not in outcome.proof
    assert query.open_transactions() == []
    assert query.read() == ["before"]
    assert isinstance(restarted(query).commit(handle), Lost), "the proof stands"
    assert restarted(query).commit(in_both(query, run="next")) == Committed()
    query.until_read("a", "b", "before")


def test_a_marker_that_was_aborted_by_hand_is_seen(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = in_both(query)
    assert foreign_hands.abort(query.admin(), foreign_hands.OFFSETS, 0) == 1
    outcome = restarted(query).commit(handle)
    assert isinstance(outcome, Lost)
    assert str(handle.data["group"]) in outcome.proof


def test_rows_written_after_a_foreign_abort_do_not_hide_it(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    transaction = query.sink.begin_transaction(query.attempt())
    row = pa.record_batch({"value": ["a"], "partition": pa.array([0], pa.int32())})
    query.sink.write(transaction, row)
    transaction.producer.flush(30)
    assert foreign_hands.abort(query.admin(), query.topic, 0) == 1
    query.sink.write(transaction, row)
    handle = query.sink.pre_commit(transaction)
    assert handle is not None
    assert foreign_hands.producers(query.admin(), query.topic, 0), "it is open again"
    outcome = restarted(query).commit(handle)
    assert isinstance(outcome, Lost)
    assert "rows from offset 0 to" in outcome.proof


def test_a_topic_that_was_deleted_is_lost_and_not_waited_for(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly.sinks.kafka.outcomes.standing._UNKNOWN_S", 0.5)
    query = Query(broker, **{"onceonly.marker.topic": Query(broker).topic})
    handle = in_both(query)
    admin = broker.admin()
    admin.delete_topics([query.topic])[query.topic].result(30)
    outcome = query.commit(handle)
    assert isinstance(outcome, Lost)
    assert query.topic in outcome.proof


def test_the_first_commit_right_after_the_decision_asks_no_partition(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(broker)
    looked: list[str] = []

    def look(_admin: object, each: Prepared) -> str:
        looked.append(each.token)
        return ""

    monkeypatch.setattr(standing, "fallen", look)
    handles = [in_both(query), *(query.prepare("more", slot=slot) for slot in (1, 2))]
    assert query.sink.expiring(handles, query.facts, 0.0) == ""
    assert query.sink.commit(handles[0]) == Committed()
    assert query.sink.commit_many(handles[1:]) == [Committed()] * 2
    assert looked == []
    query.commit(handles[0])
    assert looked, "a repeated one does"


class Bench(Lives):
    """A driver and its tasks in processes of their own."""

    def __init__(self, broker: EmbeddedKafka, folder: Path) -> None:
        self.topic = Query(broker)
        super().__init__(folder, "onceonly.kafka", self.topic.options, query=self.topic.id)


@pytest.fixture
def lives(broker: EmbeddedKafka, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(broker, tmp_path)
    yield bench
    bench.close()


def test_a_job_that_was_down_while_somebody_aborted_a_part_writes_it_again(lives: Bench) -> None:
    assert lives.live(armed="link.after_put=kill")[0] == KILLED
    admin = lives.topic.admin()
    aborted = [foreign_hands.abort(admin, lives.topic.topic, partition) for partition in (0, 1)]
    assert sum(aborted) == 2, "a transaction a slot, each in one partition"
    admin.close()
    assert lives.live()[0] == 0
    lives.topic.until_read("0", "1", "2", "3")
    assert lives.topic.open_transactions() == []
    assert lives.chain()[-1] is LinkKind.COMMIT


def test_a_part_of_the_slots_that_was_aborted_is_repaired(lives: Bench) -> None:
    assert lives.live(armed="link.after_put=kill")[0] == KILLED
    admin = lives.topic.admin()
    topic = lives.topic.topic
    assert foreign_hands.abort(admin, topic, 0, at_most=1) or foreign_hands.abort(admin, topic, 1, at_most=1)
    admin.close()
    assert lives.live()[0] == 0
    lives.topic.until_read("0", "1", "2", "3")


def test_what_somebody_else_committed_after_a_foreign_abort_is_not_said_to_be_lost(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(broker)
    handle = in_both(query)
    assert foreign_hands.abort(query.admin(), query.topic, 0) == 1
    fence = committer.fence

    def late(admin: object, transactional_id: str, timeout_ms: int) -> int:
        monkeypatch.undo()
        assert committer.commit(query.admin(), handle, is_first=True) == Committed()
        query.until_read("b")
        return fence(admin, transactional_id, timeout_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(committer, "fence", late)
    outcome = query.commit(handle)
    assert isinstance(outcome, Unknown)
    assert "foreign abort" in outcome.reason
    assert "committed the rest meanwhile" in outcome.reason
