"""What a sink promises that offers less than exactly-once, or offers less as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly.model import Guarantee
from onceonly.words import n
from onceonly_proof.conformance.lives import Lives
from onceonly_proof.conformance.selection import PROCESSES, needs
from onceonly_proof.conformance.subject import Subject
from onceonly_proof.conformance.workload import Workload
from onceonly_proof.conformance.world import World, broken, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.conformance.forker import Forker

SOME = (
    "slot.during_write",
    "slot.after_prepare",
    "link.after_put",
    "commit.after_handle",
    "receipt.after_put",
)
AT_LEAST, AT_MOST = Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE


class WeakerTests(Subject):
    """At least once nothing is lost; at most once nothing is there twice."""

    @needs(AT_LEAST)
    def test_at_least_once_every_row_is_visible_when_its_epoch_is_decided(self, world: World) -> None:
        with world.run(epochs=2, slots=2, guarantee=AT_LEAST.value) as query:
            query.run_all()
        wanted = world.rows(Workload(epochs=2, slots=2).numbers())
        if not wait_for(lambda: not wanted - world.visible()):
            raise broken(
                "at least once, every row is visible", f"{(wanted - world.visible()).total()} are missing"
            )

    @pytest.mark.parametrize("point", [point for point in SOME if not point.startswith("commit.")])
    @needs(AT_LEAST, PROCESSES)
    def test_at_least_once_a_crash_loses_nothing(self, forker: Forker, place: Path, point: str) -> None:
        with World(self, place / "target") as world, Lives(world, forker, guarantee=AT_LEAST) as lives:
            lives.killed_at(point)
            lives.finish()
            wanted = world.rows(Workload().numbers())
            if not wait_for(lambda: not wanted - world.visible()):
                missing = (wanted - world.visible()).total()
                raise broken("at least once, a crash loses nothing", f"{n(missing, 'row is')} missing")

    @pytest.mark.parametrize("point", SOME)
    @needs(AT_MOST, PROCESSES)
    def test_at_most_once_a_crash_doubles_nothing(self, forker: Forker, place: Path, point: str) -> None:
        with World(self, place / "target") as world, Lives(world, forker, guarantee=AT_MOST) as lives:
            lives.killed_at(point)
            lives.finish()
            seen, wanted = world.visible(), world.rows(Workload().numbers())
            if seen - wanted:
                raise broken(
                    "at most once, no row is there twice", f"{(seen - wanted).total()} rows too many"
                )
