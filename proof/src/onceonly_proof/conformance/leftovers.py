"""Contract: what a crash leaves is listed, swept and fenced, and a writer that was paused meanwhile is too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly_proof.conformance.selection import HIDDEN, RECOVERS, TWO_PHASES, UNREACHABLE, needs
from onceonly_proof.conformance.subject import Subject
from onceonly_proof.conformance.workload import Workload
from onceonly_proof.conformance.world import DONE, broken, refused, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from onceonly.model import Outcome, Vote
    from onceonly_proof.conformance.query import Query
    from onceonly_proof.conformance.world import World


class LeftoverTests(Subject):
    """``recover`` lists all that is this query's and nothing else; what is swept stays gone."""

    @needs(TWO_PHASES, HIDDEN, RECOVERS)
    def test_recover_lists_what_is_open_and_not_what_has_ended(self, world: World) -> None:
        if world.open():
            raise broken("recover lists what is open", f"{world.open()} in an empty target")
        handles = [world.prepared([slot], slot=slot) for slot in range(4)]
        names = {handle.transaction for handle in handles}
        expect_open(world, names)
        world.commit(handles[0])
        world.driver.abort(handles[1])
        expect_open(world, {handle.transaction for handle in handles[2:]})
        world.expect([0], "recover only looks")
        for handle in handles[2:]:
            world.commit(handle)
        expect_open(world, set())

    @needs(TWO_PHASES, HIDDEN, RECOVERS)
    def test_recover_lists_nothing_of_another_query_or_sink(self, world: World) -> None:
        # The name of one is the beginning of the other's.
        others = [world.another(query=world.query + "0"), world.another(sink=world.name + "2")]
        theirs = [other.prepared([number], epoch=0) for number, other in enumerate(others)]
        ours = world.prepared([7])
        expect_open(world, {ours.transaction})
        for other, handle in zip(others, theirs, strict=True):
            expect_open(other, {handle.transaction})
        world.sweep()
        for other, handle in zip(others, theirs, strict=True):
            outcome = other.commit(handle)
            if not isinstance(outcome, DONE):
                raise broken(
                    "a sweep touches nothing of another query or sink", f"its commit answered {outcome}"
                )
        world.expect([0, 1], "a sweep touches nothing of another query or sink")

    @needs(TWO_PHASES, HIDDEN, RECOVERS)
    def test_a_sweep_removes_what_is_open_and_spares_what_is_committed_or_kept(self, world: World) -> None:
        committed = world.committed([1])
        kept, lost = world.prepared([2], slot=1), world.prepared([3], slot=2)
        for _ in range(2):
            world.sweep(keep=[committed, kept])
        outcome = world.commit(lost)
        if isinstance(outcome, DONE):
            raise broken("what was swept is never committed", f"its commit answered {outcome}")
        world.commit(kept)
        world.expect([1, 2], "a sweep removes what is open and nothing else")
        world.sweep()
        world.expect([1, 2], "a sweep without anything to keep spares what is committed")
        world.expect_no_orphans("a sweep leaves nothing open")

    @needs(TWO_PHASES, RECOVERS)
    def test_what_recover_lists_is_aborted_by_another_process_by_its_data_alone(self, world: World) -> None:
        world.prepared([1])
        sink = world.sink()
        for leftover in list(sink.recover(world.context)):
            world.sink().abort(leftover.handle)
        world.expect_no_orphans("what recover lists is enough to abort it")

    @needs(TWO_PHASES, RECOVERS, UNREACHABLE)
    def test_recover_raises_rather_than_give_a_part_while_the_target_is_out_of_reach(
        self, world: World
    ) -> None:
        handle = world.prepared([1])
        with world.suite.unreachable(world.options):
            listed: list[object] = []
            if refused(lambda: listed.extend(world.driver.recover(world.context))) is None:
                raise broken("recover raises where it cannot list everything", f"it gave {listed}")
            answers: list[object] = []
            refused(lambda: answers.append(world.driver.commit(handle)))
            if answers and type(answers[0]).__name__ not in {"RetryLater", "Unknown"}:
                raise broken("a commit that cannot reach its target is in doubt", f"it answered {answers[0]}")
        outcome = world.commit(handle, world.sink())
        if not isinstance(outcome, DONE):
            raise broken("what was prepared is committed once the target is back", f"it answered {outcome}")
        world.expect([1], "what was prepared is visible once the target is back, once")

    # --- through the coordinator: zombies -------------------------------------------------------------------

    @pytest.mark.parametrize("paused", ["before it begins", "while it writes", "before pre_commit"])
    @needs(TWO_PHASES, RECOVERS)
    def test_an_attempt_that_was_paused_while_its_epoch_was_swept_writes_nothing_late(
        self, world: World, paused: str
    ) -> None:
        old = world.run(slots=1)
        plan = old.plan(0)

        def batches() -> Iterator[pa.RecordBatch]:
            first, last = ([*numbers] for numbers in old.work.load.batches(0, 0))
            if paused == "before it begins":
                overtake(world)
            yield old.suite.batch(first)
            if paused == "while it writes":
                overtake(world)
            yield old.suite.batch(last)
            if paused == "before pre_commit":
                overtake(world)

        votes: list[Vote] = []
        refused(lambda: votes.append(old.slot(plan, world.name, 0, batches=batches())))
        if paused != "before it begins":  # what begins later was not swept; no link will name it
            too_late(world, old, votes)
        if votes:
            error = refused(lambda: old.coordinator.decide(plan, votes))
            if error is None:
                raise broken("a run that was overtaken decides nothing", "its decision was taken")
        settled(world)

    @needs(TWO_PHASES, RECOVERS)
    def test_an_attempt_that_was_paused_between_pre_commit_and_vote_writes_nothing_late(
        self, world: World
    ) -> None:
        old = world.run(slots=1)
        plan = old.plan(0)
        votes = [old.slot(plan, world.name, 0)]
        overtake(world)
        if refused(lambda: old.coordinator.decide(plan, votes)) is None:
            raise broken("a run that was overtaken decides nothing", "its decision was taken")
        too_late(world, old, votes)
        old.coordinator.abort(plan, votes)
        settled(world)


