"""An environment that travels with the job: the commands of the docs, on a cluster whose executors have nothing else.

``local-cluster`` gives each executor a process and a folder of its own, and unpacks archives there as YARN does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from doc_blocks import ROOT, extract
from harness import read_committed

if TYPE_CHECKING:
    from harness import Bench

# Packages are fetched, as a user would.
pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(1200)]

PAGE = "docs/how-to/ship-a-job.md"
ROWS = [(f"k{number % 17}", str(number)) for number in range(400)]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.executor.memory": "700m",
    "spark.locality.wait": "0",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
}
JOB = """
import json
import sys

from pyspark.sql import SparkSession

import onceonly

spark = SparkSession.builder.getOrCreate()
onceonly.register(spark)


def where(batches):
    import pyarrow as pa

    for _ in batches:
        yield pa.record_batch({{"prefix": [sys.prefix], "home": [onceonly.__file__]}})


found = spark.range(40, numPartitions=20).mapInArrow(where, "prefix string, home string").collect()
with open("found.json", "w") as file:
    json.dump([row.asDict() for row in found], file)
servers = {servers!r}
rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", {source!r})
writer = rows.option("startingOffsets", "earliest").load().select("key", "value").writeStream
writer = writer.format("onceonly.kafka").option("kafka.bootstrap.servers", servers).option("topic", {target!r})
writer.option("checkpointLocation", {checkpoint!r}).trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def bash(name: str, folder: Path, **env: str) -> None:
    """Run a block of the page in a folder, with nothing of the tests' own environment but its commands."""
    clean = {key: value for key, value in os.environ.items() if "PYTHON" not in key and "SPARK" not in key}
    clean["PATH"] = f"{Path(sys.executable).parent}:{clean['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", extract(PAGE, name)],
        cwd=folder, env={**clean, **env}, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the archive in a copy of the sources, which has no other trace of an environment afterwards."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    bash("archive", folder)
    for name in ("src", "job", "dist"):
        shutil.rmtree(folder / name)
    return folder


def test_executors_have_nothing_but_the_archive(bench: Bench, checkout: Path, tmp_path: Path) -> None:
    bench.feed(ROWS)
    job = JOB.format(
        servers=bench.kafka.bootstrap_servers,
        source=bench.source,
        target=bench.target,
        checkpoint=str(bench.checkpoint),
    )
    (checkout / "job.py").write_text(job, encoding="utf-8")
    lines = "".join(f"{name} {value}\n" for name, value in SETTINGS.items())
    (tmp_path / "spark-defaults.conf").write_text(lines, encoding="utf-8")
    # Executors work in a folder of it.
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name != "work":
            (home / path.name).symlink_to(path)
    bash(
        "submit", checkout, MASTER="local-cluster[2,1,1024]", SPARK_HOME=str(home), SPARK_CONF_DIR=str(tmp_path),
        SPARK_LOCAL_DIRS=str(tmp_path / "spark"),
    )  # fmt: skip
    found = json.loads((checkout / "found.json").read_text(encoding="utf-8"))
    prefixes = {os.path.realpath(each["prefix"]) for each in found}
    assert len(prefixes) == 2
    assert all(prefix.startswith(f"{home}/work/") for prefix in prefixes), prefixes
    assert all(each["home"].startswith(each["prefix"]) for each in found), found
    assert sorted(read_committed(bench.kafka.bootstrap_servers, bench.target)) == sorted(ROWS)
