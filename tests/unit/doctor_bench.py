"""A checkpoint for the tests of ``onceonly doctor``, and what is sick of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.operator_bench import QueryCoordinator

from onceonly.log.runs import Run, RunFiles
from onceonly.model import Stamp
from onceonly.operations import doctor
from onceonly.operations.given import Given
from onceonly.operations.probes import Health

if TYPE_CHECKING:
    from pathlib import Path

BOX = "tests.unit.operator_bench:BoxSink"


def well(path: Path) -> QueryCoordinator:
    """Make a checkpoint with which nothing is wrong: 25 epochs, most of them folded."""
    made = QueryCoordinator(path, keep=2)
    for epoch in range(25):
        made.complete(epoch)
        made.log.fold()
    RunFiles(path).put(Run(run="r", began=Stamp(at="2026-11-26T20:00:00.000Z", host="spark-1", pid=7)))
    return made


def sick(
    coordinator: QueryCoordinator, *, box: str = BOX, within_s: float = 10.0, at: Path | None = None,
    sources: dict[str, str] | None = None, **more: str,
) -> set[tuple[str, str]]:  # fmt: skip
    """Name what is not well, see that it has a sentence and a next step, and that nothing was changed."""
    place = at or coordinator.path
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    given = Given(classes={"box": box} if box else {}, options=more)
    found = doctor.examine(str(place), given, sources=sources, within_s=within_s)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    ill = [each for each in found if each.health is not Health.WELL]
    assert all(each.told and each.next_step for each in ill), ill
    return {(each.category, each.probe) for each in ill if each.health is not Health.UNASKED}
