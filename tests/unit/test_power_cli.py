"""``onceonly verify power-cuts`` in front of a campaign that is played."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from onceonly import cli
from onceonly_proof.power import run
from onceonly_proof.power.audits import Judged
from onceonly_proof.power.outcome import Result
from onceonly_proof.power.task import Done, Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[run.PowerOptions]:
    """Play a campaign: the first pipeline named loses a row if its state is kept in RocksDB."""
    given: list[run.PowerOptions] = []

    def play(options: run.PowerOptions, say: Callable[[str], None]) -> Result:
        given.append(options)
        found = Result()
        pipeline = options.pipelines[0]
        lost = int(pipeline.state == "rocksdb")
        judged = Judged(rows=30, lost=lost, doubled=0, bad=lost, other=0, examples=("lost: row 7",) * lost)
        found.pipeline(pipeline.name).add("cut 5", Done(ok=True), judged, cuts=2)
        return found

    monkeypatch.setattr(run, "run_power", play)
    monkeypatch.setattr("onceonly_proof.cli.verify.signal.signal", lambda *_: None)
    return given


@pytest.mark.parametrize(("pipeline", "status"), [("files-none-files", 0), ("kafka-rocksdb-files", 1)])
def test_the_table_is_shown_and_the_status_says_whether_it_is_clean(
    pipeline: str, status: int, told: list[run.PowerOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.run(["verify", "power-cuts", "7", "--pipeline", pipeline, "--minutes", "3", "--seed", "4"])
        == status
    )
    assert (told[0].pipelines, told[0].cuts, told[0].minutes, told[0].seed) == (
        (Pipeline.named(pipeline),),
        7,
        3,
        4,
    )
    shown = capsys.readouterr()
    assert f"{pipeline} 2 1" in " ".join(shown.out.split())
    assert ("lost: row 7" in shown.err) == bool(status)


@pytest.mark.parametrize(
    "arguments",
    [
        ["power-cuts", "0"],
        ["power-cuts", "7", "--crashes", "1"],
        ["power-cuts", "7", "--pipeline", "files-none-disk"],
        ["--pipeline", "files-none-files", "--crashes", "1"],
    ],
)
def test_wrong_usage_is_status_64(arguments: list[str], told: list[run.PowerOptions]) -> None:
    assert cli.run(["verify", *arguments]) == 64
    assert told == []


def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("onceonly_proof.cli.verify.signal.signal", lambda *_: None)
    monkeypatch.setitem(sys.modules, "onceonly_proof.power.run", None)
    assert cli.run(["verify", "power-cuts", "7"]) == 2
    assert "the campaign needs the package onceonly_proof.power.run" in capsys.readouterr().err
