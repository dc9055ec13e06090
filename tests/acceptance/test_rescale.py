"""``onceonly rescale``: a query with state goes on with other partitions, row by row as if nothing had been."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import Run, python_path
from test_operators_view import onceonly as command
from test_skipped_epochs import rocksdb, skipped

import onceonly
import ways
from onceonly import savepoints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ways import Way

way, spark = ways.way, ways.spark  # fixtures
pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(600)]
# Ids 0 to 29, the same again, which only the state knows, and 30 more.
IDS = [*range(30), *range(30), *range(30, 60)]


def frame(way: Way, rows: int) -> DataFrame:
    given = [(one, "app") for one in IDS[:rows]]
    settings: dict[str, Any] = {"rows_per_epoch": 10, "partitions": 2}
    return onceonly.collection(way.spark, given, "id long, app string", **settings).dropDuplicates(["id"])


def rescale(checkpoint: Path, *more: str) -> tuple[int, Any, str]:
    place = str(checkpoint.parent / "savepoints")
    return command("rescale", checkpoint, "--savepoint", place, *more, "--yes")


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_a_query_with_state_goes_on_with_other_partitions_after_a_savepoint(way: Way) -> None:
    checkpoint = way.folder / "q" / "checkpoint"
    with rocksdb(way):
        way.run(frame(way, 30))
        assert way.exactly(30)
        status, told, said = rescale(checkpoint, "--partitions", "5", "--because", "more rows")
        assert (status, told and told["partitions"]) == (0, 5), said
        assert (told["before"], told["savepoint"]["epoch"]) == (2, 2)
        assert len(list((checkpoint / "state/0").glob("[0-9]*"))) == 5
        status, _, said = rescale(checkpoint, "--partitions", "5")
        assert (status, "5 partitions already" in said) == (64, True), said
        way.run(frame(way, 80))
        assert savepoints.create(str(checkpoint), str(way.folder / "q" / "savepoints")).epoch > 3
        # Another number, smaller now: what is left of the former partitions is in nobody's way.
        status, told, said = rescale(checkpoint, "--partitions", "3")
        assert (status, told and told["before"]) == (0, 5), said
        way.run(frame(way, 90))
        assert savepoints.create(str(checkpoint), str(way.folder / "q" / "savepoints")).epoch > 8
    assert way.exactly(60)
    assert list(skipped(way).values()) == [(0, "unchanged")] * 2
    status, shown, _ = command("checkpoints", "list", checkpoint)
    (found,) = shown["checkpoints"]
    _, first = found["actions"]
    assert (first["command"], first["before"], first["because"]) == (
        "rescale",
        "2 partitions of state",
        "more rows",
    )
    assert first["after"].startswith("5 partitions of state, from chk-3 on")


MOMENTS = {
    "a savepoint is begun": r"savepoints/.+",
    "it is written down": r"checkpoint/onceonly/actions/[^.].+",
    "the barrier is there": r"checkpoint/offsets/\d+",
    "state is dealt": r"checkpoint/state/0/\d+/\d+\.(zip|changelog)",
    "it is noted": r"checkpoint/commits/\d+",
}
"""What a rescale has just made, when it is killed: a file of such a name, which was not there before."""


def told_of(folder: Path, partitions: int, moment: str = "(?!)") -> tuple[int | None, str]:
    """Rescale in a process of its own, killed with its Java at a moment. Give how it ended before, and its words."""
    checkpoint, place, log = folder / "checkpoint", folder / "savepoints", folder / "rescale.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "onceonly", "rescale", str(checkpoint), "--savepoint", str(place), "--partitions",
             str(partitions), "--yes"],
            env={**os.environ, "PYTHONPATH": python_path("")}, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    run, before = Run(process, log, folder), names(folder)
    try:
        ways.until(
            lambda: (
                process.poll() is not None
                or any(re.fullmatch(moment, name) for name in names(folder) - before)
            ),
            "it is over",
        )
        return process.poll(), log.read_text(encoding="utf-8", errors="replace")
    finally:
        run.kill_tree()


def names(folder: Path) -> set[str]:
    return {f"{Path(at).relative_to(folder)}/{name}" for at, _, files in os.walk(folder) for name in files}


@pytest.mark.parametrize("way", ["format"], indirect=True)
@pytest.mark.parametrize("what", MOMENTS)
def test_killed_at_any_step_it_is_whole_when_it_is_run_again(way: Way, what: str) -> None:
    folder = way.folder / "q"
    with rocksdb(way):
        way.run(frame(way, 30))
        ended, said = told_of(folder, 5, MOMENTS[what])
        assert ended is None or what == "it is noted", said
        status, said = told_of(folder, 5)
        is_done = "5 partitions already" in said or "noted by Spark and not in the log" in said
        assert status == (64 if is_done else 0), said
        way.run(frame(way, 90))
    assert way.exactly(60)


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_killed_and_started_without_it_spark_says_to_run_it_again(way: Way) -> None:
    folder = way.folder / "q"
    with rocksdb(way):
        way.run(frame(way, 30))
        assert told_of(folder, 5, MOMENTS["the barrier is there"])[0] is None
        with pytest.raises(Exception, match="retry the repartitioning operation"):
            way.run(frame(way, 60))
        assert way.exactly(30)
        status, said = told_of(folder, 3)
        assert (status, "give the same number as then" in " ".join(said.split())) == (64, True), said
        status, said = told_of(folder, 5)
        assert status == 0, said
        way.run(frame(way, 90))
    assert way.exactly(60)
