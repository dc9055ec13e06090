"""A declarative pipeline whose sinks are ours: run by Spark's own command, killed at each step, and run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark.pipelines
import pytest
from harness import Bench, Run, start

from onceonly.jars.locked import spark_jars

if TYPE_CHECKING:
    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(1200)]

COMMAND = str(Path(pyspark.pipelines.__file__).parent / "cli.py")
"""What ``spark-pipelines`` runs, in a session of its own."""
ROWS = [(f"k{number % 7}", str(number)) for number in range(300)]
PIPELINE = """
import onceonly
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
onceonly.register(spark)

dp.create_sink("copy", "onceonly.kafka", {{"kafka.bootstrap.servers": "{servers}", "topic": "{target}"}})
dp.create_sink("kept", "onceonly.files", {{"path": "{files}", "format": "json"}})


def rows():
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "{servers}")
    read = read.option("subscribe", "{source}").option("startingOffsets", "earliest")
    return read.option("maxOffsetsPerTrigger", 60).load()


@dp.append_flow(target="copy")
def copied():
    return rows().selectExpr("key", "value")


@dp.append_flow(target="kept")
def written():
    return rows().selectExpr("string(key) as key", "string(value) as value")
"""


@pytest.fixture
def bench(kafka: EmbeddedKafka, tmp_path: Path) -> Bench:
    made = Bench(kafka, tmp_path)
    (tmp_path / "flows").mkdir()
    told = {"servers": kafka.bootstrap_servers, "source": made.source, "target": made.target}
    (tmp_path / "flows" / "orders.py").write_text(PIPELINE.format(**told, files=made.files))
    settings = {"spark.jars": spark_jars(), "spark.ui.enabled": "false", "spark.driver.memory": "700m"}
    spec = {
        "name": "orders",
        "storage": (tmp_path / "storage").as_uri(),
        "libraries": [{"glob": {"include": "flows/**"}}],
    }
    (tmp_path / "spark-pipeline.yml").write_text(json.dumps(spec))  # which is YAML
    (tmp_path / "conf").mkdir()
    defaults = "".join(f"{name} {value}\n" for name, value in settings.items())
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults)
    return made


def life(bench: Bench, failpoints: str = "") -> Run:
    # A server of its own, at any port that is free.
    env = {"SPARK_REMOTE": "local[2]", "SPARK_TESTING": "1", "SPARK_CONF_DIR": str(bench.folder / "conf")}
    return start(COMMAND, bench.folder, "run", failpoints=failpoints, env=env)


def run(bench: Bench) -> Run:
    done = life(bench)
    try:
        assert done.wait() == 0, done.tail()
    finally:
        done.kill_tree()
    return done


def test_its_sinks_have_every_row_once_however_often_it_died(bench: Bench) -> None:
    """The checkpoint of each flow is where the pipeline puts it; no option names it."""
    bench.feed(ROWS)
    for point in ("slot.after_prepare", "link.before_put", "link.after_put", "receipt.before_put"):
        died = life(bench, f"{point}=pause@2")
        try:
            died.wait_for(point)
        finally:
            died.kill_tree()
    for _ in range(2):
        done = run(bench)
        assert "Traceback" not in done.tail(1000)
    bench.assert_exactly_once(ROWS, "kafka", "files")
    assert (bench.folder / "storage" / "_checkpoints" / "copy" / "copied" / "0" / "onceonly").is_dir()
