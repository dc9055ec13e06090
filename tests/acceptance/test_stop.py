"""An operator ends a query from outside: after the epoch in flight, busy or idle, and the next start goes on."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import start, visible_files
from stopped_job import PER_EPOCH, ROWS
from test_operators_view import assert_well, onceonly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

SCRIPT = str(Path(__file__).with_name("stopped_job.py"))


class Job:
    """The job of ``stopped_job.py`` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lives: list[Run] = []

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def start(self, way: str, trigger: str, failpoints: str = "") -> Run:
        life = start(SCRIPT, self.folder, str(self.folder), way, trigger, failpoints=failpoints)
        self.lives.append(life)
        return life

    def committed(self) -> int:
        """Say how many epochs Spark has noted."""
        return len(list(self.checkpoint.glob("commits/[0-9]*")))

    def stop(self, *more: str) -> tuple[int, Any]:
        status, told, said = onceonly("stop", self.checkpoint, *more)
        assert told is not None, said
        return status, told

    def rows(self) -> Counter[int]:
        lines = (
            line for path in visible_files(self.folder / "out") for line in path.read_bytes().splitlines()
        )
        return Counter(json.loads(line)["value"] for line in lines)

    def is_whole(self) -> bool:
        """Say whether Spark has noted each epoch that it began, and each row of those is there once."""
        begun = len(list(self.checkpoint.glob("offsets/[0-9]*")))
        return begun == self.committed() and self.rows() == Counter(range(begun * PER_EPOCH))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    for life in made.lives:
        life.kill_tree()


@pytest.mark.parametrize(("way", "trigger"), [("format", "busy"), ("function", "idle")])
def test_a_query_ends_after_its_epoch_busy_or_idle_and_goes_on_when_started(
    job: Job, way: str, trigger: str
) -> None:
    life = job.start(way, trigger)
    life.until(lambda: job.committed() >= (1 if trigger == "idle" else 3), "its epochs")
    began = time.monotonic()
    status, told = job.stop("--because", "an upgrade")
    took = time.monotonic() - began
    assert (status, told["ended"], told["settled"]) == (0, "stopped", True)
    assert (told["request"]["because"], bool(told["request"]["seen"])) == ("an upgrade", True)
    assert life.wait(30) == 0, life.tail()
    assert job.is_whole()
    assert took < 15  # an epoch, ten seconds, and what a command takes to begin
    before = job.committed()
    assert job.stop()[1]["ended"] == "down"
    later = job.start(way, "busy")
    later.until(lambda: job.committed() > before + 1, "a later start, which no old request ends")
    status, told = job.stop()
    assert (status, told["told"]) == (
        0,
        f"run {told['run']['run']} has ended; {told['epoch']['name']} is complete",
    )
    assert later.wait(30) == 0, later.tail()
    assert job.is_whole()


@pytest.mark.parametrize("trigger", ["busy", "idle"])
def test_on_spark_connect_its_planner_or_its_client_ends_it(job: Job, trigger: str) -> None:
    life = job.start("connect", trigger)
    life.until(lambda: job.committed() >= (1 if trigger == "idle" else 3), "its epochs")
    place = str(job.folder / "savepoints")
    status, told = job.stop("--because", "an upgrade", "--wait", "2 min", "--savepoint", place)
    assert (status, told["ended"], told["settled"]) == (0, "stopped", True), told
    assert (told["request"]["because"], bool(told["request"]["seen"])) == ("an upgrade", True)
    assert life.wait(60) == 0, life.tail()
    before = job.committed()
    assert told["savepoint"]["epoch"] == before - 1
    assert job.rows() == Counter(range(before * PER_EPOCH)), "nothing of another epoch"
    assert job.stop()[1]["ended"] == "down"
    later = job.start("connect", "busy")
    later.until(lambda: job.committed() > before + 1, "a later start, which no old request ends")
    status, told = job.stop("--wait", "2 min")
    assert (status, told["ended"]) == (0, "stopped"), told
    assert later.wait(60) == 0, later.tail()
    assert job.rows() == Counter(range(job.committed() * PER_EPOCH))
    assert_well(job.checkpoint)


def test_an_epoch_that_takes_long_is_waited_for_and_one_that_is_killed_is_told(job: Job) -> None:
    life = job.start("format", "availableNow", failpoints="link.after_put=pause@3")
    life.wait_for("link.after_put")
    status, told = job.stop("--wait", "6 s")
    assert (status, told["ended"], told["down"]) == (2, "running", False)
    assert told["epoch"]["state"] == "decided"
    assert life.process.poll() is None, "supervise waits for the epoch in flight"
    life.kill_tree()
    status, told = job.stop()
    assert (status, told["ended"], told["settled"]) == (1, "down", False)
    assert "onceonly transactions commit" in told["next_step"]
    again = job.start("format", "availableNow")
    again.until(lambda: job.committed() > 4, "more epochs")
    assert job.stop()[0] == 0
    assert again.wait(30) == 0, again.tail()
    assert job.is_whole()
    assert_well(job.checkpoint)
    assert job.rows().total() < ROWS


@pytest.mark.long
def test_a_query_that_dies_as_it_is_asked_to_end_is_told_and_not_started_again(job: Job) -> None:
    life = job.start("function", "busy", failpoints="link.before_put=pause@3, link.after_put=raise@3")
    life.wait_for("link.before_put")
    assert job.stop("--wait", "4 s")[1]["ended"] == "running"
    (life.fired / "resume").touch()
    status, told = job.stop()
    assert (status, told["ended"], told["settled"]) == (1, "stopped", False) or told["ended"] == "down"
    assert life.wait(30) == 0, life.tail()
    assert "Not started again: run" in life.tail()
    assert job.committed() == 2
