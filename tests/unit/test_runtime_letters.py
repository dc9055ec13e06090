"""Rows that a sink refuses become dead letters under the same decision: each row is in one of the two, once."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit import unreadable

from onceonly import errors, failpoints
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.executor.dead_letters import Letters, columns_of, require_few
from onceonly.executor.slot import run_slot
from onceonly.model import Guarantee, LinkKind, Mode, Plan, Vote
from onceonly.ports import Refused, WriteContext
from onceonly.rows.json_rows import json_rows
from onceonly_proof.memory_log import MemoryDisk, MemoryLog
from onceonly_proof.memory_sink import MemorySink, MemoryTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onceonly.executor.ballot import Ballot

MAIN, LETTERS = "a", "a.letters"
DEALT = ((1, 2, 3), (4,), (), (5, 6))
BAD = (2, 4)
"""Slot 1 has no row that is taken, slots 2 and 3 have none that is refused."""
POINTS = sorted({*failpoints.EVERYWHERE, *failpoints.OF_LETTERS} - {"link.during_put"})


@dataclass
class Job:
    """Spark, as far as a coordinator sees it, with one sink and a place for its dead letters."""

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    graceful: bool = True
    limit: int = 1000
    bad: tuple[int, ...] = BAD
    with_letters: bool = True
    finished: int = -1
    runs: Iterator[int] = field(default_factory=itertools.count)
    seen: list[Exception] = field(default_factory=list)
    ballots: list[Ballot] = field(default_factory=list)

    def __post_init__(self) -> None:
        MemorySink.stores.clear()
        self.sinks = {name: MemorySink({"store": name}) for name in (MAIN, LETTERS)}
        self.sinks[MAIN].store.refuses = {epoch * 10 + row for epoch in range(20) for row in self.bad}

    def live(self, upto: int) -> None:
        coordinator = Coordinator(log=MemoryLog(self.disk), actor="driver", commit_timeout_s=0.001)
        for name, sink in self.sinks.items():
            if name == MAIN or self.with_letters:
                coordinator.join(name, Participant(sink=sink, guarantee=self.guarantee))
        run, continues = f"run{next(self.runs)}", None
        while self.finished < upto:
            epoch = self.finished + 1
            plan = coordinator.plan(epoch, barrier=(str(epoch),), run=run, continues=continues)
            self.ballots = []
            try:
                for slot in range(len(DEALT)):
                    self.ballots.append(self.task(plan, slot, run))
                # As the coordinator of a query does.
                limit = self.limit if plan.mode is Mode.RUN else None
                require_few("query", epoch, MAIN, self.ballots, limit=limit)
                coordinator.decide(plan, self.votes)
            except Exception:
                if self.graceful:
                    coordinator.abort(plan, self.votes, run=run)
                raise
            self.finished, continues = epoch, plan.id

    @property
    def votes(self) -> list[Vote]:
        return [vote for ballot in self.ballots for vote in ballot.votes]

    def task(self, plan: Plan, slot: int, run: str) -> Ballot:
        context = WriteContext(
            query="query", sink=MAIN, run=run, epoch=plan.epoch, plan=plan.id, slot=slot, attempt="0",
            guarantee=plan.guarantee, mode=plan.mode, gives_back=self.with_letters,
        )  # fmt: skip
        batches = [pa.record_batch({"n": [plan.epoch * 10 + row]}) for row in DEALT[slot]]
        letters = Letters(self.sinks[LETTERS], plan, context, limit=self.limit) if self.with_letters else None
        return run_slot(self.sinks[MAIN], plan, context, batches, letters=letters)

    def lose_the_first_of(self, *sinks: str) -> None:
        """Decide the next epoch, and have a transaction of each of these sinks expire before its commit."""

        def expire(step: str, value: object) -> None:
            if step == "link.after" and getattr(value, "votes", None):
                for name in sinks:
                    store = self.sinks[name].store
                    store.expire(store.pending()[0])

        self.disk.hook = expire
        with pytest.raises(errors.TransactionLostError):
            self.live(self.finished + 1)
        self.disk.hook = None

    def finish(self, upto: int, *, lives: int = 12) -> None:
        for _ in range(lives):
            try:
                self.live(upto)
            except (failpoints.FailpointError, errors.OnceonlyError) as error:
                self.seen.append(error)
            if self.finished >= upto:
                return
        raise AssertionError(f"not at rest after {lives} lives: {self.seen}")

    def letters(self) -> list[dict[str, Any]]:
        names = [name for name, _ in columns_of(self.sinks[LETTERS])]
        rows = self.sinks[LETTERS].store.visible().elements()
        return sorted(
            (dict(zip(names, row, strict=True)) for row in rows), key=lambda row: (row["epoch"], row["slot"])
        )

    def check(self) -> None:
        """Each row is among the rows or among the letters, once; nothing is left open."""
        all_of_them = [
            epoch * 10 + row for epoch in range(self.finished + 1) for rows in DEALT for row in rows
        ]
        refused = self.sinks[MAIN].store.refuses
        assert self.sinks[MAIN].store.visible() == Counter(
            (row,) for row in all_of_them if row not in refused
        )
        assert Counter(json.loads(each["row"])["n"] for each in self.letters()) == Counter(
            row for row in all_of_them if row in refused
        )
        for sink in self.sinks.values():
            assert sink.store.pending() == []


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def now(spec: str) -> None:
        monkeypatch.setenv("ONCEONLY_FAILPOINTS", spec)
        monkeypatch.delenv("ONCEONLY_FAILPOINTS_DIR", raising=False)
        monkeypatch.setattr(failpoints, "_counts", {})

    return now


def test_a_refused_row_is_a_letter_that_says_why_and_where_it_came_from() -> None:
    job = Job()

    job.live(1)

    job.check()
    assert job.letters()[2] == {
        "code": "UNWANTED", "why": "the store refuses (12,)", "row": '{"n":12}', "query": "query", "sink": "a",
        "epoch": 1, "slot": 0, "number": 1, "topic": None, "partition": None,
    }  # fmt: skip


def test_one_link_decides_rows_and_letters_and_counts_them_apart() -> None:
    job = Job()

    job.live(0)

    link = job.disk.links[0][-1]
    assert link.kind is LinkKind.COMMIT
    rows = Counter({vote.sink: 0 for vote in link.votes})
    for vote in link.votes:
        rows[vote.sink] += vote.rows
    assert rows == {MAIN: 4, LETTERS: 2}
    assert [(vote.slot, vote.rows, vote.handle is None) for vote in link.votes if vote.sink == MAIN] == [
        (0, 2, False), (1, 0, True), (2, 0, True), (3, 2, False),
    ]  # fmt: skip
    assert job.ballots[0].refused == "row 1 of slot 0: the store refuses (2,)"


def test_where_nothing_is_refused_the_letters_sink_begins_nothing() -> None:
    job = Job(bad=())

    job.live(2)

    job.check()
    assert not job.sinks[LETTERS].store.transactions
    assert {vote.sink for link in job.disk.links[2] for vote in link.votes} == {MAIN}


@pytest.mark.parametrize("graceful", [True, False], ids=["aborted by Spark", "killed"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_leaves_rows_and_letters_once(
    point: str,
    graceful: bool,  # noqa: FBT001  a parameter
    arm: Callable[[str], None],
) -> None:
    arm(f"{point}=raise" + (", commit.before_handle=raise" if "recommit" in point else ""))
    job = Job(graceful=graceful)

    job.finish(3)

    job.check()
    assert f"failpoint {point}" in [str(error) for error in job.seen]


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    armed=st.dictionaries(st.sampled_from(POINTS), st.integers(1, 9), min_size=2, max_size=8),
    graceful=st.booleans(),
)
def test_crashes_upon_crashes_leave_rows_and_letters_once(armed: dict[str, int], graceful: bool) -> None:  # noqa: FBT001  drawn
    with pytest.MonkeyPatch.context() as patch:
        spec = ",".join(f"{name}=raise@{count}" for name, count in armed.items())
        patch.setenv("ONCEONLY_FAILPOINTS", spec)
        patch.setattr(failpoints, "_counts", {})
        job = Job(graceful=graceful)

        job.finish(4)

        job.check()


@pytest.mark.parametrize("lost", [(MAIN,), (LETTERS,), (MAIN, LETTERS)])
def test_what_is_lost_is_written_again_be_it_rows_or_letters(lost: tuple[str, ...]) -> None:
    job = Job()
    job.lose_the_first_of(*lost)
    job.finish(1)

    job.check()
    assert any(link.carried for link in job.disk.links[0])


@pytest.mark.parametrize("lost", [(MAIN,), (LETTERS,), (MAIN, LETTERS)])
@pytest.mark.parametrize("now", [set(), {1, 2, 4}, {1, 4}], ids=["fewer", "more", "others"])
def test_a_repair_whose_sink_refuses_other_rows_than_before_stops_and_says_so(
    now: set[object], lost: tuple[str, ...]
) -> None:
    """A letter that is visible stands for its row: were the row taken now, it would be there twice."""
    job = Job()
    job.lose_the_first_of(*lost)
    before, job.sinks[MAIN].store.refuses = job.sinks[MAIN].store.refuses, now
    with pytest.raises(errors.ReplayMismatchError, match=r"refuses others of them now .*max\.message\.bytes"):
        job.live(0)
    job.sinks[MAIN].store.refuses = before
    job.finish(1)
    job.check()


def test_a_drain_takes_letters_for_rows_of_the_sink_that_refused_them(
    arm: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    arm("commit.before_return=raise")
    job = Job()
    job.finish(0)
    job.check()
    assert not [record for record in caplog.records if "other rows" in record.getMessage()]


@pytest.mark.parametrize("to", [True, False], ids=["begun", "ended"])
def test_letters_may_begin_and_end_in_the_middle_of_an_epoch_that_is_settled(
    to: bool,  # noqa: FBT001  a parameter
    arm: Callable[[str], None],
) -> None:
    arm("commit.before_return=raise@2")
    job = Job(with_letters=not to, bad=())
    with pytest.raises(failpoints.FailpointError):
        job.live(1)
    job.with_letters = to
    job.finish(2)
    job.check()


def test_letters_that_are_settled_need_their_sink_no_more(arm: Callable[[str], None]) -> None:
    arm("commit.before_return=raise@2")
    job = Job()
    with pytest.raises(failpoints.FailpointError):
        job.live(1)
    assert job.letters()[-1]["epoch"] == 1
    job.with_letters = False
    job.finish(1)
    job.check()


def test_letters_that_a_repair_carries_keep_their_sink(arm: Callable[[str], None]) -> None:
    job = Job(graceful=False)
    job.lose_the_first_of(MAIN)
    arm("link.after_put=raise")
    with pytest.raises(failpoints.FailpointError):
        job.live(0)
    assert {vote.sink for vote in job.disk.links[0][-1].votes} == {MAIN}
    job.with_letters = False
    with pytest.raises(errors.ReplayMismatchError, match="decided for other sinks"):
        job.live(0)
    job.with_letters = True
    job.finish(1)
    job.check()


def test_letters_that_are_pending_keep_their_sink(arm: Callable[[str], None]) -> None:
    arm("link.after_put=raise")
    job = Job(graceful=False)
    with pytest.raises(failpoints.FailpointError):
        job.live(0)
    job.with_letters = False
    with pytest.raises(errors.ReplayMismatchError):
        job.live(0)
    job.with_letters = True
    job.finish(0)
    job.check()


@pytest.mark.parametrize("limit", [1, 0], ids=["all slots together", "each slot alone"])
def test_beyond_the_limit_the_error_says_which_one_would_do_and_that_one_does(limit: int) -> None:
    job = Job(limit=limit)
    with pytest.raises(errors.RecordRefusedError) as caught:
        job.live(0)
    told = re.escape(
        f"refused 2 rows of this epoch, more than onceonly.deadletter.limit, {limit}; the first: row 1 "
    )
    assert re.search(told + r"of slot 0: the store refuses \(2,\)", caught.value.what)
    asked = re.search(r"onceonly\.deadletter\.limit=(\d+)", caught.value.next_step)
    assert asked is not None
    assert all(not sink.store.visible() and not sink.store.pending() for sink in job.sinks.values())
    job.limit = int(asked[1])
    job.live(0)
    job.check()


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    refused=st.sets(st.integers(1, 6), min_size=1),
    limit=st.integers(0, 5),
    lowered=st.booleans(),
)
def test_one_change_of_the_limit_is_enough_whatever_each_slot_refuses(
    refused: set[int],
    limit: int,
    lowered: bool,  # noqa: FBT001  drawn
) -> None:
    """Also of an epoch that was begun, and not decided, under a higher limit."""
    job = Job(bad=tuple(refused), graceful=False)
    if lowered:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ONCEONLY_FAILPOINTS", "link.before_put=raise")
            patch.setattr(failpoints, "_counts", {})
            with pytest.raises(failpoints.FailpointError):
                job.live(0)
    job.limit = limit
    if len(refused) > limit:
        with pytest.raises(errors.RecordRefusedError, match=rf"start the query with .*limit={len(refused)}:"):
            job.live(0)
        job.limit = len(refused)
    job.live(0)
    job.check()


def test_a_slot_that_is_beyond_the_limit_writes_no_more_letters_and_prepares_nothing() -> None:
    job = Job(limit=0)
    with pytest.raises(errors.RecordRefusedError):
        job.live(0)
    assert not job.sinks[LETTERS].store.transactions
    assert [ballot.beyond for ballot in job.ballots] == [True, True, False, False]
    assert [vote.handle for vote in job.ballots[0].votes] == [None, None]
    with pytest.raises(errors.RecordRefusedError):
        require_few("query", 0, MAIN, job.ballots, limit=None)


@pytest.mark.parametrize("point", POINTS)
def test_the_limit_may_change_between_two_starts_wherever_the_epoch_stands(
    point: str, arm: Callable[[str], None]
) -> None:
    """It is about what may be refused from now on: what is decided stands, what is not stops by the option's name."""
    arm(f"{point}=raise" + (", commit.before_handle=raise" if "recommit" in point else ""))
    job = Job(graceful=False)
    with pytest.raises(failpoints.FailpointError):
        job.live(3)
    job.limit = 0
    for _ in range(3):
        with contextlib.suppress(failpoints.FailpointError):
            with pytest.raises(errors.RecordRefusedError, match=r"onceonly\.deadletter\.limit, 0"):
                job.live(3)
            break
    else:
        raise AssertionError("nothing was refused")
    job.limit = 1000
    job.finish(3)
    job.check()


