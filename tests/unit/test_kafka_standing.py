"""When a prepared transaction still stands in its partitions, and how a handle names them. No broker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace as Answer
from typing import Any

import pytest
from tests.unit.test_kafka_outcomes import OWN, PREPARED, Coordinators

from onceonly.executor.diverted import marked
from onceonly.model import AlreadyCommitted, Committed, Handle, Lost, Outcome, RetryLater, Unknown
from onceonly.ports.standing import Stands
from onceonly.sinks.kafka import committer, looking_up, prepared
from onceonly.sinks.kafka.checks import hanging
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.prepared import WRITTEN_MAX, Prepared, read_places, spell
from onceonly.sinks.kafka.records.fields import NO_HEADERS, varint
from onceonly.sinks.kafka.records.record_batches import Identity, seal

WRITTEN = replace(PREPARED, written="t:0@10,1@20")
OPTIONS = KafkaOptions.parse({"kafka.bootstrap.servers": "nowhere:9", "topic": "t"})
NOT_LEADER, FORBIDDEN = 6, 29
RECORD = varint(7) + bytes(3) + varint(-1) + varint(1) + b"x" + NO_HEADERS


@dataclass
class Leaders(Coordinators):
    """Answers for the partitions, too: ``open_at`` is where the transaction begins in each; ``state`` is shown in turn.

    ``codes`` are errors of partitions; ``ended`` says how its rows have ended in those where that is to be seen.
    """

    open_at: dict[int, int] = field(default_factory=lambda: {0: 10, 1: 20})
    codes: dict[int, int] = field(default_factory=dict)
    ended: dict[int, Stands] = field(default_factory=dict)
    states: list[str] = field(default_factory=lambda: ["Ongoing"])
    epoch: int = 0
    pending: bool = True

    def send(self, request: Any, node: int | None = None) -> Any:  # noqa: ANN401
        if type(request).__name__ == "MetadataRequest":
            places = [Answer(partition_index=number, leader_id=1) for number in (0, 1, 2)]
            return Answer(topics=[Answer(name="t", error_code=0, partitions=places)])
        if type(request).__name__ == "FetchRequest":
            return self._rows(*request.topics[0].partitions)
        self.asked.append("partitions")
        (topic,) = request.topics
        return Answer(
            topics=[Answer(name="t", partitions=[self._place(each) for each in topic.partition_indexes])]
        )

    def _place(self, number: int) -> object:
        other = Answer(producer_id=77, producer_epoch=0, current_txn_start_offset=1)
        own = Answer(producer_id=5, producer_epoch=0, current_txn_start_offset=self.open_at.get(number, -1))
        code = self.codes.get(number, 0)
        return Answer(partition_index=number, error_code=code, active_producers=[] if code else [other, own])

    def _rows(self, asked: Any) -> object:  # noqa: ANN401
        ended = self.ended.get(asked.partition)
        by = Identity(PREPARED.producer_id, PREPARED.producer_epoch)
        head, *rest = seal([RECORD], 1, by=by, sequence=0, time_ms=0)
        batch = asked.fetch_offset.to_bytes(8) + b"".join([bytes(head)[8:], *map(bytes, rest)])
        aborted = [Answer(producer_id=by.producer_id, first_offset=asked.fetch_offset)]
        place = Answer(
            error_code=0,
            records=batch if ended else b"",
            aborted_transactions=aborted if ended is Stands.GONE else [],
        )
        return Answer(responses=[Answer(partitions=[place])])

    def to_coordinator(self, kind: int, key: str, request: object) -> object:
        if type(request).__name__ != "DescribeTransactionsRequest":
            found = super().to_coordinator(kind, key, request)
            if type(request).__name__ == "InitProducerIdRequest":
                self.pending = False
            return found
        self.asked.append("describe")
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        topics = [Answer(topic="t", partitions=[0, 1]), Answer(topic="__consumer_offsets", partitions=[7])]
        shown = Answer(
            error_code=0, transaction_state=state, producer_id=5, producer_epoch=self.epoch, topics=topics
        )
        return Answer(transaction_states=[shown])

    def look(self, handle: Prepared = WRITTEN) -> Outcome:
        return committer.commit(self, handle.handle())


def test_what_stands_is_committed() -> None:
    kafka = Leaders()
    assert kafka.look() == Committed()
    assert kafka.asked == ["describe", "partitions", "stable", "end"]


@pytest.mark.parametrize("handle", [WRITTEN, PREPARED], ids=["named", "older"])
def test_what_has_ended_in_a_partition_is_aborted_in_all_and_lost(handle: Prepared) -> None:
    kafka = Leaders(open_at={0: 10})
    outcome = kafka.look(handle)
    assert isinstance(outcome, Lost)
    assert "topic t, partition 1" in outcome.proof
    assert "partition 0" not in outcome.proof
    assert kafka.asked == ["describe", "partitions", "stable", "describe", "fence", "stable"]


def test_what_begins_later_than_its_first_row_is_lost() -> None:
    assert isinstance(Leaders(open_at={0: 15, 1: 20}).look(), Lost)
    # Where the first row's offset is not known, an open transaction is enough.
    assert Leaders(open_at={0: 15, 1: 20}).look(PREPARED) == Committed()


def test_rows_that_are_there_are_not_lost_whatever_the_brokers_forget(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All of them had lost their power: the ends of the rows were on a disk, the marker and the decision were not."""
    there = {0: Stands.COMMITTED, 1: Stands.COMMITTED}
    kafka = Leaders(open_at={}, ended=there)
    assert kafka.look() == AlreadyCommitted()
    assert "fence" in kafka.asked, "what its coordinator holds open is not to be committed by anybody"
    assert "offset 10 of t-0" in caplog.text
    # Where the coordinator knows nothing of it any more, either.
    assert Leaders(states=["Empty"], end=90, pending=False, ended=there).look() == AlreadyCommitted()


