"""One PySpark: both ways under kills, and what is seen of its Spark. `make matrix` takes one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyspark
import pytest
import rate_job
from audits import assert_clean
from harness import HERE, TIMEOUT_S, Bench, Run, start, visible_files

from onceonly.spark.versions import has_formats

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(900)]

ROWS = [(f"k{number % 7}", str(number)) for number in range(400)]
# While tasks write, when the decision is not yet durable, and when it is and nothing is committed.
POINTS = ("slot.after_prepare", "link.before_put", "commit.before_handle")
EPOCHS = 6
FAILED = 3
BATCH = f"""
import os, sys
from pyspark.sql import SparkSession
import onceonly
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
onceonly.register(spark)
batch = spark.range(100).write.format("onceonly.files").mode("append")
place = dict(path=sys.argv[1] + "/out", checkpointLocation=sys.argv[1] + "/log")
try:
    batch.options(format="json", **place).option("onceonly.job", "one").save()
except Exception as error:
    print(onceonly.explain(error))
    sys.exit({FAILED})
"""


def test_it_runs_on_the_pyspark_that_was_asked_for() -> None:
    assert pyspark.__version__ == os.environ.get("ONCEONLY_PYSPARK", pyspark.__version__)


@pytest.mark.parametrize("way", ["format", "epoch"])
def test_kafka_to_kafka_is_exact_after_kills(kafka: EmbeddedKafka, tmp_path: Path, way: str) -> None:
    """By the format's word; then with files and the docs' sink under the same decision, by foreachBatch."""
    bench = Bench(kafka, tmp_path)
    sinks = ("kafka",) if way == "format" else ("kafka", "files", "results")
    bench.args = ["--way", way, "--configured", "--per-epoch", "50"]
    bench.args += bench.with_all_sinks() if way == "epoch" else []
    bench.feed(ROWS)
    for point in POINTS:
        bench.run_and_kill_at(point, 2)
    bench.run()
    bench.assert_exactly_once(ROWS, *sinks)
    bench.assert_nothing_left_open(*sinks)
    if way == "format":
        assert_clean(bench)
    # By whose hands: the planner and the commit process of a format, or the driver's Python.
    actors = {str(event["actor"]) for event in bench.seen_events("link.persisted")}
    assert actors == ({"committer", "planner"} if way == "format" and has_formats() else {"driver"})


def test_what_an_older_pyspark_has_decided_is_finished(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """By the same word; before 4.0 foreachBatch stands in for the format."""
    bench = Bench(kafka, tmp_path, args=["--per-epoch", "50"])
    bench.feed(ROWS)
    older = [os.environ.get("ONCEONLY_PYSPARK_BEFORE"), str(HERE), str(bench.folder), *sys.path]
    run = bench.start("link.after_put=pause@2", env={"PYTHONPATH": os.pathsep.join(filter(None, older))})
    try:
        run.wait_for("link.after_put")
    finally:
        run.kill_tree()
    bench.run()
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()
    assert_clean(bench)


@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_spark_rows_to_files_are_exact_after_kills(runs: Runs, way: str) -> None:
    for point in POINTS:
        run = runs.start(way, f"{point}=pause@2")
        try:
            run.wait_for(point)
        finally:
            run.kill_tree()
    run = runs.start(way)
    try:
        assert run.wait() == 0, run.tail()
    finally:
        run.kill_tree()
    files = visible_files(runs.folder / "out")
    rows = [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    assert sorted(row["value"] for row in rows) == list(range(len(rows)))
    assert len(rows) >= EPOCHS * rate_job.ROWS_PER_EPOCH
    assert {path.parent.name for path in files} == {"third=0", "third=1", "third=2"}
    # What the driver sees of Spark itself: the offsets that it holds, its reports, its plan.
    told = json.loads(run.log.read_text(encoding="utf-8").splitlines()[-1])
    assert told == {"spark": pyspark.__version__, "span": True}
    kept = runs.folder / "checkpoint" / "onceonly"
    assert list((kept / "progress").glob("*.json"))
    assert json.loads((kept / "repeats").read_bytes())["repeats"] is True


def test_a_batch_is_finished_by_its_next_run_and_refused_where_there_are_no_formats(tmp_path: Path) -> None:
    def run(failpoints: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", BATCH, str(tmp_path)], cwd=tmp_path,
            env={**os.environ, "ONCEONLY_FAILPOINTS": failpoints, "ONCEONLY_FAILPOINTS_DIR": str(tmp_path)},
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip

    out = tmp_path / "out"
    if not has_formats():
        assert "no writer for formats of Python" in run().stdout
        return
    killed = run("link.after_put=kill")
    assert killed.returncode == FAILED, killed.stderr
    assert visible_files(out) == []
    again = run()
    assert again.returncode == 0, again.stdout + again.stderr
    files = visible_files(out)
    rows = [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    assert sorted(row["id"] for row in rows) == list(range(100))


class Runs:
    """The lives of one query from Spark's own source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lives: list[Run] = []

    def start(self, way: str, failpoints: str = "") -> Run:
        told = [way, str(EPOCHS), str(self.folder)]
        self._lives.append(start(rate_job.__file__, self.folder, *told, failpoints=failpoints))
        return self._lives[-1]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)
