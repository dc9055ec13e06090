"""The coordinator carries out the protocol's commands in the right order, and a crash anywhere is healed."""

from __future__ import annotations

import itertools
import os
import socket
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceonly import errors, failpoints
from onceonly.coordinator import sweep
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.executor.slot import run_slot
from onceonly.model import (
    Capabilities,
    Guarantee,
    Handle,
    Inputs,
    Link,
    LinkKind,
    Mode,
    Passed,
    Plan,
    Receipt,
    RetryLater,
    Stamp,
    Unknown,
    Vote,
)
from onceonly.ports import Leftover, QueryContext, WriteContext
from onceonly_proof.memory_log import MemoryDisk, MemoryLog
from onceonly_proof.memory_sink import MemorySink, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onceonly.model import InputFile, Outcome, Span

SINKS = ("a", "b")
DEALT = ((1, 2), (3,), ())
# Reached by the log on disk only; here the log's own hook crashes at the same place. Letters have tests of their own.
POINTS = sorted(set(failpoints.EVERYWHERE) - {"link.during_put"})


class FakeClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass
class Job:
    """Spark, as far as a coordinator sees it: a checkpoint, and lives of a driver one after another."""

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    clock: FakeClock = field(default_factory=FakeClock)
    dealt: tuple[tuple[int, ...], ...] = DEALT
    finished: int = -1
    graceful: bool = True
    runs: Iterator[int] = field(default_factory=itertools.count)
    seen: list[Exception] = field(default_factory=list)
    log_of: Callable[[MemoryDisk], MemoryLog] = MemoryLog
    application: str = ""
    files: StateFiles | None = None
    span: Callable[..., Span | None] | None = None

    def __post_init__(self) -> None:
        MemorySink.stores.clear()
        self.sinks = {name: MemorySink({"store": name}) for name in SINKS}

    def store(self, sink: str = "a") -> MemoryStore:
        return self.sinks[sink].store

    def coordinator(self) -> Coordinator:
        coordinator = Coordinator(
            log=self.log_of(self.disk),
            actor="driver",
            application=self.application,
            commit_timeout_s=10.0,
            clock=self.clock,
            inputs=self.files,
            span=self.span,
        )
        for name, sink in self.sinks.items():
            coordinator.join(name, Participant(sink=sink, guarantee=self.guarantee))
        return coordinator

    def live(self, upto: int) -> None:
        """Live once: run epochs until one fails, as Spark does."""
        coordinator, run, continues = self.coordinator(), f"run{next(self.runs)}", None
        while self.finished < upto:
            epoch = self.finished + 1
            plan = coordinator.plan(epoch, barrier=(str(epoch),), run=run, continues=continues)
            votes: list[Vote] = []
            try:
                for sink, slot in itertools.product(SINKS, range(len(self.dealt))):
                    votes.append(self.task(plan, sink, slot, run=run))
                coordinator.decide(plan, votes)
            except Exception:
                if self.graceful:
                    coordinator.abort(plan, votes, run=run)
                raise
            self.finished, continues = epoch, plan.id

    def task(self, plan: Plan, sink: str, slot: int, *, run: str, attempt: str = "0") -> Vote:
        context = WriteContext(
            query="query",
            sink=sink,
            run=run,
            epoch=plan.epoch,
            plan=plan.id,
            slot=slot,
            attempt=attempt,
            guarantee=plan.guarantee,
        )
        rows = [plan.epoch * 10 + row for row in self.dealt[slot]]
        batches = [pa.record_batch({"n": [row]}) for row in rows]
        return run_slot(self.sinks[sink], plan, context, batches).vote

    def finish(self, upto: int, *, lives: int = 10) -> None:
        """Start again after every crash, as a supervisor does."""
        for _ in range(lives):
            try:
                self.live(upto)
            except (failpoints.FailpointError, errors.OnceonlyError) as error:
                self.seen.append(error)
            if self.finished >= upto:
                return
        raise AssertionError(f"not at rest after {lives} lives: {self.seen}")

    def check(self) -> None:
        rows = [row for dealt in self.dealt for row in dealt]
        wanted = Counter((epoch * 10 + row,) for epoch in range(self.finished + 1) for row in rows)
        for name in SINKS:
            assert self.store(name).visible() == wanted
            assert self.store(name).pending() == []


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def now(spec: str) -> None:
        monkeypatch.setenv("ONCEONLY_FAILPOINTS", spec)
        monkeypatch.delenv("ONCEONLY_FAILPOINTS_DIR", raising=False)
        monkeypatch.setattr(failpoints, "_counts", {})

    return now


def test_epochs_without_faults_are_visible_exactly_once() -> None:
    job = Job()

    job.live(3)

    job.check()
    assert [len(chain) for chain in job.disk.links.values()] == [2, 1, 1, 1], "only the first is claimed"
    assert job.disk.receipts[0].outcomes == {"committed": 4}


