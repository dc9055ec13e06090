"""Every state of an epoch and of a handle is told as it is: chains made by the protocol itself, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import OnceonlyError
from onceonly.model import (
    AlreadyCommitted,
    Capabilities,
    Committed,
    Guarantee,
    Handle,
    Lost,
    Mode,
    RetryLater,
    Unknown,
    Vote,
)
from onceonly.operations import render
from onceonly.operations.states import EpochState, EpochView, HandleState, describe, handles
from onceonly.ports import TwoPhaseCommitSink
from onceonly_proof.memory_log import MemoryLog

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.model import Outcome, Plan
    from onceonly.ports import WriteContext


class Scripted(TwoPhaseCommitSink[None]):
    """Answers the commit of each transaction as told."""

    name = "scripted"
    capabilities = Capabilities(guarantees=frozenset(Guarantee))

    def __init__(self) -> None:
        super().__init__({})
        self.answers: dict[str, Outcome] = {}

    def begin_transaction(self, context: WriteContext) -> None: ...
    def write(self, transaction: None, batch: pa.RecordBatch) -> None: ...
    def pre_commit(self, transaction: None) -> None: ...
    def abort(self, handle: Handle) -> None: ...

    def commit(self, handle: Handle) -> Outcome:
        return self.answers[handle.transaction]


_ANSWERS = st.sampled_from(
    [Committed(), AlreadyCommitted(), Lost("proof"), Unknown("no answer"), RetryLater("busy")]
)


def coordinator(log: MemoryLog, sink: Scripted, guarantee: Guarantee) -> Coordinator:
    made = Coordinator(log=log, actor="test", commit_timeout_s=0.0)
    made.join("s", Participant(sink=sink, guarantee=guarantee))
    return made


def votes(plan: Plan, answers: list[Outcome], sink: Scripted) -> list[Vote]:
    found = []
    for slot, answer in enumerate(answers):
        name = f"{plan.id}-{slot}"
        sink.answers[name] = answer
        found.append(
            Vote(
                sink="s", epoch=plan.epoch, slot=slot, plan=plan.id, run="r", attempt="1", rows=slot + 1,
                checksum=f"{slot:016x}", handle=Handle(transaction=name),
            )
        )  # fmt: skip
    return found


@given(
    tries=st.lists(st.lists(_ANSWERS, min_size=1, max_size=3), min_size=1, max_size=4),
    guarantee=st.sampled_from([Guarantee.EXACTLY_ONCE, Guarantee.AT_MOST_ONCE]),
)
def test_what_is_told_is_what_the_target_answered(tries: list[list[Outcome]], guarantee: Guarantee) -> None:
    """One epoch, tried until it ends or the script does; told after each step."""
    log, sink = MemoryLog(), Scripted()
    for answers in tries:
        driver = coordinator(log, sink, guarantee)
        try:
            plan = driver.plan(0)
            if plan.mode is Mode.DRAIN:
                break
            shown = votes(plan, answers, sink)
            if plan.mode is Mode.TENTATIVE:
                shown = shown[: len(plan.lost) + len(plan.carried)]
            driver.decide(plan, shown)
        except OnceonlyError:
            pass
        check(log, sink, guarantee)


def check(log: MemoryLog, sink: Scripted, guarantee: Guarantee) -> None:
    chain, receipt = log.chain(0), log.receipt(0)
    view = describe(0, chain, receipt, noted=False)
    told = {handle.transaction: handle.state for handle in handles(chain, receipt)}
    named = {vote.handle.transaction for link in chain for vote in link.votes if vote.handle}
    assert told.keys() == named
    for name, state in told.items():
        answer = sink.answers[name]
        if state is HandleState.COMMITTED:
            assert isinstance(answer, Committed | AlreadyCommitted)
        if state is HandleState.LOST:
            assert isinstance(answer, Lost)
        if receipt is not None and guarantee is Guarantee.EXACTLY_ONCE:
            assert state in {HandleState.COMMITTED, HandleState.LOST}
    states = set(told.values())
    assert (view.state is EpochState.COMMITTED) == (receipt is not None)
    assert (view.state is EpochState.DECIDED) == (HandleState.PENDING in states)
    assert view.pending == sum(state is HandleState.PENDING for state in told.values())
    if view.state is EpochState.REPAIRING:
        assert HandleState.LOST in states
        assert HandleState.COMMITTED in states


@pytest.mark.parametrize(("noted", "state"), [(False, EpochState.COMMITTED), (True, EpochState.COMPLETE)])
def test_spark_notes_an_epoch_after_us(noted: bool, state: EpochState) -> None:  # noqa: FBT001
    log, sink = MemoryLog(), Scripted()
    driver = coordinator(log, sink, Guarantee.EXACTLY_ONCE)
    plan = driver.plan(0)
    assert describe(0, log.chain(0), None, noted=False).state is EpochState.ABORTED
    driver.decide(plan, votes(plan, [Committed()], sink))
    view = describe(0, log.chain(0), log.receipt(0), noted=noted)
    assert (view.state, view.sinks, view.links) == (state, {"s": (1, 1)}, 2)
    assert describe(1, (), None, noted=False).state is EpochState.IN_FLIGHT


def test_refused_rows_are_counted_by_the_sink_that_refused_them() -> None:
    sinks = {"kafka": (97, 2), "kafka.letters": (3, 1), "files": (100, 2), "files.letters": (0, 0)}
    view = EpochView(epoch=1, state=EpochState.COMPLETE, sinks=sinks)
    assert view.dead_letters == {"kafka": 3}
    shown = render._sinks(view).plain
    assert "kafka.letters: 3 rows, 1 tx (3 refused by kafka)" in shown
    assert "(0 refused" not in shown
