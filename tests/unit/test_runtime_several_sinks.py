"""Several sinks under one decision: which take part, what they promise, and when they are told."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.test_runtime_coordinator import DEALT, SINKS, Job

from onceonly import errors, failpoints
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.executor.kept import Kept
from onceonly.model import Guarantee, Handle, Mode, RetryLater, SinkUse, Unknown
from onceonly.ports import Leftover
from onceonly.protocol.deciding import totals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onceonly.model import Plan, Vote
    from onceonly.ports import QueryContext


def told(job: Job, sink: str = "a") -> list[tuple[int, int]]:
    """Listen to a sink's ``complete``: the epoch, and how many handles."""
    seen: list[tuple[int, int]] = []

    def complete(context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        states = [job.store(sink).transactions[handle.transaction].state for handle in handles]
        assert states == ["committed"] * len(handles)
        assert epoch not in job.disk.receipts
        seen.append((epoch, len(handles)))

    job.sinks[sink].complete = complete  # type: ignore[method-assign]  # listening in
    return seen


def test_a_sink_is_told_of_each_epoch_when_all_of_it_is_committed_and_before_the_receipt() -> None:
    job = Job()
    seen = told(job)
    job.live(2)
    assert seen == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize("point", ["commit.after_handle", "complete.before", "receipt.before_put"])
def test_a_crash_before_the_receipt_tells_the_sink_again(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{point}=raise@2")
    monkeypatch.delenv("ONCEONLY_FAILPOINTS_DIR", raising=False)
    monkeypatch.setattr(failpoints, "_counts", {})
    job = Job()
    seen = told(job)
    job.finish(2)
    job.check()
    assert set(seen) == {(0, 2), (1, 2), (2, 2)}


def test_a_repaired_epoch_is_told_with_what_an_earlier_link_committed() -> None:
    job = Job()
    seen = told(job)
    lost = "a.run0.0"
    job.disk.hook = lambda step, value: (
        job.store().expire(lost) if step == "link.after" and _names(value) else None
    )
    with pytest.raises(errors.TransactionLostError):
        job.live(0)
    job.disk.hook = None
    job.finish(0)
    job.check()
    assert seen == [(0, 2)]


def _names(value: object) -> bool:
    return bool(getattr(value, "votes", ()))


def test_what_a_repair_carries_is_made_durable_before_the_link_that_says_so() -> None:
    """Nobody commits again what is carried, so a loss of power must not take it back."""
    job = Job()
    job.disk.hook = lambda step, value: (
        job.store().expire("a.run0.0") if step == "link.after" and _names(value) else None
    )
    with pytest.raises(errors.TransactionLostError):
        job.live(0)
    job.disk.hook = None
    seen: list[tuple[str, int, int]] = []
    failures = iter([OSError("no space"), errors.UnavailableError("busy", next_step="wait")])

    def told_by(name: str) -> Callable[[Sequence[Handle]], None]:
        def make_durable(handles: Sequence[Handle]) -> None:
            if (error := next(failures, None)) is not None:
                raise error
            seen.append((name, len(handles), len(job.disk.links[0])))

        return make_durable

    for name, sink in job.sinks.items():
        sink.make_durable = told_by(name)  # type: ignore[assignment]  # listening in
    links = len(job.disk.links[0])
    for said in ("no space", "busy"):
        with pytest.raises(errors.UnavailableError, match=said):
            job.live(0)
        assert len(job.disk.links[0]) == links
    job.live(1)
    job.check()
    assert seen == [("a", 1, links), ("b", 2, links)]


def test_a_sink_that_is_gone_while_an_earlier_link_carries_rows_of_it_is_asked_for_by_name() -> None:
    job = Job()
    job.disk.hook = lambda step, value: (
        job.store().expire("a.run0.0") if step == "link.after" and _names(value) else None
    )
    with pytest.raises(errors.TransactionLostError):
        job.live(0)
    job.disk.hook = lambda step, _value: _raise("down") if step == "receipt.before" else None
    with pytest.raises(errors.UnavailableError, match="down"):
        job.live(0)
    job.disk.hook = None
    link = job.disk.links[0][-1]
    # As where Spark has gone on to an epoch that is written to other sinks.
    job.disk.links[0][-1] = replace(link, settings={"a": link.settings["a"]})
    sink = job.sinks.pop("b")

    with pytest.raises(errors.ConfigurationError, match="rows in the sink b, which the query has no more"):
        job.coordinator().plan(0, run="next")
    job.sinks["b"], job.disk.links[0][-1] = sink, link
    job.finish(1)
    job.check()


def _raise(what: str) -> None:
    raise errors.UnavailableError(what, next_step="wait")


def test_a_sink_that_cannot_complete_its_epoch_is_asked_again_by_the_next_run() -> None:
    job = Job()
    failures = iter([OSError("no space"), errors.UnavailableError("busy", next_step="wait")])
    seen: list[int] = []

    def complete(context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        error = next(failures, None)
        if error is not None:
            raise error
        seen.append(epoch)

    job.sinks["a"].complete = complete  # type: ignore[method-assign]  # as above
    for said in ("no space", "busy"):
        with pytest.raises(errors.UnavailableError, match=said):
            job.live(0)
        assert 0 not in job.disk.receipts
    job.live(0)
    job.check()
    assert seen == [0]


def test_a_mistake_in_the_code_that_completes_is_raised_as_what_it_is_and_what_is_committed_stays() -> None:
    job = Job()
    mistake = AttributeError("'Table' object has no attribute 'publish'")
    failures = iter([mistake])

    def complete(context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        if (error := next(failures, None)) is not None:
            raise error

    job.sinks["a"].complete = complete  # type: ignore[method-assign]  # as above
    with pytest.raises(AttributeError) as caught:
        job.live(0)
    assert caught.value is mistake
    assert [
        note for note in mistake.__notes__ if "the sink a" in note and "What is committed stays so" in note
    ]
    assert 0 not in job.disk.receipts
    job.live(0)
    job.check()


@pytest.mark.parametrize("killed", [False, True])
def test_at_most_once_the_sink_is_told_of_every_handle_and_looks_what_is_there(killed: bool) -> None:  # noqa: FBT001  a parameter
    job = Job(guarantee=Guarantee.AT_MOST_ONCE, graceful=False)
    seen: list[tuple[int, list[str]]] = []

    def complete(context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        found = job.store().transactions
        seen.append((epoch, sorted(found[handle.transaction].state for handle in handles)))

    job.sinks["a"].complete = complete  # type: ignore[method-assign]  # listening in
    job.store().answers["a.run0.0"].append(Unknown("no answer"))
    if killed:
        job.disk.hook = _die_once("receipt.before")
    job.finish(1)
    assert seen[0] == (0, ["committed", "prepared"])
    assert seen[-1] == (1, ["committed", "committed"])
    assert {epoch for epoch, _ in seen} == {0, 1}


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (Guarantee.AT_MOST_ONCE, Guarantee.EXACTLY_ONCE),
        (Guarantee.EXACTLY_ONCE, Guarantee.AT_MOST_ONCE),
    ],
)
def test_an_epoch_is_completed_as_it_was_promised_by_a_run_that_promises_otherwise(
    then: Guarantee, now: Guarantee
) -> None:
    job = Job(guarantee=then, graceful=False)

    def die(step: str, value: object) -> None:
        if step == "link.after" and _names(value):
            job.disk.hook = None
            raise failpoints.FailpointError(step)

    job.disk.hook = die
    with pytest.raises(failpoints.FailpointError):
        job.live(0)
    seen: list[tuple[int, Guarantee]] = []

    def complete(context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        seen.append((epoch, context.guarantee))

    job.sinks["a"].complete = complete  # type: ignore[method-assign]  # listening in
    job.guarantee = now
    job.finish(1)
    assert seen == [(0, then), (1, now)]


def _die_once(step: str) -> Callable[[str, object], None]:
    left = [step]

    def hook(at: str, _value: object) -> None:
        if at in left:
            left.remove(at)
            raise failpoints.FailpointError(at)

    return hook


def test_what_is_tidied_up_after_its_end_is_not_said_to_be_aborted() -> None:
    job = Job()
    seen: list[str] = []
    coordinator = Coordinator(
        log=job.log_of(job.disk),
        actor="driver",
        clock=job.clock,
        watch=lambda step: seen.append(str(step["kind"])),
    )
    coordinator.join("a", Participant(sink=job.sinks["a"], guarantee=Guarantee.EXACTLY_ONCE))
    job.sinks["a"].recover = lambda context: [Leftover(transaction="a.ended", is_open=False)]  # type: ignore[method-assign]  # as above
    job.sinks["a"].abort = lambda handle: seen.append(handle.transaction)  # type: ignore[method-assign]  # as above
    coordinator.plan(0, run="r")
    assert seen == ["plan.started", "link.persisted", "a.ended", "tidied", "epoch.planned"]


def test_an_older_checkpoint_over_a_newer_world_stops_before_anything_is_swept() -> None:
    job = Job()
    job.live(1)
    recover = job.sinks["a"].recover
    newer = Leftover(transaction="a.newer", epoch=9)
    job.sinks["a"].recover = lambda context: [newer, *recover(context)]  # type: ignore[method-assign]  # as above
    calls = [call for call in job.store().calls if call[0] == "abort"]
    with pytest.raises(errors.LogError, match=r"chk-9: an older checkpoint was restored") as caught:
        job.live(2)
    assert "newest checkpoint" in caught.value.next_step
    assert [call for call in job.store().calls if call[0] == "abort"] == calls


@pytest.mark.parametrize(("committed", "swept"), [(1, ["a.open"]), (2, []), (3, [])])
def test_a_claim_under_what_is_committed_stops_before_anything_is_swept(
    committed: int, swept: list[str]
) -> None:
    """What is open may tell no epoch, and its sink what it has committed: of an epoch that is claimed, nothing."""
    job = Job()
    job.live(1)
    found = Leftover(transaction="a.open", committed=committed)
    job.sinks["a"].recover = lambda context: [found]  # type: ignore[method-assign]  # as above
    aborted: list[str] = []
    job.sinks["a"].abort = lambda handle: aborted.append(handle.transaction)  # type: ignore[method-assign]  # as above
    older = f"chk-{committed}: an older checkpoint was restored"
    with nullcontext() if swept else pytest.raises(errors.LogError, match=older):
        job.coordinator().plan(2, barrier=("2",), run="r")
    assert aborted == swept


def test_a_sink_is_checked_at_each_start_and_when_it_is_replaced_and_not_in_every_epoch() -> None:
    job = Job()
    checked: list[str] = []

    def check(context: QueryContext) -> dict[str, str | int]:
        checked.append(context.sink)
        return {"checks": len(checked)}

    for sink in job.sinks.values():
        sink.check = check  # type: ignore[method-assign]  # listening in
    coordinator = job.coordinator()
    last = coordinator.plan(0, barrier=("0",), run="r")
    assert last.facts == {"a": {"checks": 1}, "b": {"checks": 2}}
    for epoch in (1, 2):
        coordinator.decide(last, votes_of(job, last, SINKS))
        last = coordinator.plan(epoch, barrier=(str(epoch),), run="r", continues=last.id)
    assert (checked, last.facts["b"]) == (["a", "b"], {"checks": 2})

    coordinator.decide(last, votes_of(job, last, SINKS))
    coordinator.join(
        "b", Participant(sink=job.sinks["b"], guarantee=Guarantee.EXACTLY_ONCE, columns=(("n", "int"),))
    )
    last = coordinator.plan(3, barrier=("3",), run="r", continues=last.id)
    assert (checked, last.facts["b"]) == (["a", "b", "b"], {"checks": 3})

    assert coordinator.plan(3, barrier=("3",), run="s").facts["a"] == {"checks": 4}
    assert checked == ["a", "b", "b", "a", "b"]


# --- who takes part -----------------------------------------------------------------------------------------


def votes_of(job: Job, plan: Plan, sinks: Sequence[str]) -> list[Vote]:
    return [job.task(plan, sink, slot, run="r") for sink in sinks for slot in range(len(DEALT))]


def test_an_epoch_may_leave_a_sink_out_and_its_replay_may_not_put_it_in() -> None:
    job = Job()
    coordinator = job.coordinator()
    first = coordinator.plan(0, sinks=["a"], barrier=("0",), run="r")
    assert list(first.settings) == ["a"]
    coordinator.decide(first, votes_of(job, first, "a"))
    calls = [list(job.store(sink).calls) for sink in SINKS]

    for sinks in (["a", "b"], ["b"], []):
        with pytest.raises(errors.ReplayMismatchError, match="other sinks"):
            job.coordinator().plan(0, sinks=sinks, barrier=("0",), run="s")
    assert calls == [job.store(sink).calls for sink in SINKS]
    assert job.coordinator().plan(0, sinks=["a"], barrier=("0",), run="s").decided is not None


def test_an_epoch_without_any_sink_is_decided_too() -> None:
    job = Job()
    coordinator = job.coordinator()
    plan = coordinator.plan(0, sinks=[], barrier=("0",), run="r")
    coordinator.decide(plan, [])
    assert 0 in job.disk.receipts
    second = coordinator.plan(1, sinks=SINKS, barrier=("1",), run="r", continues=plan.id)
    coordinator.decide(second, votes_of(job, second, SINKS))
    assert job.store("b").visible(epoch=1) == Counter({(11,): 1, (12,): 1, (13,): 1})


def test_the_receipt_of_an_epoch_without_handles_tells_no_time_of_another() -> None:
    job = Job()
    job.store().answers["a.r.0"].append(RetryLater("busy"))
    coordinator = job.coordinator()
    first = coordinator.plan(0, barrier=("0",), run="r")
    coordinator.decide(first, votes_of(job, first, SINKS))
    second = coordinator.plan(1, barrier=("1",), run="r", continues=first.id)
    coordinator.decide(second, [])
    assert job.disk.receipts[0].seconds > 0
    assert job.disk.receipts[1].seconds == 0


def test_a_sink_that_an_epoch_leaves_out_is_swept_all_the_same() -> None:
    job = Job()
    coordinator = job.coordinator()
    first = coordinator.plan(0, sinks=SINKS, barrier=("0",), run="r")
    votes = votes_of(job, first, SINKS)
    loser = job.task(first, "b", 0, run="r", attempt="1")
    job.sinks["b"].abort = lambda handle: None  # type: ignore[method-assign]  # it cannot be reached just then
    coordinator.decide(first, votes)
    del job.sinks["b"].abort
    assert loser.handle is not None
    assert loser.handle.transaction in job.store("b").pending()

    second = coordinator.plan(1, sinks=["a"], barrier=("1",), run="r", continues=first.id)
    coordinator.decide(second, votes_of(job, second, "a"))
    assert job.store("b").pending() == []


def mixed(job: Job, **guarantees: Guarantee) -> Coordinator:
    coordinator = Coordinator(log=job.log_of(job.disk), actor="driver", clock=job.clock)
    for name, guarantee in guarantees.items():
        use = SinkUse(sink="memory", guarantee=guarantee)
        coordinator.join(name, Participant(sink=job.sinks[name], guarantee=guarantee, use=use))
    return coordinator


def test_exactly_once_beside_at_least_once_is_decided_exactly_once() -> None:
    job = Job()
    plan = mixed(job, a=Guarantee.EXACTLY_ONCE, b=Guarantee.AT_LEAST_ONCE).plan(0, run="r")
    assert plan.guarantee is Guarantee.EXACTLY_ONCE
    assert {name: use.guarantee for name, use in plan.uses.items()} == {
        "a": Guarantee.EXACTLY_ONCE,
        "b": Guarantee.AT_LEAST_ONCE,
    }


def test_a_loser_that_cannot_be_aborted_keeps_nothing_that_is_decided_from_being_committed() -> None:
    job = Job()
    job.disk.hook = lambda step, value: (
        job.store().expire("a.run0.0") if step == "link.after" and _names(value) else None
    )
    with pytest.raises(errors.TransactionLostError):
        job.live(0)
    job.disk.hook = None

    coordinator = job.coordinator()
    plan = coordinator.plan(0, barrier=("0",), run="r")
    assert plan.mode is Mode.TENTATIVE
    asked: list[str] = []

    def abort(handle: Handle) -> None:
        asked.append(handle.transaction)
        raise OSError("the client's own error")

    job.sinks["a"].abort = abort  # type: ignore[method-assign]  # what a client lets slip
    coordinator.decide(plan, votes_of(job, plan, SINKS))
    assert asked
    assert 0 in job.disk.receipts


def test_what_is_lost_of_one_sink_is_written_again_beside_rows_that_another_showed_at_once() -> None:
    job = Job()
    promised = {"a": Guarantee.EXACTLY_ONCE, "b": Guarantee.AT_LEAST_ONCE}

    def task(plan: Plan, name: str, slot: int) -> Vote:
        return job.task(replace(plan, guarantee=promised[name]), name, slot, run="r")

    coordinator = mixed(job, **promised)
    plan = coordinator.plan(0, barrier=("0",), run="r")
    votes = [task(plan, name, slot) for name in SINKS for slot in range(len(DEALT))]
    job.disk.hook = lambda step, value: (
        job.store().expire("a.r.0") if step == "link.after" and _names(value) else None
    )
    with pytest.raises(errors.TransactionLostError):
        coordinator.decide(plan, votes)
    job.disk.hook = None

    coordinator = mixed(job, **promised)
    again = coordinator.plan(0, barrier=("0",), run="s")
    assert again.mode is Mode.TENTATIVE
    coordinator.decide(again, [task(again, name, slot) for name in SINKS for slot in range(len(DEALT))])
    for name in SINKS:
        assert job.store(name).visible() == Counter({(1,): 1, (2,): 1, (3,): 1})
    replayed = mixed(job, **promised).plan(0, barrier=("0",), run="t")
    assert replayed.decided is not None
    assert totals(replayed.decided.output) == totals(votes)


@pytest.mark.parametrize("other", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
def test_at_most_once_beside_anything_else_is_refused(other: Guarantee) -> None:
    job = Job()
    with pytest.raises(errors.ConfigurationError, match="at-most-once"):
        mixed(job, a=Guarantee.AT_MOST_ONCE, b=other).plan(0, run="r")
    assert job.disk.links == {}


def test_the_watcher_is_given_every_step() -> None:
    job = Job()
    seen: list[str] = []
    coordinator = Coordinator(
        log=job.log_of(job.disk),
        actor="operator",
        clock=job.clock,
        watch=lambda step: seen.append(str(step["kind"])),
    )
    for name, sink in job.sinks.items():
        coordinator.join(name, Participant(sink=sink, guarantee=Guarantee.EXACTLY_ONCE))
    plan = coordinator.plan(0, run="r")
    coordinator.decide(plan, votes_of(job, plan, SINKS))
    assert seen == [
        *("plan.started", "link.persisted", "epoch.planned"),
        *("votes.collected", "epoch.checked", "link.persisted"),
        *["handle.committed"] * 4,
        *["epoch.completed"] * 2,
        *("receipt.persisted", "epoch.done"),
    ]


def test_the_watcher_is_told_how_long_each_commit_was_waited_for() -> None:
    job = Job()
    steps: list[Mapping[str, str | int]] = []
    coordinator = Coordinator(log=job.log_of(job.disk), actor="driver", clock=job.clock, watch=steps.append)
    for name, sink in job.sinks.items():
        coordinator.join(name, Participant(sink=sink, guarantee=Guarantee.EXACTLY_ONCE))
    plan = coordinator.plan(0, run="r")
    slow, *_ = votes = votes_of(job, plan, SINKS)
    assert slow.handle is not None
    job.store(slow.sink).answers[slow.handle.transaction].append(RetryLater("busy"))
    coordinator.decide(plan, votes)
    waited = {step["transaction"]: step["after_ms"] for step in steps if step["kind"] == "handle.committed"}
    assert len(waited) == sum(vote.handle is not None for vote in votes)
    assert waited[slow.handle.transaction] == 20


# --- what is held between epochs ----------------------------------------------------------------------------


class Thing:
    def __init__(self, name: str, closed: list[str]) -> None:
        self.name, self._closed = name, closed

    def close(self) -> None:
        self._closed.append(self.name)


def test_a_thing_is_kept_for_its_next_use_and_the_longest_unused_goes_first() -> None:
    closed: list[str] = []
    held: Kept[str, Thing] = Kept(2)

    def make(name: str) -> Callable[[], Thing]:
        return lambda: Thing(name, closed)

    for key in ("a", "b", "a", "c"):
        with held.use(key, make(key)) as thing:
            assert thing.name == key
    assert closed == ["b"]


def test_a_thing_whose_use_failed_is_closed_and_made_anew() -> None:
    closed: list[str] = []
    held: Kept[str, Thing] = Kept(2)
    with pytest.raises(OSError, match="torn"), held.use("a", lambda: Thing("old", closed)):
        raise OSError("torn")
    with held.use("a", lambda: Thing("new", closed)) as thing:
        assert (thing.name, closed) == ("new", ["old"])


def test_two_users_of_one_key_at_a_time_have_a_thing_each() -> None:
    closed: list[str] = []
    held: Kept[str, Thing] = Kept(2)
    with (
        held.use("a", lambda: Thing("first", closed)),
        held.use("a", lambda: Thing("second", closed)) as inner,
    ):
        assert inner.name == "second"
    assert closed == ["second"]