@pytest.mark.parametrize("graceful", [True, False], ids=["aborted by Spark", "killed"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_is_healed(point: str, graceful: bool, arm: Callable[[str], None]) -> None:  # noqa: FBT001  a parameter
    # Recovery's own points are passed only after another crash.
    arm(f"{point}=raise" + (", commit.before_handle=raise" if "recommit" in point else ""))
    job = Job(graceful=graceful)

    job.finish(3)

    job.check()
    assert f"failpoint {point}" in [str(error) for error in job.seen]


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    armed=st.dictionaries(st.sampled_from(POINTS), st.integers(1, 9), min_size=2, max_size=8),
    graceful=st.booleans(),
)
def test_crashes_upon_crashes_are_healed(armed: dict[str, int], graceful: bool) -> None:  # noqa: FBT001  drawn
    with pytest.MonkeyPatch.context() as patch:
        spec = ",".join(f"{name}=raise@{count}" for name, count in armed.items())
        patch.setenv("ONCEONLY_FAILPOINTS", spec)
        patch.setattr(failpoints, "_counts", {})
        job = Job(graceful=graceful)

        job.finish(4)

        job.check()


@pytest.mark.parametrize("step", ["link.before", "link.after", "receipt.before", "receipt.after"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_inside_the_log_is_healed(step: str, nth: int) -> None:
    job = Job(graceful=False)
    passed = Counter[str]()

    def crash(at: str, _value: Link | Receipt) -> None:
        passed[at] += 1
        if (at, passed[at]) == (step, nth):
            raise failpoints.FailpointError(at)

    job.disk.hook = crash
    job.finish(3)

    job.check()
    assert len(job.seen) == 1


def test_a_link_that_was_seen_but_never_synced_is_synced_before_it_is_acted_upon() -> None:
    job = Job(graceful=False)
    told: list[str] = []
    job.disk.hook = lambda step, _value: told.append(step)

    def die(disk: MemoryDisk) -> MemoryLog:
        return MemoryLog(disk, syncs=False)

    job.log_of = die
    job.store().answers.update()
    coordinator = job.coordinator()
    plan = coordinator.plan(0, run="r")
    votes = [job.task(plan, "a", 0, run="r")]
    MemoryLog(job.disk, syncs=False).put_link(
        Link(epoch=0, index=1, kind=LinkKind.COMMIT, plan=plan.id, run="r", votes=tuple(votes),
             settings=plan.settings)
    )  # fmt: skip
    told.clear()
    job.log_of = MemoryLog

    assert job.coordinator().plan(0, run="s").mode is Mode.DRAIN
    assert told[0] == "sync"
    assert (0, 1) not in job.disk.unsynced


def test_a_receipt_that_was_found_is_made_durable_before_the_next_epoch_is_claimed() -> None:
    job = Job()
    job.finish(0)
    told: list[str] = []
    job.disk.hook = lambda step, _value: told.append(step)
    assert job.coordinator().plan(0, barrier=("0",), run="s").mode is Mode.DRAIN
    assert told.index("sync") < told.index("link.before")


def test_links_votes_and_receipts_say_when_and_where_they_were_made() -> None:
    job = Job()
    before = datetime.now(UTC).replace(microsecond=0)
    job.live(2)
    made: list[Stamp | None] = [receipt.stamp for receipt in job.disk.receipts.values()]
    for link in itertools.chain(*job.disk.links.values()):
        made += [link.stamp, *(vote.stamp for vote in link.votes)]
        made += [link.planned] if link.kind is LinkKind.COMMIT else []
    assert len(made) > 2 * len(DEALT)
    for stamp in made:
        assert stamp is not None
        assert (stamp.host, stamp.pid) == (socket.gethostname(), os.getpid())
        assert before <= datetime.fromisoformat(stamp.at) <= datetime.now(UTC)
        assert stamp.at.endswith("Z")


def test_a_decision_that_spark_went_on_after_is_carried_out_before_the_next_epoch(
    arm: Callable[[str], None],
) -> None:
    job = Job()
    job.live(0)
    arm("link.after_put=raise")
    with pytest.raises(failpoints.FailpointError):
        job.live(1)
    job.finished += 1  # the function kept the error back
    assert job.disk.receipts.keys() == {0}

    found = job.coordinator().plan(2, barrier=("2",), passed=lambda epoch: Passed(epoch=epoch))

    assert (found.epoch, found.mode) == (2, Mode.RUN)
    assert job.disk.receipts.keys() == {0, 1}
    job.finish(3)
    job.check()


def test_a_run_that_is_overtaken_while_it_settles_the_epoch_before_takes_nothing_back(
    arm: Callable[[str], None],
) -> None:
    job = Job(application="mine")
    job.live(0)
    arm("link.after_put=raise")
    with pytest.raises(failpoints.FailpointError):
        job.live(1)

    def overtake(step: str, _value: object) -> None:
        if step == "receipt.after":
            job.disk.hook = None
            MemoryLog(job.disk).put_link(
                Link(epoch=2, index=0, kind=LinkKind.ABORT, plan="another.plan", run="r")
            )

    job.disk.hook = overtake
    with pytest.raises(errors.SupersededError, match="application another"):
        job.coordinator().plan(2, barrier=("2",), passed=lambda epoch: Passed(epoch=epoch))
    assert [link.plan for link in job.disk.links[2]] == ["another.plan"]


@pytest.mark.parametrize("taken", [False, True])
def test_what_a_decision_lost_that_spark_went_on_after_is_taken_over_or_stops(
    arm: Callable[[str], None],
    taken: bool,  # noqa: FBT001  a parameter
) -> None:
    job = Job()
    job.live(0)
    arm("link.after_put=raise")
    with pytest.raises(failpoints.FailpointError):
        job.live(1)
    lost, kept = job.store("b").pending()
    job.store("b").expire(lost)
    completed: list[str] = []
    job.sinks["b"].complete = lambda _context, _epoch, handles: completed.extend(  # type: ignore[assignment]
        handle.transaction for handle in handles
    )

    def plan() -> Plan:
        return job.coordinator().plan(2, passed=lambda epoch: Passed(epoch=epoch, taken=taken))

    if taken:
        assert plan().mode is Mode.RUN
        assert job.disk.receipts[1].outcomes["lost"] == 1
        assert completed == [kept], "what never came is in no manifest"
    else:
        with pytest.raises(errors.AdoptionError, match="1 of 4 transactions are lost"):
            plan()


def test_nothing_is_committed_before_the_link_is_there_and_no_receipt_before_all_is_committed() -> None:
    job = Job()
    order: list[str] = []
    job.disk.hook = lambda step, value: order.append(
        f"{step} {value.kind if isinstance(value, Link) else ''}".strip()
    )
    for sink in job.sinks.values():
        _note(sink, order)

    job.live(0)

    assert order == [
        "link.before ABORT",
        "link.after ABORT",
        "recover",
        "recover",
        "link.before GLOBAL_COMMIT",
        "link.after GLOBAL_COMMIT",
        *["commit"] * 4,
        "receipt.before",
        "receipt.after",
        "recover",
        "recover",
    ]


def _note(sink: MemorySink, order: list[str]) -> None:
    commit, recover = sink.commit, sink.recover

    def noted_commit(handle: Handle) -> Outcome:
        order.append("commit")
        return commit(handle)

    def noted_recover(context: QueryContext) -> list[Leftover]:
        order.append("recover")
        return recover(context)

    sink.commit = noted_commit  # type: ignore[method-assign]  # listening in
    sink.recover = noted_recover  # type: ignore[method-assign]  # as above


# --- outcomes -----------------------------------------------------------------------------------------------


def first(job: Job, sink: str = "a") -> str:
    """Name the first transaction that this job will begin."""
    return f"{sink}.run0.0"


def test_later_is_asked_again_with_growing_pauses_until_it_is_taken() -> None:
    job = Job()
    job.store().answers[first(job)].extend([RetryLater("busy")] * 5)

    job.live(0)

    job.check()
    assert job.clock.slept == [0.02, 0.04, 0.08, 0.16, 0.32]


def test_later_for_ever_stops_within_the_bound_and_the_next_run_completes() -> None:
    job = Job()
    job.store().answers[first(job)].extend([RetryLater("busy")] * 13)

    with pytest.raises(errors.CommitDelayedError, match=first(job)):
        job.live(0)
    assert sum(job.clock.slept) <= 10
    assert max(job.clock.slept) == 2.0
    job.store().answers.clear()
    job.live(0)

    job.check()


def test_the_bound_holds_for_all_handles_together() -> None:
    job = Job(dealt=tuple((row,) for row in range(40)))
    for number in range(40):
        job.store().answers[f"a.run0.{number}"].extend([RetryLater("busy")] * 1000)

    with pytest.raises(errors.CommitDelayedError):
        job.live(0)

    # Sixteen threads may each overshoot by one pause.
    assert job.clock.now <= 10 + 16 * 2.0


@pytest.mark.parametrize(
    "slip",
    [
        OSError("torn"),
        errors.InDoubtError("who knows", next_step="look"),
        errors.TransactionLostError("says who", next_step="a proof is an outcome"),
        errors.WriteFailedError("not a word of a commit", next_step="look"),
    ],
    ids=lambda slip: type(slip).__name__,
)
@pytest.mark.parametrize("acted", [True, False])
def test_what_a_sink_lets_slip_is_asked_for_again_and_aborts_nothing(slip: Exception, acted: bool) -> None:  # noqa: FBT001  a parameter
    job = Job()
    job.store().answers[first(job)].append(slip)
    if acted:
        job.store().acted.add(first(job))

    if isinstance(slip, errors.InDoubtError):  # what a sink itself says of a transaction
        with pytest.raises(errors.InDoubtError, match=first(job)):
            job.live(0)
    else:
        job.live(0)

    assert "abort" not in {call for call, _ in job.store().calls}
    job.live(1)
    job.check()


@pytest.mark.parametrize("written", [True, False])
def test_a_put_without_an_answer_commits_and_aborts_nothing_and_a_restart_settles_it(written: bool) -> None:  # noqa: FBT001  a parameter
    job = Job()

    def doubt(step: str, value: Link | Receipt) -> None:
        at = "link.after" if written else "link.before"
        if step == at and isinstance(value, Link) and value.kind is LinkKind.COMMIT:
            job.disk.hook = None
            raise errors.UnavailableError("the file system does not answer", next_step="again")

    job.disk.hook = doubt
    coordinator = job.coordinator()
    plan = coordinator.plan(0, run="run0")
    votes = [job.task(plan, sink, slot, run="run0") for sink in SINKS for slot in range(3)]
    prepared = job.store().pending()

    with pytest.raises(errors.UnavailableError, match="the file system does not answer"):
        coordinator.decide(plan, votes)
    assert job.store().pending() == prepared
    coordinator.abort(plan, votes)

    # The chain tells: what was decided stays, what was not is voided by a link, and then swept.
    assert job.store().pending() == (prepared if written else [])
    assert job.disk.links[0][-1].kind is (LinkKind.COMMIT if written else LinkKind.ABORT)
    job.live(1)
    job.check()


def test_of_two_applications_that_start_again_the_older_one_is_over_for_good() -> None:
    job = Job(application="older")
    job.live(0)
    older = job.coordinator()
    plan = older.plan(1, run="older")
    vote = job.task(plan, "a", 0, run="older")
    job.application = "newer"
    newer = job.coordinator()
    newer.plan(1, run="newer")  # takes over on purpose, and fences what the older one has prepared
    older.abort(plan, [vote], run="older")  # as after a failed write
    links = dict(job.disk.links)

    # Started again, in this planner and in another one of its application; later, too, when epochs were decided.
    job.application = "older"
    for upto in (1, 3):
        for coordinator in (older, job.coordinator()):
            with pytest.raises(errors.SupersededError, match="newer") as caught:
                coordinator.plan(job.finished + 1, run="older again")
            assert "works" not in caught.value.what, "it may be dead by now"
            assert "see that it is down, and start this in a new Spark application" in caught.value.next_step
        assert job.disk.links == links, "it has put a link"
        job.application = "newer"
        job.live(upto)
        links = dict(job.disk.links)
        job.application = "older"
    # One that has put nothing yet was started on purpose.
    job.application = "third"
    job.live(4)
    job.check()


@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("sweeps", [False, True])
def test_an_operators_command_that_takes_a_link_has_the_run_start_again(
    *, sweeps: bool, drains: bool
) -> None:
    job = Job(application="job")
    job.live(0)
    recover = job.sinks["a"].recover
    epoch = 0 if drains else 1  # Spark has forgotten that it noted the epoch, or goes on

    def resolved(context: QueryContext | None = None) -> list[Leftover]:
        job.sinks["a"].recover = recover  # type: ignore[method-assign]  # once
        job.application = ""
        job.coordinator().plan(epoch, barrier=(str(epoch),))
        job.application = "job"
        return list(recover(context)) if context is not None else []

    def live() -> None:
        coordinator = job.coordinator()
        if sweeps:
            job.sinks["a"].recover = resolved  # type: ignore[method-assign]  # listening in
            coordinator.plan(epoch, barrier=(str(epoch),), run="run")
        plan = coordinator.plan(1, barrier=("1",), run="run")
        votes = [job.task(plan, sink, slot, run="run") for sink in SINKS for slot in range(3)]
        resolved()
        coordinator.decide(plan, votes)

    with pytest.raises(errors.UnavailableError, match="operator's command"):
        live()
    job.live(2)
    job.check()


def test_at_most_once_asks_once() -> None:
    job = Job(guarantee=Guarantee.AT_MOST_ONCE)
    job.store().answers[first(job)].append(RetryLater("busy"))

    job.live(0)

    assert job.store().calls.count(("commit", first(job))) == 1
    assert job.store().visible() == Counter([(3,)])
    assert job.disk.receipts[0].outcomes == {"committed": 3, "retry_later": 1}
    assert job.store().pending() == [first(job)], "the sweep keeps what its own link names"


@pytest.mark.parametrize("kind", [errors.UnavailableError, errors.CommitDelayedError])
def test_a_sink_out_of_reach_is_asked_later(kind: type[errors.OnceonlyError]) -> None:
    job = Job()
    job.store().answers[first(job)].append(kind("no broker", next_step="wait"))

    job.live(0)

    job.check()
    assert len(job.clock.slept) == 1


def test_a_lost_handle_stops_the_run_and_the_next_one_writes_only_its_rows_again() -> None:
    job = Job()
    _expire_when_decided(job, first(job))

    with pytest.raises(errors.TransactionLostError):
        job.live(0)
    assert job.store().visible() == Counter({(3,): 1})
    job.dealt = (DEALT[1], DEALT[0], ())
    job.live(1)

    job.dealt = DEALT
    job.check()
    repaired = job.disk.links[0][-1]
    assert [len(repaired.votes), len(repaired.carried)] == [1, 3]
    assert [link.kind.value for link in job.disk.links[0]] == ["ABORT", *["GLOBAL_COMMIT"] * 3]


def test_rows_that_cannot_be_matched_with_what_was_lost_stop_the_run_and_leave_nothing_open() -> None:
    job = Job()
    _expire_when_decided(job, first(job))
    with pytest.raises(errors.TransactionLostError):
        job.live(0)
    before = job.store().visible()

    job.dealt = ((1,), (2, 3), ())
    with pytest.raises(errors.ReplayMismatchError):
        job.live(0)

    assert job.store().visible() == before
    assert job.store().pending() == []
    job.dealt = DEALT
    job.live(0)
    job.check()


def test_losers_that_cannot_be_aborted_just_then_are_left_to_the_next_sweep() -> None:
    job = Job()
    _expire_when_decided(job, first(job))
    with pytest.raises(errors.TransactionLostError):
        job.live(0)
    job.dealt = ((1,), (2, 3), ())
    coordinator = job.coordinator()
    plan = coordinator.plan(0, barrier=("0",), run="run1")
    votes = [job.task(plan, sink, slot, run="run1") for sink in SINKS for slot in range(3)]
    job.store().reachable = False

    with pytest.raises(errors.ReplayMismatchError):
        coordinator.decide(plan, votes)

    assert len(job.store().pending()) == 2
    job.store().reachable = True
    job.dealt = DEALT
    job.live(0)
    job.check()


def test_everything_lost_is_run_as_new() -> None:
    job = Job()
    _expire_when_decided(job, *(f"{sink}.run0.{number}" for sink in SINKS for number in range(2)))

    with pytest.raises(errors.TransactionLostError):
        job.live(0)
    job.dealt = ((1, 2, 3),)
    job.live(0)

    job.dealt = DEALT
    job.check()
    assert [link.kind for link in job.disk.links[0]] == [
        LinkKind.ABORT,
        LinkKind.COMMIT,
        LinkKind.ABORT,
        LinkKind.COMMIT,
    ]


def _expire_when_decided(job: Job, *names: str) -> None:
    def expire(step: str, value: Link | Receipt) -> None:
        if step == "link.after" and isinstance(value, Link) and value.kind is LinkKind.COMMIT:
            job.disk.hook = None
            for name in names:
                job.store(name.partition(".")[0]).expire(name)

    job.disk.hook = expire


def test_handles_of_a_sink_that_is_gone_are_refused() -> None:
    job = Job()
    job.store("b").answers["b.run0.0"].append(Unknown("no answer"))
    with pytest.raises(errors.InDoubtError):
        job.live(0)
    link = job.disk.links[0][-1]
    # As if the settings could not tell: the handles still name a sink that is not there.
    job.disk.links[0][-1] = replace(link, settings={"a": link.settings["a"]})
    del job.sinks["b"]

    with pytest.raises(errors.CommitRefusedError, match="no sink named 'b'"):
        job.coordinator().plan(0, run="next")


def test_pending_handles_are_not_sent_to_another_target() -> None:
    job = Job()
    job.store().answers[first(job)].append(Unknown("no answer"))
    with pytest.raises(errors.InDoubtError):
        job.live(0)
    calls = list(job.store().calls)

    job.sinks["a"] = MemorySink({"store": "elsewhere"})
    with pytest.raises(errors.ConfigurationError, match="pending for another target"):
        job.live(0)

    assert job.store("b").calls[-1][0] != "abort"
    assert calls == MemorySink.stores["a"].calls


def test_a_target_that_changed_while_nothing_was_pending_is_told_once_and_gone_on_with(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = Job()
    job.live(0)
    job.sinks["a"] = MemorySink({"store": "elsewhere"})
    job.live(1)
    job.live(2)
    told = [each for each in caplog.records if "target of sink" in each.message]
    assert [each.levelname for each in told] == ["WARNING"]
    for part in ("Query query: chk-1: the target of sink a", "link 0.1", "was 'a' and is 'elsewhere'"):
        assert part in told[0].message
    assert (len(MemorySink.stores["a"].visible()), len(job.store().visible())) == (3, 6)


def test_a_target_that_changes_under_a_living_coordinator_is_the_next_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job()
    job.live(0)
    coordinator = job.coordinator()
    first = coordinator.plan(1, run="r")
    votes = [job.task(first, sink, 0, run="r") for sink in SINKS]
    coordinator.decide(first, votes)
    monkeypatch.setattr(job.sinks["a"], "identity", lambda: {"store": "a", "made": "anew"})
    second = coordinator.plan(2, run="r", continues=first.id)
    assert (first.settings["a"], second.settings["a"]) == ({"store": "a"}, {"store": "a", "made": "anew"})


# --- sweeps -------------------------------------------------------------------------------------------------


def test_facts_are_found_at_a_start_and_looked_at_again_for_each_later_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job()
    seen: list[object] = []
    monkeypatch.setattr(job.sinks["a"], "check", lambda _: {"looks": 0})
    monkeypatch.setattr(job.sinks["a"], "refresh", lambda facts: {"looks": facts["looks"] + 1})
    real = job.task

    def task(plan: Plan, sink: str, slot: int, *, run: str) -> Vote:
        if (sink, slot) == ("a", 0):
            seen.append(plan.facts[sink]["looks"])
        return real(plan, sink, slot, run=run)

    monkeypatch.setattr(job, "task", task)
    job.live(upto=2)
    job.live(upto=3)
    assert seen == [0, 1, 2, 0]


def test_the_loser_of_two_attempts_is_swept_before_the_epoch_ends() -> None:
    job = Job()
    coordinator = job.coordinator()
    plan = coordinator.plan(0, run="run0")
    loser = job.task(plan, "a", 0, run="run0", attempt="1")
    votes = [job.task(plan, sink, slot, run="run0") for sink in SINKS for slot in range(3)]

    coordinator.decide(plan, votes)

    assert loser.handle is not None
    assert ("abort", loser.handle.transaction) in job.store().calls
    assert job.store().pending() == []
    assert job.store().visible() == Counter([(1,), (2,), (3,)])


def test_a_leftover_that_cannot_be_aborted_leaves_no_other_one_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "THREADS_MAX", 1)  # the others come behind it
    job = Job()
    coordinator = job.coordinator()
    plan = coordinator.plan(0, run="run0")
    losers = [job.task(plan, "a", 0, run="run0", attempt=str(attempt)).handle for attempt in (1, 2, 3)]
    votes = [job.task(plan, sink, slot, run="run0") for sink in SINKS for slot in range(3)]
    abort = job.sinks["a"].abort

    def stuck(handle: Handle) -> None:
        if handle == losers[0]:
            raise OSError("stuck")
        abort(handle)

    job.sinks["a"].abort = stuck  # type: ignore[method-assign]  # the first one only
    coordinator.decide(plan, votes)

    assert losers[0] is not None
    assert job.store().pending() == [losers[0].transaction]


def test_a_sweep_lists_then_looks_and_then_fences_nothing_if_a_newer_run_has_claimed() -> None:
    job = Job()
    older = job.coordinator()
    plan = older.plan(0, run="run0")
    votes = [job.task(plan, sink, slot, run="run0") for sink in SINKS for slot in range(3)]
    recover = job.sinks["a"].recover
    swept: list[str] = []

    def overtaken(context: QueryContext) -> list[Leftover]:
        # The newer run claims the next epoch and opens a transaction while the older one lists.
        job.sinks["a"].recover = recover  # type: ignore[method-assign]  # once
        newer = job.coordinator()
        job.task(newer.plan(1, run="run1"), "a", 0, run="run1")
        swept.extend(job.store().pending())
        return recover(context)

    job.sinks["a"].recover = overtaken  # type: ignore[method-assign]  # listening in
    older.decide(plan, votes)

    assert swept
    assert job.store().pending() == swept


def test_a_claim_that_was_superseded_while_it_listed_fences_nothing() -> None:
    job = Job()
    recover = job.sinks["a"].recover

    def overtaken(context: QueryContext) -> list[Leftover]:
        job.sinks["a"].recover = recover  # type: ignore[method-assign]  # once
        newer = job.coordinator()
        job.task(newer.plan(0, run="new"), "a", 0, run="new")
        return recover(context)

    job.sinks["a"].recover = overtaken  # type: ignore[method-assign]  # listening in
    with pytest.raises(errors.SupersededError):
        job.coordinator().plan(0, run="old")

    assert len(job.store().pending()) == 1


def test_a_sink_that_cannot_list_its_leftovers_is_not_asked() -> None:
    job = Job()
    job.sinks["a"].capabilities = Capabilities(guarantees=frozenset(Guarantee))  # type: ignore[misc]  # of this one

    job.live(1)

    assert "recover" not in {call for call, _ in job.store("a").calls}
    job.check()


def test_an_older_run_that_wakes_up_with_its_votes_changes_nothing() -> None:
    job = Job()
    older = job.coordinator()
    plan = older.plan(0, run="old")
    votes = [job.task(plan, sink, slot, run="old") for sink in SINKS for slot in range(3)]
    newer = job.coordinator()
    newer_plan = newer.plan(0, run="new")
    newer_votes = [job.task(newer_plan, sink, slot, run="new") for sink in SINKS for slot in range(3)]
    before = job.store().pending()

    with pytest.raises(errors.SupersededError):
        older.decide(plan, votes)
    older.abort(plan, votes)

    assert job.store().pending() == before
    assert not job.store().visible()
    newer.decide(newer_plan, newer_votes)
    job.finished = 0
    job.check()


def test_an_older_run_that_goes_on_with_the_next_epoch_does_not_claim_it_back() -> None:
    job = Job()
    older = job.coordinator()
    plan = older.plan(0, run="old")
    older.decide(plan, [job.task(plan, sink, slot, run="old") for sink in SINKS for slot in range(3)])
    newer = job.coordinator().plan(1, run="new")
    job.task(newer, "a", 0, run="new")

    with pytest.raises(errors.UnavailableError):
        older.plan(1, run="old", continues=plan.id)

    assert len(job.store().pending()) == 1


def settled(job: Job) -> Plan:
    """Settle the first epoch, forget Spark's commit of it, and leave a transaction of an older try open."""
    coordinator = job.coordinator()
    plan = coordinator.plan(0, barrier=("0",), run="old")
    coordinator.decide(plan, [job.task(plan, sink, slot, run="old") for sink in SINKS for slot in range(3)])
    job.task(plan, "a", 0, run="old", attempt="late")
    assert len(job.store().pending()) == 1
    return plan


def test_leftovers_are_swept_before_a_drain_and_the_claim_of_the_next_epoch_is_gone_on_with() -> None:
    job = Job()
    settled(job)
    coordinator = job.coordinator()

    drain = coordinator.plan(0, barrier=("0",), run="new")

    assert drain.mode is Mode.DRAIN
    assert job.store().pending() == []
    assert [(link.kind, link.plan) for link in job.disk.links[1]] == [(LinkKind.ABORT, drain.id)]
    coordinator.decide(drain, [job.task(drain, sink, slot, run="new") for sink in SINKS for slot in range(3)])
    recovered = job.store().calls.count(("recover", "a"))
    plan = coordinator.plan(1, barrier=("1",), run="new", continues=drain.id)
    assert (plan.mode, plan.index, len(job.disk.links[1])) == (Mode.RUN, 1, 1)
    assert job.store().calls.count(("recover", "a")) == recovered
    coordinator.decide(plan, [job.task(plan, sink, slot, run="new") for sink in SINKS for slot in range(3)])
    job.finished = 1
    job.check()


def test_planners_of_one_application_that_are_taken_in_turn_cost_no_restart() -> None:
    # B planned epoch 0, A epoch 1, which failed twice; then it is B's turn, which remembers epoch 0.
    job = Job(application="app")
    coordinator_b, coordinator_a = job.coordinator(), job.coordinator()
    first = coordinator_b.plan(0, barrier=("0",), run="r")
    coordinator_b.decide(first, [job.task(first, sink, slot, run="r") for sink in SINKS for slot in range(3)])
    for run in ("r", "s"):
        second = coordinator_a.plan(1, barrier=("1",), run=run)
        coordinator_a.abort(second, [], run=run)

    third = coordinator_b.plan(1, barrier=("1",), run="t", continues=first.id)
    coordinator_b.decide(third, [job.task(third, sink, slot, run="t") for sink in SINKS for slot in range(3)])
    job.finished = 1
    job.check()


def test_a_planner_that_remembers_an_epoch_that_another_has_planned_since_may_be_started_again() -> None:
    # Spark takes its planner processes in turn: B planned epoch 0, A epoch 1, which failed; then it is B's turn.
    job = Job()
    coordinator_b, coordinator_a = job.coordinator(), job.coordinator()
    first = coordinator_b.plan(0, barrier=("0",), run="r")
    coordinator_b.decide(first, [job.task(first, sink, slot, run="r") for sink in SINKS for slot in range(3)])
    second = coordinator_a.plan(1, barrier=("1",), run="r")
    coordinator_a.abort(second, [], run="r")

    with pytest.raises(errors.UnavailableError) as caught:
        coordinator_b.plan(1, barrier=("1",), run="s", continues=first.id)
    assert caught.value.restartable
    job.finished = 0
    job.finish(2)
    job.check()


def test_a_claim_in_advance_is_not_claimed_back_from_a_newer_run() -> None:
    job = Job()
    settled(job)
    older, newer = job.coordinator(), job.coordinator()
    drain = older.plan(0, barrier=("0",), run="older")
    job.task(newer.plan(1, barrier=("1",), run="newer"), "a", 0, run="newer")

    with pytest.raises(errors.UnavailableError):
        older.plan(1, barrier=("1",), run="older", continues=drain.id)

    assert len(job.store().pending()) == 1


@pytest.mark.parametrize("epoch", [0, 1], ids=["before a drain", "before a run"])
def test_a_claim_whose_number_is_taken_is_to_be_started_again(epoch: int) -> None:
    job = Job()
    plan = settled(job)
    dying = Link(epoch=1, index=0, kind=LinkKind.ABORT, plan="dying", run="dying", reason="given up")

    def overtake(step: str, _value: Link | Receipt) -> None:
        if step == "link.before":
            job.disk.hook = None
            MemoryLog(job.disk).put_link(dying)

    job.disk.hook = overtake
    with pytest.raises(errors.UnavailableError, match=r"link 1\.0 was put by plan dying first") as caught:
        job.coordinator().plan(epoch, barrier=(str(epoch),), run="new")

    assert caught.value.restartable
    assert len(job.store().pending()) == 1, "nothing is swept without a claim"
    job.coordinator().plan(epoch, barrier=(str(epoch),), run="again")
    assert job.store().pending() == []
    assert job.disk.links[0][-1].plan == plan.id


@pytest.mark.parametrize("epoch", [0, 1], ids=["before a drain", "before a run"])
def test_what_a_living_run_puts_while_the_log_is_read_is_no_gap(epoch: int) -> None:
    job = Job()
    settled(job)
    link = Link(epoch=1, index=0, kind=LinkKind.COMMIT, plan="living", run="living")

    class Overtaken(MemoryLog):
        def chain(self, epoch: int) -> tuple[Link, ...]:
            links = super().chain(epoch)
            if epoch == link.epoch:
                self.put_link(link)
                self.put_receipt(Receipt(epoch=link.epoch, index=0, plan="living"))
            return links

    job.log_of = Overtaken
    with pytest.raises(errors.UnavailableError, match="put by plan living first"):
        job.coordinator().plan(epoch, barrier=(str(epoch),), run="new")


def test_two_repairs_at_once_are_decided_by_the_newer() -> None:
    job = Job()
    _expire_when_decided(job, first(job))
    with pytest.raises(errors.TransactionLostError):
        job.live(0)
    older, newer = job.coordinator(), job.coordinator()
    plans = [older.plan(0, run="old"), newer.plan(0, run="new")]
    votes = [[job.task(plan, sink, slot, run="x") for sink in SINKS for slot in range(3)] for plan in plans]

    with pytest.raises(errors.SupersededError):
        older.decide(plans[0], votes[0])
    older.abort(plans[0], votes[0])
    newer.decide(plans[1], votes[1])

    assert plans[0].mode is plans[1].mode is Mode.TENTATIVE
    job.finished = 0
    job.check()


def test_no_task_runs_while_leftovers_cannot_be_listed() -> None:
    job = Job()
    job.store().reachable = False

    with pytest.raises(errors.CommitDelayedError):
        job.live(0)

    assert not job.store().transactions


def test_no_drain_begins_while_leftovers_cannot_be_listed() -> None:
    job = Job()
    settled(job)
    coordinator = job.coordinator()
    job.store().reachable = False

    with pytest.raises(errors.CommitDelayedError):
        coordinator.plan(0, barrier=("0",), run="new")

    job.store().reachable = True
    assert job.coordinator().plan(0, barrier=("0",), run="again").mode is Mode.DRAIN
    assert job.store().pending() == []


def test_what_only_a_person_can_grant_to_a_sweep_stops_a_start_and_nothing_that_is_decided() -> None:
    job = Job()
    recover = job.sinks["a"].recover

    def refused(_context: QueryContext) -> list[Leftover]:
        raise errors.ConfigurationError("the store lists nothing for us", next_step="grant the right to list")

    job.sinks["a"].recover = refused  # type: ignore[method-assign,assignment]  # at the start
    with pytest.raises(errors.ConfigurationError, match="sink a: the store lists nothing for us") as caught:
        job.live(0)
    assert "; grant the right to list)" in caught.value.what
    assert not job.store().transactions

    job.sinks["a"].recover = recover  # type: ignore[method-assign]  # and at the end
    decided_before_a_sweep_by(refused, job)


def decided_before_a_sweep_by(recover: Callable[[QueryContext], list[Leftover]], job: Job) -> None:
    """See that an epoch is decided and settled whatever the listing of its last sweep does."""
    coordinator = job.coordinator()
    plan = coordinator.plan(0, run="new")
    votes = [job.task(plan, sink, slot, run="new") for sink in SINKS for slot in range(3)]
    job.sinks["a"].recover = recover  # type: ignore[method-assign,assignment]  # a sink's own
    coordinator.decide(plan, votes)
    job.finished = 0
    job.check()


def test_whatever_a_sink_lets_slip_in_a_sweep_puts_the_sweep_off() -> None:
    job = Job()
    recover = job.sinks["a"].recover

    def torn(_context: QueryContext) -> list[Leftover]:
        raise OSError("torn")

    job.sinks["a"].recover = torn  # type: ignore[method-assign,assignment]  # at the start
    with pytest.raises(errors.CommitDelayedError, match="torn"):
        job.live(0)
    assert not job.store().transactions

    job.sinks["a"].recover = recover  # type: ignore[method-assign]  # and at the end
    decided_before_a_sweep_by(torn, job)


def test_a_sweep_that_fails_at_the_end_does_not_fail_the_epoch() -> None:
    job = Job()
    coordinator = job.coordinator()
    plan = coordinator.plan(0, run="run0")
    votes = [job.task(plan, sink, slot, run="run0") for sink in SINKS for slot in range(3)]
    job.disk.hook = lambda step, _value: setattr(job.store(), "reachable", step != "receipt.after")

    coordinator.decide(plan, votes)

    job.finished = 0
    job.check()


# --- other guarantees, and replays --------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_at_most_once_never_doubles(point: str, arm: Callable[[str], None]) -> None:
    arm(f"{point}=raise")
    job = Job(guarantee=Guarantee.AT_MOST_ONCE, graceful=False)

    job.finish(2)

    for name in SINKS:
        assert set(job.store(name).visible().values()) == {1}
    if point == "commit.before_handle":
        assert len(job.store("a").visible() + job.store("b").visible()) < 18


@pytest.mark.parametrize("point", POINTS)
def test_at_least_once_never_loses(point: str, arm: Callable[[str], None]) -> None:
    arm(f"{point}=raise")
    job = Job(guarantee=Guarantee.AT_LEAST_ONCE, graceful=False)

    job.finish(2)

    for name in SINKS:
        assert len(job.store(name).visible()) == 9
    if point == "link.before_put":
        assert max(job.store("a").visible().values()) == 2, "it is not exactly-once in disguise"


def test_a_replay_with_other_rows_is_reported_and_the_output_stands(caplog: pytest.LogCaptureFixture) -> None:
    job = Job()
    job.live(0)
    before = job.store().visible()

    job.finished = -1
    job.dealt = ((1, 2), (4,), ())
    job.live(0)

    assert "replayed with other rows: sink a" in caplog.text
    assert job.store().visible() == before


def test_other_source_offsets_than_were_decided_stop_the_run() -> None:
    job = Job()
    job.live(0)

    with pytest.raises(errors.LogError, match="other source offsets"):
        job.coordinator().plan(0, barrier=("elsewhere",), run="next")


def test_a_guarantee_that_a_sink_does_not_offer_is_refused_before_anything_is_read() -> None:
    job = Job()
    job.sinks["a"].capabilities = Capabilities(guarantees=frozenset({Guarantee.AT_LEAST_ONCE}))  # type: ignore[misc]  # of this one

    with pytest.raises(errors.ConfigurationError, match="cannot promise exactly-once"):
        job.live(0)

    assert not job.disk.links


class StateFiles:
    """Spark's checkpoint, of which the state is what matters. ``why`` keeps it from being durable."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.why = ""
        self.decided_then: list[bool] = []

    def read(self, epoch: int, *, lists: bool = True) -> Inputs:
        return Inputs()

    def barrier(self, epoch: int, found: Inputs) -> tuple[str, ...]:
        return (str(epoch),)

    def restore(
        self, links: Sequence[Link], discard: InputFile | None, is_mine: Callable[[], bool]
    ) -> tuple[str, ...]:
        return ()

    def begin_sync(self, plan: Plan) -> None: ...

    def synced(self, plan: Plan) -> str:
        return ""

    def sync_state(self) -> str:
        chain = MemoryLog(self.disk).chain(0)
        self.decided_then.append(any(link.kind is LinkKind.COMMIT for link in chain))
        return self.why

    def sync(self) -> str:
        return ""


def test_the_state_that_an_epoch_leaves_is_durable_before_its_decision_and_before_its_drain_ends() -> None:
    job = Job()
    job.files = StateFiles(job.disk)

    def attempt(why: str) -> Plan:
        assert job.files is not None
        job.files.why = why
        coordinator = job.coordinator()
        plan = coordinator.plan(0, barrier=("0",), run=f"run{next(job.runs)}")
        votes = [job.task(plan, sink, slot, run="r") for sink in SINKS for slot in range(len(DEALT))]
        coordinator.decide(plan, votes)
        return plan

    with pytest.raises(errors.OnceonlyError, match="the disk is full"):
        attempt("the disk is full")
    assert job.files.decided_then == [False]
    assert not any(link.kind is LinkKind.COMMIT for link in MemoryLog(job.disk).chain(0))
    assert attempt("").mode is Mode.RUN
    assert job.files.decided_then == [False, False], "before the link"
    with pytest.raises(errors.UnavailableError, match="not durable: the disk is full"):
        attempt("the disk is full")
    assert attempt("").mode is Mode.DRAIN
    assert job.files.decided_then == [False, False, True, True]