def expect_open(world: World, wanted: set[str]) -> None:
    """See that ``recover`` lists these as open and nothing else."""
    found: set[str] = set()

    def looked() -> bool:
        found.clear()
        found.update(each.transaction for each in world.open())
        return found == wanted

    if not wait_for(looked):
        promise = f"recover of query {world.query}, sink {world.name}, lists what is open and nothing else"
        raise broken(promise, f"missing: {sorted(wanted - found)}; wrongly listed: {sorted(found - wanted)}")


def overtake(world: World) -> None:
    """Let a new run claim, sweep, write and decide the first epoch."""
    with world.run(epochs=1, slots=1) as new:
        new.run_all()


def too_late(world: World, old: Query, votes: list[Vote]) -> None:
    """See that what a zombie has prepared is not committed any more, whoever asks."""
    for vote in votes:
        if vote.handle is None:
            continue
        handle = vote.handle
        answers: list[Outcome] = []
        refused(lambda handle=handle, to=answers: to.append(old.sinks[world.name].commit(handle)))  # type: ignore[misc]
        if answers and isinstance(answers[0], DONE):
            raise broken("a swept attempt is fenced", f"the commit of its late handle answered {answers[0]}")


def settled(world: World) -> None:
    """Let a run go on to the end; see each row once and nothing left."""
    with world.run(slots=1) as new:
        new.run_all()
    world.expect(Workload(slots=1).numbers(), "after a zombie, every row is visible, once")
    with world.run(epochs=3, slots=1) as new:
        new.run_all()
    world.expect(Workload(epochs=3).numbers(), "after a zombie, every row is visible, once")
    world.expect_no_orphans("what a zombie has prepared late is swept")
