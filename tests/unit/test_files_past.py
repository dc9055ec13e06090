"""A target of files that went back is noticed before the first record of a start."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.files_bench import Files, quick, rows
from tests.unit.test_files_sweep import Job
from tests.unit.test_files_target import mounted, unmounted

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
    assert sink.newest_epoch(bench.context) is None
    handles = []
    for epoch in range(2):
        handles.append(bench.prepared(rows(epoch), epoch=epoch))
        bench.finish(epoch, handles[epoch])
        for former, handle in enumerate(handles):
            sink.look_back(bench.context, former, [handle])
        assert sink.newest_epoch(bench.context) == epoch
    with pytest.raises(TargetBehindError, match="nothing newer than chk-1"):
        sink.look_back(bench.context, 2, [handles[1]])
    shutil.rmtree(bench.target / "_onceonly" / "epochs")
    with pytest.raises(TargetBehindError, match="no manifest is in"):
        sink.look_back(bench.context, 1, [handles[1]])


def test_a_target_that_is_not_mounted_stops_the_next_start_and_the_one_after(quick: Path) -> None:
    job = Job(quick, power=False)
    job.epochs = 2
    job.live()
    away = unmounted(job.bench)
    job.epochs = 3
    behind = r"not the folder it was: is it mounted.* chk-1 is complete"
    for _ in range(2):
        with pytest.raises(TargetBehindError, match=behind):
            job.live()
        assert list(job.bench.target.iterdir()) == [], "nothing is made below a mount point"
    job.bench.sink().check(job.bench.context)  # another query has made its books there
    with pytest.raises(TargetBehindError, match=behind):
        job.live()
    assert job.bench.visible() == []
    mounted(job.bench, away)
    job.live()
    assert len(job.bench.ids()) == 12


def test_a_target_that_was_emptied_on_purpose_is_gone_on_with_where_that_is_said(
    quick: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(quick, power=False)
    job.epochs = 2
    job.live()
    shutil.rmtree(job.bench.target)
    job.epochs = 3
    with pytest.raises(TargetBehindError) as caught:
        job.live()
    assert "onceonly.target.behind=go-on" in caught.value.next_step
    job.bench.options["onceonly.target.behind"] = "go-on"
    job.live()
    assert "is it mounted" in caplog.text
    del job.bench.options["onceonly.target.behind"]
    job.epochs = 4
    job.live()
    assert job.bench.ids() == [20, 21, 22, 23, 30, 31, 32, 33]


@pytest.mark.parametrize("place", ["elsewhere", "out/below"])
def test_a_target_that_the_query_was_led_to_is_begun_with_a_warning(
    quick: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    job = Job(quick, power=False)
    job.epochs = 1
    job.live()
    job.bench.target = quick / place
    job.epochs = 2
    job.live()
    assert "the target of sink files has changed" in caplog.text
    assert job.bench.ids() == [10, 11, 12, 13]
