"""Several executors in processes of their own; one of their JVMs is killed in the middle of an epoch."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from harness import Bench

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

ROWS = [(f"k{number % 17}", str(number)) for number in range(400)]


@pytest.mark.parametrize(
    ("way", "point"),
    [
        pytest.param("format", "slot.during_write", marks=pytest.mark.long),
        ("format", "slot.after_prepare"),
        pytest.param("foreachBatch", "slot.after_prepare", marks=pytest.mark.long),
    ],
)
def test_an_executor_killed_in_mid_epoch_doubles_nothing(bench: Bench, way: str, point: str) -> None:
    bench.args = [
        "--way",
        way,
        "--master",
        "local-cluster[2,1,1024]",
        "--conf",
        "spark.executor.memory=700m",
    ]
    # Both executors must see this folder's Python, and Spark's own work folder goes with the test.
    bench.args += ["--conf", "spark.locality.wait=0"]
    bench.feed(ROWS)
    run = bench.start(f"{point}=pause@3", env={"SPARK_WORKER_DIR": str(bench.folder / "work")})
    try:
        executor = executor_of(run.wait_for(point))
        executor.kill()
        assert run.wait() == 0, run.tail()
    finally:
        run.kill_tree()
        shutil.rmtree(bench.folder / "work", ignore_errors=True)
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()


def executor_of(worker: int) -> psutil.Process:
    """Return the executor's JVM above a Python worker."""
    for process in psutil.Process(worker).parents():
        if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
            return process
    raise AssertionError(f"process {worker} is not below an executor")
