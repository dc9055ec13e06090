"""Every Python block of the README runs, on real Spark and a real broker, and does what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness import Bench

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(480)]

README = Path(__file__).parents[2] / "README.md"
BLOCKS = dict(
    re.findall(r"<!-- example: (\w+) -->\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
)
ROWS = [(f"k{number % 3}", str(number)) for number in range(60)]

BEFORE = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import onceonly
from onceonly.embedded.jars import spark_jars

servers, source, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", spark_jars()).config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
onceonly.register(spark)
events = (
    spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", source)
    .option("startingOffsets", "earliest").load().select("key", "value")
)
totals = events.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
"""
AFTER = """
query.processAllAvailable()
query.stop()
spark.stop()
"""


def run(bench: Bench, program: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", program, bench.kafka.bootstrap_servers, bench.source]
    done = subprocess.run(
        [*command, str(bench.checkpoint)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=bench.folder,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_readme_has_the_three_examples_that_are_run_here() -> None:
    assert set(BLOCKS) == {"format", "foreachBatch", "supervise"}
    assert README.read_text(encoding="utf-8").count("```python") == len(BLOCKS)


@pytest.mark.parametrize("example", ["format", "foreachBatch"])
def test_the_readmes_example_runs(bench: Bench, example: str) -> None:
    bench.feed(ROWS)
    topic = {"format": "results", "foreachBatch": "totals"}[example]
    bench.kafka.create_topic(bench.target + topic, partitions=1)
    block = BLOCKS[example].replace(f'"{topic}"', f'"{bench.target}{topic}"')
    run(bench, BEFORE + block + AFTER)
    rows = bench.read(bench.target + topic)
    if example == "format":
        assert Counter(rows) == Counter(ROWS)
    else:
        last = {key: max(int(value) for name, value in rows if name == key) for key, _ in rows}
        assert last == Counter(key for key, _ in ROWS)


def test_the_readmes_supervised_job_runs(bench: Bench) -> None:
    bench.feed(ROWS)
    build = f"""
def build_query():
    return (
        events.writeStream.format("onceonly.kafka").option("kafka.bootstrap.servers", servers)
        .option("topic", "{bench.target}").option("checkpointLocation", checkpoint)
        .trigger(availableNow=True).start()
    )
"""
    run(bench, BEFORE + build + BLOCKS["supervise"] + "spark.stop()")
    bench.assert_exactly_once(ROWS)