@pytest.mark.parametrize("lost", [MAIN, LETTERS])
def test_what_is_lost_is_written_again_whatever_the_limit_is_by_now(lost: str) -> None:
    job = Job()
    job.lose_the_first_of(lost)
    job.limit = 0
    job.live(0)
    job.check()


def test_a_refused_letter_stops_with_both_reasons() -> None:
    job = Job()
    job.sinks[LETTERS].store.refuses = {"UNWANTED"}
    with pytest.raises(errors.RecordRefusedError) as caught:
        job.live(0)
    assert "the store refuses (2,)" in str(caught.value)
    assert "the store refuses ('UNWANTED'" in str(caught.value)
    assert all(not sink.store.visible() and not sink.store.pending() for sink in job.sinks.values())


def test_without_a_place_for_letters_the_row_stops_and_the_next_step_names_the_option() -> None:
    job = Job(with_letters=False)
    with pytest.raises(errors.RecordRefusedError, match=r"\(2,\).*onceonly.refused=deadletter"):
        job.live(0)


def test_at_least_once_no_row_is_lost_and_letters_are_visible() -> None:
    job = Job(guarantee=Guarantee.AT_LEAST_ONCE)
    job.live(1)
    job.check()


def test_the_same_target_for_rows_and_letters_is_refused() -> None:
    job = Job()
    job.sinks[LETTERS] = MemorySink({"store": MAIN})
    with pytest.raises(errors.ConfigurationError, match="same target"):
        job.live(0)


