"""A late epoch is not decided: drivers and tasks in processes of their own, killed and paused, on files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.files_bench import Files, quick
from tests.unit.late_bench import KILLED, Lives

from onceonly.model import LinkKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["quick"]  # a fixture
LIMIT_S = 60.0
ROWS = [0, 1, 2, 3]


class Bench(Lives):
    """On files, by the test's own clock."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "onceonly.files", {"path": str(folder / "target")}, limit_s=LIMIT_S)
        self.folder.mkdir(exist_ok=True)
        self.let_pass(0.0)

    def staged(self) -> list[Path]:
        return Files(self.folder / "target").staged()

    def see_each_row_once(self) -> None:
        assert Files(self.folder / "target").ids() == ROWS
        assert self.staged() == []
        assert self.chain()[-1] is LinkKind.COMMIT
        assert self.chain().count(LinkKind.COMMIT) == 1


@pytest.fixture
def bench(quick: Path) -> Iterator[Bench]:
    made = Bench(quick)
    yield made
    made.close()


def test_an_epoch_that_took_too_long_is_given_up_and_runs_again(bench: Bench) -> None:
    code, said = bench.live("slow")
    error = json.loads(said)
    assert (code, error["code"], error["restartable"]) == (3, "EPOCH_TIMEOUT", True)
    for part in ("Query q", "chk-0", "61.0 s", "60 s"):
        assert part in error["what"]
    assert "onceonly.epoch.timeout" in error["next_step"]
    assert bench.staged() == [], "what the slots had prepared in time is removed"
    assert bench.chain() == [LinkKind.ABORT, LinkKind.ABORT]
    assert bench.live()[0] == 0
    bench.see_each_row_once()


@pytest.mark.parametrize(
    "point", ["link.before_check", "plan.after_claim@2", "sweep.before@2"], ids=lambda point: point[:-2]
)
def test_a_kill_while_a_late_epoch_is_given_up_heals(bench: Bench, point: str) -> None:
    name, _, nth = point.partition("@")
    code, _ = bench.live("slow", armed=f"{name}=kill@{nth or 1}")
    assert code == KILLED
    assert len(bench.staged()) == 2, "prepared, and nobody has removed it"
    assert LinkKind.COMMIT not in bench.chain()
    assert bench.live()[0] == 0
    bench.see_each_row_once()


@pytest.mark.parametrize("point", ["link.before_check", "link.before_put", "link.after_put"])
def test_a_kill_of_an_epoch_in_time_heals(bench: Bench, point: str) -> None:
    assert bench.live(armed=f"{point}=kill")[0] == KILLED
    assert bench.live()[0] == 0
    bench.see_each_row_once()


def test_a_driver_that_stood_still_before_its_check_does_not_decide(bench: Bench) -> None:
    with bench.paused(at="link.before_check") as process:
        bench.let_pass(61.0)
    code, said = bench.end(process)
    assert (code, json.loads(said)["code"]) == (3, "EPOCH_TIMEOUT")
    assert bench.staged() == []
    assert bench.live()[0] == 0
    bench.see_each_row_once()


@pytest.mark.parametrize("point", ["link.after_put", "commit.after_handle"])
def test_once_its_link_is_put_an_epoch_is_never_late(bench: Bench, point: str) -> None:
    with bench.paused(at=point) as process:
        bench.let_pass(100_000.0)
    assert bench.end(process)[0] == 0
    bench.see_each_row_once()


def test_a_decided_epoch_is_drained_however_long_it_takes(bench: Bench) -> None:
    assert bench.live(armed="link.after_put=kill")[0] == KILLED
    assert bench.live("slow") == (0, "drain")
    bench.see_each_row_once()


@pytest.mark.parametrize("late_s", [0.0, 61.0], ids=["in its own time", "late by its own clock"])
def test_a_slot_that_wakes_up_after_its_epoch_ran_again_changes_nothing(bench: Bench, late_s: float) -> None:
    """It stood still in its sink; others prepared in time, the epoch was given up, swept and run again."""
    with bench.paused("one-slot-elsewhere", at="slot.before_prepare") as task:
        assert bench.live("given-up")[0] == 3
        assert bench.live()[0] == 0
        bench.see_each_row_once()
        bench.let_pass(late_s)
    code, said = bench.end(task)
    assert (code, json.loads(said)["code"]) == (3, "EPOCH_TIMEOUT" if late_s else "WRITE_FAILED")
    bench.see_each_row_once()