@pytest.mark.parametrize("other", [Stands.GONE, None])
def test_rows_of_which_a_part_is_there_are_not_lost_either(other: Stands | None) -> None:
    ended = {0: Stands.COMMITTED, **({} if other is None else {1: other})}
    outcome = Leaders(open_at={}, ended=ended).look()
    assert isinstance(outcome, Unknown)
    assert "its rows are committed, as at offset 10 of t-0, and not all" in outcome.reason
    assert "offset 20 of t-1" in outcome.reason


@pytest.mark.parametrize(
    ("ended", "stands"),
    [
        ({0: Stands.COMMITTED, 1: Stands.COMMITTED}, Stands.COMMITTED),
        ({0: Stands.COMMITTED, 1: Stands.GONE}, Stands.UNKNOWN),
        ({0: Stands.COMMITTED}, Stands.UNKNOWN),
        ({0: Stands.GONE, 1: Stands.GONE}, Stands.GONE),
        ({}, Stands.GONE),
    ],
)
def test_a_person_who_asks_is_told_what_a_commit_would_find(ended: dict[int, Stands], stands: Stands) -> None:
    kafka = Leaders(states=["Empty"], pending=False, ended=ended)
    found = looking_up.look_up(kafka, WRITTEN.handle())
    assert found.stands is stands
    assert ("its rows are committed, as at offset 10 of t-0" in found.told) == (stands is not Stands.GONE)


def test_rows_that_were_aborted_everywhere_are_lost() -> None:
    assert isinstance(Leaders(open_at={}, ended={0: Stands.GONE, 1: Stands.GONE}).look(), Lost)


def test_its_marker_is_a_part_of_it() -> None:
    kafka = Leaders(pending=False)
    outcome = kafka.look()
    assert isinstance(outcome, Lost)
    assert "marker" in outcome.proof


@pytest.mark.parametrize("later", ["PrepareCommit", "CompleteCommit"])
def test_what_its_coordinator_ends_meanwhile_is_no_foreign_abort(later: str) -> None:
    kafka = Leaders(open_at={}, states=["Ongoing", later], pending=False, end=90, shows=OWN)
    assert kafka.look() == AlreadyCommitted()
    assert "fence" not in kafka.asked


def test_what_is_not_open_by_its_coordinators_word_is_not_asked_for_elsewhere() -> None:
    for kafka in (Leaders(states=["PrepareCommit"]), Leaders(epoch=1)):
        assert kafka.look() == Committed()
        assert kafka.asked == ["describe", "end"]


def test_a_partition_that_does_not_say_is_asked_again_and_proves_nothing() -> None:
    kafka = Leaders(codes={1: NOT_LEADER}, open_at={0: 10})
    assert isinstance(kafka.look(), RetryLater)
    assert "fence" not in kafka.asked
    assert "end" not in kafka.asked


def test_a_topic_that_may_not_be_read_is_told_and_its_rows_are_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert Leaders(codes={0: FORBIDDEN, 1: FORBIDDEN}, open_at={}).look() == Committed()
    assert "READ" in caplog.text
    assert "topic t" in caplog.text


def test_of_many_those_that_have_fallen_are_lost_and_the_others_committed() -> None:
    class Many(Leaders):
        def guess_coordinators(self, _keys: object) -> None:
            pass

        def to_coordinators(self, _kind: int, requests: Any) -> dict[str, Any]:  # noqa: ANN401
            return {key: Answer(error_code=0) for key in requests}

    first = "8:first"
    handles: list[Handle] = [
        replace(WRITTEN, transactional_id="a", written="t:0@10").handle(),
        replace(WRITTEN, transactional_id="b", written="t:0@10,2@1").handle(),
        replace(WRITTEN, transactional_id="c", written="t:2@1", token=first).handle(),
    ]
    outcomes = committer.commit_many(Many(), handles, first={first})
    assert outcomes[0] == outcomes[2] == Committed()
    assert isinstance(outcomes[1], Lost)


def test_a_handle_names_its_partitions_and_their_first_rows() -> None:
    places = {("b.c", 3): 7, ("a", 0): 0, ("a", 12): 1 << 40, ("a", 2): -1}
    assert spell(places) == "a:0@0,2@-1,12@1099511627776;b.c:3@7"
    assert read_places(spell(places)) == places
    assert read_places("") == {}
    assert spell({}) == ""
    assert spell({("t", number): 0 for number in range(WRITTEN_MAX)})
    assert spell({("t", number): 0 for number in range(WRITTEN_MAX + 1)}) == "", "not without bounds"


def test_a_handle_of_before_is_read() -> None:
    data = {name: value for name, value in WRITTEN.handle().data.items() if name != "written"}
    assert prepared.Prepared.of(Handle(transaction="id", data=data)) == PREPARED


def test_a_handle_that_says_which_rows_were_diverted_is_read() -> None:
    told = marked(WRITTEN.handle(), b"12345678", 3)
    assert told is not None
    assert prepared.Prepared.of(told) == WRITTEN


def test_what_hangs_is_told_whatever_time_its_rows_have() -> None:
    """A producer of somebody's that gives microseconds for milliseconds must not hide what else hangs."""
    found = hanging._unknown(hanging._Held("t", 0, 7, 10), 1_700_000_000_123_456, OPTIONS)
    assert "whose last row is of 1700000000123456 ms since 1970" in found.told