def test_a_tentative_attempt_of_lost_letters_writes_the_rows_too_to_know_them() -> None:
    job = Job()
    job.live(0)
    lost = tuple(vote for vote in job.disk.links[0][-1].votes if vote.sink == LETTERS)
    plan = Plan(
        id="p", epoch=0, mode=Mode.TENTATIVE, index=2, guarantee=Guarantee.EXACTLY_ONCE, lost=lost,
        decided=job.disk.links[0][-1],
    )  # fmt: skip
    again = job.task(plan, 0, "r")
    assert again.letters is not None
    assert (again.letters.rows, again.letters.checksum) == (lost[0].rows, lost[0].checksum)


def test_a_letter_holds_any_row_as_json_that_spark_reads_back() -> None:
    rows = pa.record_batch(
        {
            "text": ["ä\n", None],
            "bytes": pa.array([b"\x00\xff", b""], pa.binary()),
            "number": [float("nan"), 1.5],
            "money": pa.array([Decimal("1.10"), None], pa.decimal128(5, 2)),
            "at": pa.array([datetime(2026, 1, 2, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "nested": pa.array([{"a": [1, None], "b": None}, None]),
            "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "far": pa.array([4_000_000, 1], pa.date32()),
            "farther": pa.StructArray.from_arrays([pa.array([4_000_000, 1], pa.date32())], ["in"]),
            "took": pa.array([timedelta(days=-1, hours=-2, microseconds=-500_000), None], pa.duration("us")),
        }
    )
    first, second = (json.loads(text) for text in json_rows(rows))
    assert first == {
        "text": "ä\n", "bytes": "AP8=", "number": "NaN", "money": 1.10, "at": "2026-01-02T00:00:00+00:00",
        "nested": {"a": [1, None]}, "map": {"k": 1}, "far": "12921-08-18",
        "farther": {"in": "12921-08-18"}, "took": "INTERVAL '-1 02:00:00.5' DAY TO SECOND",
    }  # fmt: skip
    assert second["bytes"] == ""
    assert second["map"] == {}
    assert second["farther"] == {"in": "1970-01-02"}
    assert "text" not in second


@pytest.mark.parametrize("what", unreadable.COLUMNS)
def test_rows_with_a_value_that_python_cannot_hold_have_a_text_all_the_same(what: str) -> None:
    rows = pa.RecordBatch.from_arrays([unreadable.COLUMNS[what][1]], names=["value"])
    assert all(json.loads(text)["value"] for text in json_rows(rows))


def test_a_letter_keeps_its_key_whatever_bytes_it_or_another_one_has() -> None:
    keys = unreadable.COLUMNS["a text"][1]
    rows = pa.RecordBatch.from_arrays([pa.array([2, 4]), keys, keys], names=["n", "key", "topic"])
    MemorySink.stores.clear()
    plan = Plan(id="p", epoch=0, mode=Mode.RUN, index=0, guarantee=Guarantee.EXACTLY_ONCE)
    context = WriteContext(
        query="query", sink=MAIN, run="r", epoch=0, plan="p", slot=0, attempt="0",
        guarantee=plan.guarantee, mode=plan.mode, gives_back=True,
    )  # fmt: skip
    written: list[pa.RecordBatch] = []

    class Keeping(MemorySink):
        letter_columns = ("key", "topic")

        def write(self, transaction: MemoryTransaction, batch: pa.RecordBatch) -> Sequence[Refused] | None:
            written.append(batch)
            return super().write(transaction, batch)

    letters = Letters(Keeping({"store": LETTERS}), plan, context, limit=9)
    letters.take(rows, [Refused(row=each, code="C", why="w") for each in (0, 1)], (0, 1))

    assert written[0]["key"].to_pylist() == [b"fine", b"\xff\xfe"]
    assert written[0]["topic"].to_pylist()[0] == "fine"
