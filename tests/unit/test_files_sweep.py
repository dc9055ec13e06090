"""The file sink under the real coordinator: killed at every point, with the power gone, and overtaken in a sweep."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.unit.files_bench import Disk, Files, quick, rows

from onceonly import errors, failpoints, files
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.executor.slot import run_slot
from onceonly.model import Guarantee, LinkKind
from onceonly.ports import WriteContext
from onceonly_proof.memory_log import MemoryDisk, MemoryLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly.model import Plan, Vote
    from onceonly.ports import Leftover, QueryContext
    from onceonly.sinks.files import FilesSink

__all__ = ["quick"]  # a fixture
# Reached by the log on disk only, and by rows that are refused.
POINTS = sorted(name for name in failpoints.EVERYWHERE if name != "link.during_put")
EPOCHS, SLOTS = 3, 2


@dataclass
class Job:
    """Spark, as far as a coordinator sees it: lives of a driver, each with a sink of its own."""

    folder: Path
    power: bool
    disk: Disk = field(default_factory=Disk)
    log: MemoryDisk = field(default_factory=MemoryDisk)
    finished: int = -1
    epochs: int = EPOCHS

    def __post_init__(self) -> None:
        self.bench = Files(self.folder / "out", query="query", store=self.disk)

    def live(self) -> None:
        sink = self.bench.sink()
        coordinator = Coordinator(log=MemoryLog(self.log), actor="driver", commit_timeout_s=1.0)
        joined = Participant(sink=sink, guarantee=self.bench.guarantee, columns=self.bench.columns)
        coordinator.join("files", joined)
        continues = None
        while self.finished < self.epochs - 1:
            plan = coordinator.plan(self.finished + 1, run="r", continues=continues)
            votes = [self.task(sink, plan, slot) for slot in range(SLOTS)]
            coordinator.decide(plan, votes)
            self.finished, continues = plan.epoch, plan.id

    def task(self, sink: FilesSink, plan: Plan, slot: int) -> Vote:
        context = WriteContext(
            query="query", sink="files", run="r", epoch=plan.epoch, plan=plan.id, slot=slot, attempt="0",
            guarantee=plan.guarantee, mode=plan.mode, facts=plan.facts.get("files", {}),
        )  # fmt: skip
        first = 10 * plan.epoch + 2 * slot
        return run_slot(sink, plan, context, [pa.record_batch(rows(first, first + 1))]).vote

    def finish(self) -> int:
        """Start again after every crash; give how many there were."""
        for crashes in range(10):
            try:
                self.live()
            except (failpoints.FailpointError, errors.OnceonlyError):
                if self.power:
                    self.disk.lose_power()
            else:
                return crashes
        raise AssertionError("not at rest after 10 lives")


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_leaves_whole_epochs_and_nothing_staged(
    quick: Path, monkeypatch: pytest.MonkeyPatch, point: str, *, power: bool
) -> None:
    armed = f"{point}=raise" + (", commit.before_handle=raise" if "recommit" in point else "")
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", armed)
    monkeypatch.delenv("ONCEONLY_FAILPOINTS_DIR", raising=False)
    monkeypatch.setattr(failpoints, "_counts", {})
    job = Job(quick, power)
    assert job.finish() >= 1
    job.disk.lose_power()
    wanted = [10 * epoch + number for epoch in range(EPOCHS) for number in range(2 * SLOTS)]
    assert job.bench.ids() == wanted
    assert [epoch.rows for epoch in files.committed(str(job.bench.target))] == [2 * SLOTS] * EPOCHS
    assert job.bench.staged() == []


@pytest.mark.parametrize("guarantee", list(Guarantee), ids=str)
def test_nothing_is_staged_after_a_clean_end(quick: Path, guarantee: Guarantee) -> None:
    job = Job(quick, power=False)
    job.bench.guarantee = guarantee
    assert job.finish() == 0
    assert job.bench.staged() == []
    assert [epoch.rows for epoch in files.committed(str(job.bench.target))] == [2 * SLOTS] * EPOCHS


def test_a_sweep_that_is_overtaken_changes_nothing(quick: Path) -> None:
    job = Job(quick, power=False)
    sink = job.bench.sink()
    coordinator = Coordinator(log=MemoryLog(job.log), actor="driver")
    coordinator.join(
        "files", Participant(sink=sink, guarantee=Guarantee.EXACTLY_ONCE, columns=job.bench.columns)
    )
    plan = coordinator.plan(0, run="r")
    votes = [job.task(sink, plan, slot) for slot in range(SLOTS)]
    seen: list[list[Path]] = []
    recover = sink.recover

    def overtaken(context: QueryContext) -> Iterable[Leftover]:
        seen.append(sorted(job.bench.target.rglob("*")))
        found = recover(context)
        newer = replace(job.log.links[0][-1], epoch=1, index=0, kind=LinkKind.ABORT, votes=())
        job.log.links[1] = [newer]
        return found

    sink.recover = overtaken  # type: ignore[method-assign]
    coordinator.decide(plan, votes)
    assert sorted(job.bench.target.rglob("*")) == seen[0]
    assert len(list(job.bench.target.rglob(".*.committing"))) == SLOTS


def test_a_sweep_under_an_older_checkpoint_is_refused_and_changes_nothing(quick: Path) -> None:
    job = Job(quick, power=False)
    bench = job.bench
    bench.prepared(rows(1), epoch=12)
    done, dropped = bench.prepared(rows(2), epoch=13), bench.prepared(rows(3), epoch=14)
    bench.sink().commit(done)
    aside = Path(str(dropped.data["staging"]))
    aside.rename(aside.with_name(f".{aside.name}.dropped"))
    assert sorted(each.epoch or 0 for each in bench.sink().recover(bench.context)) == [12, 13, 14]
    before = sorted(bench.target.rglob("*"))
    with pytest.raises(errors.LogError, match="an older checkpoint was restored"):
        job.live()
    assert sorted(bench.target.rglob("*")) == before


def crash(job: Job, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{point}=raise")
    monkeypatch.delenv("ONCEONLY_FAILPOINTS_DIR", raising=False)
    monkeypatch.setattr(failpoints, "_counts", {})
    with pytest.raises(failpoints.FailpointError):
        job.live()


@pytest.mark.parametrize("taken", [False, True], ids=["left", "taken"])
def test_a_checkpoint_from_before_a_commit_that_was_broken_off_doubles_nothing(
    quick: Path, monkeypatch: pytest.MonkeyPatch, *, taken: bool
) -> None:
    """No manifest tells yet that its rows are there, and a reader may have them by now."""
    job = Job(quick, power=False, epochs=1)
    job.live()
    links, receipts = deepcopy(job.log.links), dict(job.log.receipts)
    job.epochs = 2
    crash(job, monkeypatch, "complete.before")
    newest = job.log.links, job.log.receipts
    for path in job.bench.visible() if taken else ():
        path.unlink()
    before = sorted(job.bench.target.rglob("*"))
    job.log.links, job.log.receipts = links, receipts
    for _ in range(2):
        with pytest.raises(
            errors.LogError, match="was decided for chk-1 by a link that the log does not have"
        ):
            job.live()
    assert sorted(job.bench.target.rglob("*")) == before
    job.log.links, job.log.receipts = newest
    assert job.finish() == 0
    assert job.bench.ids() == ([] if taken else list(range(4)) + list(range(10, 14)))


def test_what_was_committed_before_any_decision_tells_of_none(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least once a slot commits itself, and a crash leaves that; the user may want more from the next start on."""
    job = Job(quick, power=False, epochs=1)
    job.bench.guarantee = Guarantee.AT_LEAST_ONCE
    job.live()
    job.epochs = 2
    crash(job, monkeypatch, "link.before_put")
    assert len(list(job.bench.target.rglob(".1-*.committing"))) == SLOTS
    job.bench.guarantee = Guarantee.EXACTLY_ONCE
    assert job.finish() == 0
