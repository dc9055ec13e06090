"""Contract: what is visible when, and what each outcome of a commit means."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING

from onceonly.model import Committed, Handle, Lost, RetryLater, Unknown
from onceonly.ports.standing import Stands
from onceonly_proof.conformance.selection import HIDDEN, PROCESSES, REFUSES, TWO_PHASES, needs
from onceonly_proof.conformance.subject import Subject
from onceonly_proof.conformance.workload import Workload
from onceonly_proof.conformance.world import DONE, batch_rows, broken, refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceonly.model import Outcome
    from onceonly_proof.conformance.forker import Forker
    from onceonly_proof.conformance.world import World


class ContractTests(Subject):
    """Nothing before the commit, everything after it, once."""

    @needs(TWO_PHASES, HIDDEN)
    def test_nothing_is_visible_before_its_commit(self, world: World) -> None:
        promise = "rows are invisible until they are committed"
        attempt = world.begin()
        world.expect([], f"after begin_transaction, {promise}")
        attempt.write([1, 2])
        world.expect([], f"after write, {promise}")
        attempt.write([3])
        handle = attempt.pre_commit()
        world.expect([], f"after pre_commit, {promise}")
        world.driver.close()
        world.expect([], f"after close, {promise}")
        outcome = world.commit(handle, world.sink())
        if not isinstance(outcome, Committed):
            raise broken("the first commit answers Committed", f"it answered {outcome}")
        world.expect([1, 2, 3], "after commit, every row is visible, once")

    @needs(TWO_PHASES)
    def test_a_second_commit_doubles_nothing(self, world: World) -> None:
        handle = world.committed([1, 2])
        for sink in (world.driver, world.sink(), world.sink()):
            outcome = world.commit(handle, sink)
            if not isinstance(outcome, DONE):
                raise broken(
                    "a repeated commit answers Committed or AlreadyCommitted", f"it answered {outcome}"
                )
        world.expect([1, 2], "after repeated commits, every row is visible, once")

    @needs(TWO_PHASES)
    def test_a_commit_from_many_threads_at_a_time_doubles_nothing(self, world: World) -> None:
        handle = world.prepared([1, 2, 3])
        sinks = [world.driver, world.sink(), world.sink(), world.driver] * 2
        for outcome in together([lambda sink=sink: world.commit(handle, sink) for sink in sinks]):  # type: ignore[misc]
            if not isinstance(outcome, DONE):
                raise broken(
                    "each of several commits at a time is Committed or AlreadyCommitted", f"{outcome}"
                )
        world.expect([1, 2, 3], "after several commits at a time, every row is visible, once")

    @needs(TWO_PHASES, HIDDEN)
    def test_different_handles_are_committed_from_many_threads_at_a_time(self, world: World) -> None:
        handles = [world.prepared([slot * 2, slot * 2 + 1], slot=slot) for slot in range(6)]
        world.expect([], "rows are invisible until they are committed")
        for outcome in together([lambda each=each: world.commit(each) for each in handles]):  # type: ignore[misc]
            if not isinstance(outcome, DONE):
                raise broken("commits of different handles at a time succeed", f"one answered {outcome}")
        world.expect(
            list(range(12)), "after commits of different handles at a time, every row is visible, once"
        )

    @needs(TWO_PHASES, HIDDEN)
    def test_many_commits_at_once_have_each_its_own_outcome(self, world: World) -> None:
        handles = [world.prepared([slot * 2, slot * 2 + 1], slot=slot) for slot in range(4)]
        world.driver.abort(handles[1])
        for _ in ("first", "again"):
            outcomes = world.commit_many(handles)
            if len(outcomes) != len(handles):
                raise broken(
                    "commit_many gives an outcome for each handle",
                    f"{len(outcomes)} for {len(handles)} handles",
                )
            for place, outcome in enumerate(outcomes):
                if isinstance(outcome, DONE) == (place == 1):
                    raise broken(
                        "commit_many gives outcomes in the order of the handles",
                        f"handle {place} answered {outcome}",
                    )
            world.expect(
                [0, 1, 4, 5, 6, 7], "after many commits at once, what was not aborted is visible, once"
            )

    @needs(TWO_PHASES, REFUSES)
    def test_refused_rows_are_given_back_and_no_others(self, world: World) -> None:
        import pyarrow as pa

        wrong = world.suite.refusable()
        schema = world.suite.batch([1]).schema
        parts = [
            world.suite.batch([1]),
            wrong.cast(schema),
            world.suite.batch([2]),
            wrong.slice(0, 1).cast(schema),
        ]
        mixed = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        expected = [*range(1, 1 + wrong.num_rows), 2 + wrong.num_rows]
        attempt = world.begin(gives_back=True)
        given = sorted(each.row for each in attempt.sink.write(attempt.transaction, mixed) or ())
        if given != expected:
            raise broken("write gives back the rows that are refused", f"it gave {given}, not {expected}")
        world.commit(attempt.pre_commit())
        world.expect([1, 2], "rows that were given back are not visible, and all others are")

    @needs(TWO_PHASES)
    def test_a_look_up_tells_where_a_transaction_stands_and_changes_nothing(self, world: World) -> None:
        handle, aborted = world.prepared([1, 2]), world.prepared([3], slot=1)
        expect_standing(world, handle, Stands.OPEN, "what is prepared is open, or unknown")
        world.driver.abort(aborted)
        expect_standing(world, aborted, Stands.GONE, "what is aborted is gone, or unknown")
        outcome = world.commit(handle, world.sink())
        if not isinstance(outcome, Committed):
            raise broken("a look-up changes nothing, and the first commit is Committed", f"it was {outcome}")
        expect_standing(world, handle, Stands.COMMITTED, "what is committed is committed, or unknown")

    @needs(TWO_PHASES, HIDDEN)
    def test_an_abort_removes_all_and_may_be_repeated(self, world: World) -> None:
        alone = world.prepared([1, 2])
        world.driver.abort(alone)
        world.expect_no_orphans("an abort leaves nothing open")
        aborted, kept = world.prepared([1, 2]), world.prepared([3], slot=1)
        for sink in (world.driver, world.driver, world.sink()):
            sink.abort(aborted)
        world.expect([], "an aborted transaction shows nothing")
        world.commit(kept)
        world.expect([3], "an abort touches its own transaction only")

    @needs(TWO_PHASES, HIDDEN)
    def test_a_commit_after_an_abort_is_lost_or_unknown_and_shows_nothing(self, world: World) -> None:
        handle = world.prepared([1, 2])
        world.driver.abort(handle)
        for sink in (world.driver, world.sink()):
            expect_not_committed(world, handle, sink.commit, "a commit after an abort is Lost or Unknown")
        world.committed([3], epoch=1)
        world.expect([3], "a commit after an abort shows nothing, also later")

    @needs(TWO_PHASES)
    def test_an_abort_after_a_commit_takes_nothing_away(self, world: World) -> None:
        handle = world.committed([1, 2])
        for sink in (world.driver, world.sink()):
            sink.abort(handle)
        world.committed([3], epoch=1)
        world.expect([1, 2, 3], "an abort after a commit takes nothing away")
        outcome = world.commit(handle)
        if isinstance(outcome, Lost):
            raise broken("what is committed is never Lost", f"after an abort, its commit answered {outcome}")
        world.expect([1, 2, 3], "a commit after both doubles nothing")

    @needs(TWO_PHASES, HIDDEN)
    def test_an_unknown_handle_is_not_committed_and_its_abort_does_no_harm(self, world: World) -> None:
        real = world.prepared([1])
        forged = another_name(real)
        expect_not_committed(
            world,
            forged,
            world.driver.commit,
            "the commit of an unknown handle is not Committed",
            # Where the target cannot yet tell it from what is open.
            also=RetryLater,
        )
        world.driver.abort(forged)
        outcome = world.commit(real)
        if not isinstance(outcome, DONE):
            raise broken(
                "commit and abort of an unknown handle touch no other", f"its commit answered {outcome}"
            )
        world.expect([1], "commit and abort of an unknown handle touch no other")

    @needs(TWO_PHASES)
    def test_of_two_attempts_at_one_slot_only_the_one_that_is_voted_shows(self, world: World) -> None:
        first, second = world.begin(), world.begin()
        for attempt in (first, second):
            attempt.write([1, 2])
        winner, loser = second.pre_commit(), first.pre_commit()
        if winner.transaction == loser.transaction:
            raise broken("attempts at one slot have names of their own", f"both are {winner.transaction}")
        world.commit(winner)
        world.expect([1, 2], "of two attempts at one slot, the committed one is visible, once")
        world.driver.abort(loser)
        world.committed([3], epoch=1)
        world.expect([1, 2, 3], "the abort of a twin takes nothing away")
        if world.suite.sink.capabilities.recovers:
            world.sweep()
            world.expect_no_orphans("the abort of a twin leaves nothing open")

    @needs(TWO_PHASES, HIDDEN, PROCESSES)
    def test_a_handle_outlives_its_process(self, world: World, forker: Forker, place: Path) -> None:
        to, log = place / "handle", place / "log"
        work = asdict(world.work())
        ending = forker.start(self, "prepare_and_die", {**work, "to": str(to)}, env={}, log=log).wait()
        if not ending.killed:
            raise broken("a slot is prepared in another process", str(ending))
        handle = json.loads(to.read_text(encoding="utf-8"))
        world.expect([], "what a dead process has prepared is invisible")
        for _ in range(2):
            ending = forker.start(self, "commit", {**work, "handle": handle}, env={}, log=log).wait()
            if ending.result not in {"Committed", "AlreadyCommitted"}:
                raise broken(
                    "any process can commit what a dead one has prepared", ending.result or str(ending)
                )
        numbers = Workload(epochs=1).numbers()
        world.expect(numbers, "what a dead process has prepared is visible after its commit, once")

    @needs(TWO_PHASES)
    def test_complete_may_be_called_again(self, world: World) -> None:
        handles = [world.committed([1, 2]), world.committed([3], slot=1)]
        for sink in (world.driver, world.driver, world.sink()):
            sink.complete(world.context, 0, tuple(handles))
        world.expect([1, 2, 3], "complete, repeated, changes no row")

    @needs(TWO_PHASES, HIDDEN)
    def test_what_is_discarded_shows_nothing_and_leaves_nothing(self, world: World) -> None:
        attempts = [world.begin(slot=slot) for slot in range(3)]
        for attempt in attempts[1:]:
            attempt.write([1, 2])
        attempts[2].pre_commit()
        for attempt in attempts:
            attempt.sink.discard(attempt.transaction)
        world.expect([], "what is discarded is invisible")
        if world.suite.sink.capabilities.recovers:
            world.sweep()
            world.expect_no_orphans("what is discarded is gone after the next sweep")

    @needs(TWO_PHASES)
    def test_an_epoch_with_empty_slots_and_one_without_rows_are_decided(self, world: World) -> None:
        with world.run(epochs=3, slots=3) as query:
            plan = query.plan(0)
            empty = [query.slot(plan, world.name, slot, batches=[]) for slot in range(3)]
            query.coordinator.decide(plan, empty)
            query.complete(0)
            query.run_all()
        load = Workload(epochs=3, slots=3)
        world.expect(load.numbers([1, 2]), "epochs with empty slots show the rows of the others, once")

    @needs(TWO_PHASES)
    def test_a_transaction_takes_a_large_batch_and_many_batches(self, world: World) -> None:
        attempt = world.begin()
        attempt.write(list(range(5000)))
        for number in range(5000, 5100):
            attempt.write([number])
        world.commit(attempt.pre_commit())
        world.expect(list(range(5100)), "a large batch and many batches are visible after the commit, once")

    @needs(TWO_PHASES)
    def test_values_come_out_as_they_went_in(self, world: World, sample: str) -> None:
        batch = world.suite.samples()[sample]
        attempt = world.begin()
        attempt.sink.write(attempt.transaction, batch)
        world.commit(attempt.pre_commit())
        world.expect_rows(batch_rows(batch), f"the sample {sample!r} comes out as it went in", world.visible)


def together(actions: list[Callable[[], Outcome]]) -> list[Outcome]:
    """Do all at a time; return the answers."""
    with ThreadPoolExecutor(len(actions)) as pool:
        return [done.result() for done in [pool.submit(action) for action in actions]]


def expect_standing(world: World, handle: Handle, stands: Stands, promise: str) -> None:
    """See that any process is told where a transaction stands, or that it is not known."""
    for sink in (world.driver, world.sink()):
        found = sink.look_up(handle)
        if found.stands not in {stands, Stands.UNKNOWN} or not found.told:
            raise broken(f"look_up: {promise}", f"it was told {found}")


def expect_not_committed(
    world: World,
    handle: Handle,
    commit: Callable[[Handle], Outcome],
    promise: str,
    *,
    also: type[Outcome] = Lost,
) -> None:
    """See that a commit is Lost or Unknown (an exception counts as Unknown), and shows nothing."""
    answers: list[Outcome] = []
    refused(lambda: answers.append(commit(handle)))
    if answers and not isinstance(answers[0], (Lost, Unknown, also)):
        raise broken(promise, f"it answered {answers[0]}")
    world.expect([], f"{promise} and shows nothing")


def another_name(handle: Handle) -> Handle:
    """Make the handle of a transaction that never was: other digits at the end of its name."""
    name = handle.transaction
    end = name[-32:].translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    other = name[:-32] + end
    data = {
        key: value.replace(name, other) if isinstance(value, str) else value
        for key, value in handle.data.items()
    }
    return Handle(transaction=other, data=data)
