"""A target of files that went back is noticed before the first record of a start."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.files_bench import Files, quick, rows
from tests.unit.test_files_sweep import Job

from onceonly.errors import TargetBehindError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["quick"]  # a fixture


def test_a_restored_backup_of_the_target_stops_the_next_start(
    quick: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(quick, power=False)
    job.epochs = 1
    job.live()
    shutil.copytree(job.bench.target, quick / "backup")
    job.epochs = 3
    job.live()
    shutil.rmtree(job.bench.target)
    (quick / "backup").rename(job.bench.target)
    before = sorted(job.bench.target.rglob("*"))
    job.epochs = 4
    with pytest.raises(TargetBehindError, match="chk-2 is complete, and nothing newer than chk-0"):
        job.live()
    assert sorted(job.bench.target.rglob("*")) == before
    job.bench.options["onceonly.target.behind"] = "go-on"
    job.live()
    assert "nothing newer than chk-0" in caplog.text
    assert job.bench.ids() == [0, 1, 2, 3, 30, 31, 32, 33]
    del job.bench.options["onceonly.target.behind"]
    job.epochs = 5
    job.live()


def test_what_is_there_is_gone_on_with_and_what_is_not_is_named(quick: Path) -> None:
    bench = Files(quick / "out")
    sink = bench.sink()
    sink.check(bench.context)
    sink.look_back(bench.context, 3, [])
    handles = []
    for epoch in range(2):
        handles.append(bench.prepared(rows(epoch), epoch=epoch))
        bench.finish(epoch, handles[epoch])
        for former, handle in enumerate(handles):
            sink.look_back(bench.context, former, [handle])
    with pytest.raises(TargetBehindError, match="nothing newer than chk-1"):
        sink.look_back(bench.context, 2, [handles[1]])
    shutil.rmtree(bench.target / "_onceonly" / "epochs")
    with pytest.raises(TargetBehindError, match="no manifest is in"):
        sink.look_back(bench.context, 1, [handles[1]])
