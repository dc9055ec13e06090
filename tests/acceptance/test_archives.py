"""An environment that travels with the job: packed by venv-pack, unpacked by Spark where executors work.

As on YARN and Kubernetes, but for the machines: ``local-cluster`` gives each executor a folder and a process of its own.
Executors, and the processes that plan and commit beside the driver, have no other onceonly than that of the archive.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness import read_committed
from test_distributions import TOOLS, built, environment, run

from onceonly.jars.locked import spark_jars

if TYPE_CHECKING:
    from harness import Bench

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(1200)]

ROWS = [(f"k{number % 17}", str(number)) for number in range(400)]
VENV_PACK = "venv-pack==0.2.0"
# As a user would write it: nothing of the tests is imported.
JOB = """
import json
import sys

from pyspark.sql import SparkSession

import onceonly

servers, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("archive").getOrCreate()
onceonly.register(spark)


def where(batches):
    import pyarrow as pa

    import onceonly

    for _ in batches:
        yield pa.record_batch({"prefix": [sys.prefix], "home": [onceonly.__file__]})


found = spark.range(4, numPartitions=4).mapInArrow(where, "prefix string, home string").collect()
print("FOUND", json.dumps([row.asDict() for row in found]))
rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", source)
writer = rows.option("startingOffsets", "earliest").load().select("key", "value").writeStream
writer = writer.format("onceonly.kafka").option("kafka.bootstrap.servers", servers).option("topic", target)
writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack an environment with the wheel and what its extras ask for, and no PySpark: the cluster's is used."""
    folder = tmp_path_factory.mktemp("archive")
    tools = folder / "tools"
    run(sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--target", tools, VENV_PACK)
    wheel = built(folder / "dist")["onceonly"]
    commands = environment(folder / "job", wheel, needs="onceonly[kafka,files]", more=("pandas", "numpy"))
    packed = folder / "job.tar.gz"
    # It is a script of a package that lies in no environment.
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tools)!r}); import venv_pack.__main__ as m; m.main()"]
    run(*command, "--prefix", commands.parent, "--output", packed)
    shutil.rmtree(commands.parent)
    return packed


def test_executors_have_nothing_but_the_archive(bench: Bench, archive: Path, tmp_path: Path) -> None:
    bench.feed(ROWS)
    here = tmp_path / "driver"
    here.mkdir()
    (here / "job.py").write_text(JOB, encoding="utf-8")
    # Spark starts the processes that plan and commit by the same name, where the driver works: in client mode, that is
    # where the job was submitted.
    with tarfile.open(archive) as packed:
        packed.extractall(here / "environment", filter="fully_trusted")
    env = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    command = [
        TOOLS / "spark-submit", "--master", "local-cluster[2,1,1024]", "--archives", f"{archive}#environment",
        "--jars", spark_jars(), "--conf", "spark.executor.memory=700m", "--conf", "spark.driver.memory=700m",
        "--conf", "spark.ui.enabled=false", "job.py",
        bench.kafka.bootstrap_servers, bench.source, bench.target, bench.checkpoint,
    ]  # fmt: skip
    done = subprocess.run(
        list(map(str, command)), cwd=here, capture_output=True, text=True, check=False, timeout=600,
        env={**env, "PYSPARK_PYTHON": "./environment/bin/python", "SPARK_LOCAL_DIRS": str(tmp_path / "spark"),
             "SPARK_WORKER_DIR": str(tmp_path / "work")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    print(done.stdout[-3000:])
    assert sorted(read_committed(bench.kafka.bootstrap_servers, bench.target)) == sorted(ROWS)
