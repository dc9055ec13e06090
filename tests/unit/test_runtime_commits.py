"""The commit phase: few handles one by one, many together where the sink takes them, each with its own outcome."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import pytest

from onceonly.coordinator import commits
from onceonly.coordinator.commits import FEW_MAX, CommitLoop
from onceonly.errors import ConfigurationError, InDoubtError, UnavailableError
from onceonly.model import (
    AlreadyCommitted,
    Capabilities,
    Committed,
    Guarantee,
    Handle,
    Link,
    LinkKind,
    Lost,
    Outcome,
    RetryLater,
    Unknown,
    Vote,
)
from onceonly.protocol import CommitHandle
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_ONCE = 10
MANY = 3 * AT_ONCE + 5
# Passes are counted over all tests of a process.
NEVER = 1_000_000
LINK = Link(epoch=0, index=0, kind=LinkKind.COMMIT, plan="p", run="r")


class Together(MemorySink):
    """Takes many at once, and notes what it was given. ``answers`` come first, by transaction, one a call."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantees=frozenset(Guarantee), recovers=True, commits_at_once=AT_ONCE
    )

    def __init__(self) -> None:
        super().__init__({})
        self.given: list[list[str]] = []
        self.alone: list[str] = []
        self.answers: dict[str, list[Outcome]] = {}
        self.fails = False

    def commit(self, handle: Handle) -> Outcome:
        self.alone.append(handle.transaction)
        return self._answer(handle)

    def commit_many(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        self.given.append([handle.transaction for handle in handles])
        if self.fails:
            raise ConfigurationError("refused", next_step="grant it")
        return [self._answer(handle) for handle in handles]

    def _answer(self, handle: Handle) -> Outcome:
        waiting = self.answers.get(handle.transaction)
        return waiting.pop(0) if waiting else Committed()


@dataclass
class FakeClock:
    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def commands(count: int, *, once: bool = False, sinks: Sequence[str] = ("a",)) -> list[CommitHandle]:
    """Return commands whose sinks take turns."""
    return [
        CommitHandle(
            Vote(
                sink=sinks[number % len(sinks)], epoch=0, slot=number, plan="p", run="r", attempt="0", rows=1,
                checksum="0" * 16, handle=Handle(transaction=f"t{number}"),
            ),
            LINK,
            once=once,
        )
        for number in range(count)
    ]  # fmt: skip


def run(
    given: Sequence[CommitHandle], timeout_s: float = 60.0, **sinks: Together
) -> tuple[dict[str, Outcome], FakeClock]:
    clock = FakeClock()
    found = list(CommitLoop(sinks, timeout_s=timeout_s, clock=clock).run(given, recovery=False))
    assert [command for command, _ in found] == list(given)
    return {f"t{command.vote.slot}": outcome for command, outcome in found}, clock


def test_many_are_given_together_and_each_once() -> None:
    sink = Together()
    sink.answers = {"t3": [AlreadyCommitted()], "t14": [Lost("proof")], "t34": [Unknown("why")]}
    outcomes, _ = run(commands(MANY), a=sink)
    assert sorted(len(each) for each in sink.given) == [5, AT_ONCE, AT_ONCE, AT_ONCE]
    assert sorted(name for each in sink.given for name in each) == sorted(
        f"t{number}" for number in range(MANY)
    )
    assert sink.alone == []
    others = {"t3": AlreadyCommitted(), "t14": Lost("proof"), "t34": Unknown("why")}
    assert outcomes == {f"t{number}": Committed() for number in range(MANY)} | others


def test_few_are_given_together_too_and_one_is_not() -> None:
    sink = Together()
    run(commands(2), a=sink)
    run(commands(1), a=sink)
    assert (sink.given, sink.alone) == ([["t0", "t1"]], ["t0"])


@pytest.mark.parametrize(
    "point",
    ["commit.before_handle", "commit.after_handle", "plan.before_recommit[a]", "plan.after_recommit"],
)
def test_few_are_committed_one_by_one_where_a_crash_is_to_come_between_two(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{point}=raise@{NEVER}")
    sink = Together()
    run(commands(FEW_MAX), a=sink)
    assert (sink.given, len(sink.alone)) == ([], FEW_MAX)
    run(commands(FEW_MAX + 1), a=sink)
    assert len(sink.given) == 1


def test_few_are_given_together_where_a_crash_is_to_come_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", "link.after_put=raise")
    sink = Together()
    run(commands(FEW_MAX), a=sink)
    assert len(sink.given) == 1


@pytest.mark.parametrize("who", ["the caller", "another thread"])
def test_an_interrupt_stops_what_was_not_begun(monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    monkeypatch.setattr(commits, "THREADS_MAX", 2)
    sink, caller, interrupted = Together(), threading.get_ident(), threading.Event()

    def commit(handle: Handle) -> Outcome:
        sink.alone.append(handle.transaction)
        if (threading.get_ident() == caller) == (who == "the caller"):
            interrupted.set()
            raise KeyboardInterrupt
        assert interrupted.wait(30)
        time.sleep(0.05)  # until the interrupt is where it is heard
        return Committed()

    monkeypatch.setattr(sink, "commit", commit)
    with pytest.raises(KeyboardInterrupt):
        run(commands(20, once=True), a=sink)
    assert len(sink.alone) <= 3


def test_of_several_sinks_each_is_given_its_own() -> None:
    first, second = Together(), Together()
    first.answers = {"t2": [Lost("proof")]}
    outcomes, _ = run(commands(2 * MANY, sinks=("a", "b")), a=first, b=second)
    for sink, rest in ((first, 0), (second, 1)):
        names = {name for each in sink.given for name in each}
        assert names == {f"t{number}" for number in range(rest, 2 * MANY, 2)}
    assert [name for name, outcome in outcomes.items() if outcome != Committed()] == ["t2"]


def test_only_those_that_are_not_taken_yet_are_asked_again() -> None:
    sink = Together()
    sink.answers = {"t1": [RetryLater("busy"), RetryLater("busy")], "t2": [RetryLater("busy")]}
    outcomes, clock = run(commands(MANY), a=sink)
    assert set(outcomes.values()) == {Committed()}
    assert [each for each in sink.given if len(each) == 2] == [["t1", "t2"]]
    assert sink.alone == ["t1"]
    assert len(clock.slept) == 2


def test_how_long_each_had_to_wait_for_its_answer_is_known() -> None:
    sink, clock = Together(), FakeClock()
    sink.answers = {"t1": [RetryLater("busy"), RetryLater("busy")], "t2": [RetryLater("busy")]}
    loop = CommitLoop({"a": sink}, timeout_s=60.0, clock=clock)
    list(loop.run(commands(3), recovery=False))
    first, second = clock.slept
    assert loop.answered_s == {0: 0.0, 1: first + second, 2: first}
    list(loop.run(commands(1), recovery=False))
    assert loop.answered_s == {0: 0.0}, "of the last run alone"


def test_what_is_not_taken_in_time_is_told_and_the_others_are_committed() -> None:
    sink = Together()
    sink.answers = {"t1": [RetryLater("busy")] * 1_000}
    outcomes, clock = run(commands(MANY), timeout_s=5.0, a=sink)
    assert [name for name, outcome in outcomes.items() if outcome != Committed()] == ["t1"]
    assert outcomes["t1"] == RetryLater("busy")
    assert clock.now <= 5.0


def test_where_the_many_are_refused_each_is_asked_alone() -> None:
    sink = Together()
    sink.fails = True
    sink.answers = {"t7": [Unknown("forbidden")]}
    outcomes, _ = run(commands(MANY), a=sink)
    assert sorted(sink.alone) == sorted(f"t{number}" for number in range(MANY))
    assert [name for name, outcome in outcomes.items() if outcome != Committed()] == ["t7"]


class Raising(Together):
    """Raises what it is told to, one a call, and commits then."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    def commit(self, handle: Handle) -> Outcome:
        if self.errors:
            raise self.errors.pop(0)
        return super().commit(handle)


DENIED = ConfigurationError("refused", next_step="grant WRITE on transactional id t0")


@pytest.mark.parametrize(
    "error", [DENIED, ValueError("a defect"), UnavailableError("down", next_step="wait")]
)
def test_a_commit_that_raises_is_asked_for_again_and_never_unknown_by_itself(error: Exception) -> None:
    sink = Raising(error, error)
    outcomes, clock = run(commands(1), a=sink)
    assert outcomes == {"t0": Committed()}
    assert len(clock.slept) == 2


def test_a_commit_that_is_refused_to_the_end_says_what_it_needs_and_another_one_what_it_was() -> None:
    refused, _ = run(commands(1), timeout_s=5.0, a=Raising(*[DENIED] * 1000))
    assert refused["t0"] == RetryLater("refused", needs="grant WRITE on transactional id t0")
    failed, _ = run(commands(1), timeout_s=5.0, a=Raising(*[ValueError("a defect")] * 1000))
    assert failed["t0"] == RetryLater("ValueError: a defect")


def test_what_a_sink_itself_calls_in_doubt_is_unknown_and_asked_once() -> None:
    outcomes, clock = run(commands(1), a=Raising(InDoubtError("no marker", next_step="look")))
    assert outcomes == {"t0": Unknown("no marker")}
    assert not clock.slept


def test_a_sink_that_is_not_configured_is_not_waited_for() -> None:
    outcomes, clock = run(commands(1), b=Together())
    assert outcomes["t0"] == RetryLater(
        "no sink named 'a' is configured, though handles of it are pending",
        needs="give the query its sink 'a' again",
    )
    assert not clock.slept


def test_at_most_once_none_is_given_twice() -> None:
    sink = Together()
    sink.fails = True
    sink.answers = {"t7": [RetryLater("busy"), Committed()]}
    outcomes, _ = run(commands(MANY, once=True), a=sink)
    assert sink.given == []
    assert sorted(sink.alone) == sorted(f"t{number}" for number in range(MANY))
    assert outcomes["t7"] == RetryLater("busy")


@pytest.mark.parametrize("surplus", [-1, 1])
def test_a_sink_that_gives_too_few_or_too_many_outcomes_is_not_believed(
    surplus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Together()
    monkeypatch.setattr(sink, "commit_many", lambda handles: [Lost("which?")] * (len(handles) + surplus))
    outcomes, _ = run(commands(MANY), a=sink)
    assert set(outcomes.values()) == {Committed()}


class Whole(Together):
    """Is given an epoch at once."""

    capabilities: ClassVar[Capabilities] = Capabilities(guarantees=frozenset(Guarantee), whole_epochs=True)


@pytest.mark.parametrize("count", [1, 2, MANY])
def test_a_sink_of_whole_epochs_is_given_all_of_one_in_one_call(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"commit.after_handle=raise@{NEVER}")
    sink = Whole()
    outcomes, _ = run(commands(count), a=sink)
    assert sink.given == [[f"t{number}" for number in range(count)]]
    assert sink.alone == []
    assert set(outcomes.values()) == {Committed()}


def test_a_sink_of_whole_epochs_is_asked_again_as_a_whole() -> None:
    sink = Whole()
    sink.answers = {f"t{number}": [RetryLater("busy")] for number in range(MANY)}
    outcomes, clock = run(commands(MANY), a=sink)
    assert [len(each) for each in sink.given] == [MANY, MANY]
    assert len(clock.slept) == 1
    assert set(outcomes.values()) == {Committed()}


def test_what_a_sink_of_whole_epochs_raises_is_said_of_all_handles_and_none_is_asked_alone() -> None:
    sink = Whole()
    sink.fails = True
    outcomes, _ = run(commands(3), timeout_s=0.0, a=sink)
    assert set(outcomes.values()) == {RetryLater("refused", needs="grant it")}
    assert sink.alone == []
