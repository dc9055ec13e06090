"""Crashes: SIGKILL at every crash point, in the writer and in the coordinator, alone and again in the recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly import failpoints
from onceonly.model import Guarantee
from onceonly_proof.conformance.lives import FIRST, RECOVERY, Lives, passes
from onceonly_proof.conformance.query import COMPANION
from onceonly_proof.conformance.selection import PROCESSES, RECOVERS, needs, slowly
from onceonly_proof.conformance.subject import Subject
from onceonly_proof.conformance.world import World, broken

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.conformance.forker import Forker

EVERY = sorted(failpoints.EVERYWHERE)
WRITER = [point for point in EVERY if point.startswith("slot.")]
BEFORE_RECOVERY = ("link.during_put", "link.after_put", "commit.after_handle", "receipt.after_put")
"""One point in each state that a recovery can find: nothing decided, decided, partly committed, receipt there."""
AGAIN = frozenset(point for point in EVERY if not point.startswith(("slot.", "commit.")))
"""Points at which a recovery is killed: all but those of an ordinary run after it."""
TYPICAL = frozenset({"plan.after_claim", "plan.after_recommit", "sweep.before"})
"""Those of them for a target that is slow."""
OVERTAKEN = frozenset(
    {"plan.after_claim", "slot.during_write", "slot.after_prepare", "link.before_put", "link.after_put"}
)
"""Where a run stands still that is overtaken, for a target that is slow."""
BETWEEN_SINKS = ("commit.before_handle", "commit.after_handle", "complete.before")


class CrashTests(Subject):
    """After any crash, the next life makes each row visible once and leaves nothing; a reader never sees too much."""

    @pytest.mark.parametrize("slots", [1, 3])
    @pytest.mark.parametrize("point", EVERY)
    @slowly(slots={3})
    @needs(Guarantee.EXACTLY_ONCE, PROCESSES)
    def test_a_crash_at_any_point_loses_and_doubles_nothing(
        self, forker: Forker, place: Path, point: str, slots: int
    ) -> None:
        for nth in passes(self, forker, place, point, slots=slots):
            with World(self, place / f"pass-{nth}") as world, Lives(world, forker, slots=slots) as lives:
                if point in RECOVERY:
                    lives.killed_at(RECOVERY[point])
                lives.killed_at(point, nth)
                lives.finish()
                lives.check()

    @pytest.mark.parametrize("point", BEFORE_RECOVERY)
    @needs(Guarantee.EXACTLY_ONCE, PROCESSES)
    def test_a_crash_in_the_recovery_loses_and_doubles_nothing(
        self, forker: Forker, place: Path, point: str
    ) -> None:
        with World(self, place / "dry") as world, Lives(world, forker, slots=2) as lives:
            lives.killed_at(point)
            passed = lives.dry()
            lives.check()
        again = sorted(passed.keys() & (AGAIN if self.every_pass else TYPICAL))
        if not again:
            raise broken("a recovery passes crash points", f"none after a crash at {point}")
        for second in again:
            with World(self, place / second) as world, Lives(world, forker, slots=2) as lives:
                lives.killed_at(point)
                lives.killed_at(second)
                lives.finish()
                lives.check()

    @pytest.mark.parametrize("point", EVERY)
    @slowly(point=OVERTAKEN)
    @needs(Guarantee.EXACTLY_ONCE, PROCESSES, RECOVERS)
    def test_a_run_that_was_paused_and_overtaken_writes_nothing_late(
        self, forker: Forker, place: Path, point: str
    ) -> None:
        with World(self, place / "target") as world, Lives(world, forker, slots=2) as lives:
            if point in RECOVERY:
                lives.killed_at(RECOVERY[point])
            zombie = lives.paused_at(point)
            lives.finish()
            zombie.resume()
            lives.ended(zombie)
            lives.finish(epochs=3)
            lives.check(epochs=3)

    @pytest.mark.parametrize("point", WRITER)
    @needs(Guarantee.EXACTLY_ONCE, PROCESSES)
    def test_an_attempt_that_fails_is_run_again_and_leaves_nothing(
        self, forker: Forker, place: Path, point: str
    ) -> None:
        with World(self, place / "target") as world, Lives(world, forker, slots=2) as lives:
            lives.fails_at(point, attempts=2)
            lives.check()

    @pytest.mark.parametrize("point", WRITER)
    @needs(Guarantee.EXACTLY_ONCE, PROCESSES)
    def test_a_writer_that_dies_alone_is_replaced(self, forker: Forker, place: Path, point: str) -> None:
        with World(self, place / "target") as world, Lives(world, forker, slots=1) as lives:
            plan = lives.step("plan", epoch=0, run="r").result
            lives.step("slot", planned=plan, number=0, run="r", arm=point)
            vote = lives.step("slot", planned=plan, number=0, run="r").result
            lives.step("decide", planned=plan, votes=[vote], run="r")
            lives.finish()
            lives.check()

    @pytest.mark.parametrize("sink", ["first", "second"])
    @pytest.mark.parametrize("point", BETWEEN_SINKS)
    @needs(Guarantee.EXACTLY_ONCE, PROCESSES)
    def test_a_crash_between_two_sinks_under_one_decision_loses_and_doubles_nothing(
        self, forker: Forker, place: Path, point: str, sink: str
    ) -> None:
        with (
            World(self, place / "target") as world,
            Lives(world, forker, slots=2, companion=True) as lives,
        ):
            lives.killed_at(f"{point}[{world.name if sink == 'first' else COMPANION}]")
            lives.finish()
            lives.check()

    @needs(Guarantee.EXACTLY_ONCE, PROCESSES)
    def test_a_query_without_a_crash_is_as_good(self, forker: Forker, place: Path) -> None:
        with World(self, place / "target") as world, Lives(world, forker, slots=3) as lives:
            passed = lives.dry()
            lives.check()
            unknown = set(FIRST) - passed.keys()
            if unknown:
                raise broken("a first life passes every crash point", f"not passed: {sorted(unknown)}")
