"""Queries that are stopped, poisoned, idle, or left with zombies: nothing doubled, nothing left open."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from harness import open_transactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Bench

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(480)]

ROWS = [(f"k{number % 3}", str(number)) for number in range(300)]

BEFORE = """
import os, sys, time
from pathlib import Path
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import onceonly
from onceonly.jars.locked import spark_jars
from onceonly_proof.local_session import SHORT_LIVED_JAVA
from onceonly.spark.processes.start import FOLDER

servers, source, target, folder = sys.argv[1:]
fired = Path(folder) / "fired"
fired.mkdir()


spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", spark_jars()).config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA)
    .config("spark.executorEnv.PYTHONPATH", str(FOLDER)).config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
onceonly.register(spark)

def rows():
    return (
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", source)
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 50).load().select("key", "value")
    )

def start(df, target, **trigger):
    return (
        df.writeStream.format("onceonly.kafka").option("kafka.bootstrap.servers", servers).option("topic", target)
        .option("checkpointLocation", folder + "/" + target).trigger(**trigger).start()
    )

def until(condition):
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
"""


def run(bench: Bench, program: str, failpoints: str = "", *, ui: bool = False) -> None:
    before = BEFORE.replace('"spark.ui.enabled", "false"', '"spark.ui.port", "0"') if ui else BEFORE
    command = [sys.executable, "-W", "ignore", "-c", before + program, bench.kafka.bootstrap_servers]
    done = subprocess.run(
        [*command, bench.source, bench.target, str(bench.folder)],
        capture_output=True, text=True, timeout=220, check=False, cwd=bench.folder,
        env={**os.environ, "ONCEONLY_FAILPOINTS": failpoints,
             "ONCEONLY_FAILPOINTS_DIR": str(bench.folder / "fired")},
    )  # fmt: skip
    (bench.folder / "program.log").write_text(done.stderr, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_task_that_outlives_its_stopped_query_writes_nothing_late(bench: Bench) -> None:
    bench.feed(ROWS)
    run(
        bench,
        """
query = start(rows(), target, processingTime="0 seconds")
until((fired / "slot.before_prepare.fired").exists)      # a task stands still in the middle of an epoch
query.stop()
again = start(rows(), target, processingTime="0 seconds")
again.processAllAvailable()
(fired / "resume").touch()                               # the zombie goes on, epochs later
again.stop()
spark.stop()
""",
        "slot.before_prepare=pause@3",
    )
    bench.assert_exactly_once(ROWS)
    assert open_transactions(bench.kafka.bootstrap_servers, bench.query_id_of(bench.target)) == []


@pytest.mark.long
def test_one_query_fails_and_is_restarted_while_the_other_goes_on(bench: Bench) -> None:
    bench.feed(ROWS)
    other = f"{bench.target}-poisoned"
    bench.kafka.create_topic(other, partitions=1)
    run(
        bench,
        f"""
import threading
from pyspark.sql import functions as f

@f.udf("binary")
def poison(value):
    if value == b"170" and not (fired / "cured").exists():
        (fired / "poisoned").touch()
        raise ValueError("poison")
    return value

poisoned = rows().select("key", poison("value").alias("value"))
healthy = start(rows(), target, processingTime="100 milliseconds")
lives, again = [], []
goes_on = threading.Event()
def build():
    lives.append(1)
    if goes_on.is_set() and not again:                   # and is stopped, and started again beside it
        healthy.stop()
        again.append(start(rows(), target, processingTime="100 milliseconds"))
    return start(poisoned, "{other}", availableNow=True)
def cure():
    until(lambda: len(lives) > 2)                        # it failed twice, and was started again
    healthy.processAllAvailable()                        # the other one goes on meanwhile
    assert healthy.isActive and healthy.exception() is None
    goes_on.set()
    until(lambda: again)
    again[0].processAllAvailable()
    (fired / "cured").touch()
threading.Thread(target=cure, daemon=True).start()
onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=50, delay_s=0.2))
until(lambda: again)
again[0].stop()
spark.stop()
""",
    )
    bench.assert_exactly_once(ROWS)
    seen = bench.read(other)
    assert sorted(seen) == sorted(ROWS)
    for topic in (bench.target, other):
        assert open_transactions(bench.kafka.bootstrap_servers, bench.query_id_of(topic)) == []


def test_an_idle_restart_ends_what_a_loser_left_open_and_nothing_foreign(bench: Bench) -> None:
    bench.feed(ROWS[:100])
    bench.run_and_kill_at("commit.before_return")
    query = bench.query_id()
    with (
        open_transaction(bench, f"onceonly.{query}.kafka.run.loser.0"),
        open_transaction(bench, f"other-{query}"),
    ):
        bench.run()
        assert open_transactions(bench.kafka.bootstrap_servers, query) == [f"other-{query}"]


def test_a_checkpoint_of_sparks_own_sink_is_taken_over_when_asked_and_goes_on_where_it_stood(
    bench: Bench,
) -> None:
    bench.feed(ROWS)
    run(
        bench,
        """
def turn(format, **more):
    return (
        rows().writeStream.format(format).option("kafka.bootstrap.servers", servers).option("topic", target)
        .option("checkpointLocation", folder + "/" + target).options(**more).start()
    )

query = turn("kafka")
until(lambda: (query.lastProgress or {"batchId": 0})["batchId"] > 1)
query.stop()
try:
    turn("onceonly.kafka")                               # nothing new has come: it is refused all the same
except onceonly.AdoptionError as error:
    assert "onceonly.adopt=true" in onceonly.explain(error)
else:
    raise SystemExit("the checkpoint of another sink was taken over without a word")
query = turn("onceonly.kafka", **{"onceonly.adopt": "true"})
query.processAllAvailable()
query.stop()
spark.stop()
""",
    )
    # Spark's own sink may have doubled the epoch that was in flight when it was stopped; that is said.
    seen = bench.read()
    assert set(seen) == set(ROWS)
    assert len(seen) <= len(ROWS) + 50


@pytest.mark.long
def test_a_password_is_in_no_plan_and_on_no_page_of_sparks_ui(bench: Bench) -> None:
    bench.feed(ROWS)
    run(
        bench,
        """
import contextlib, io, urllib.request
canary = "canary-7f3a9c"
secret = {"kafka.sasl.username": "u", "kafka.sasl.password": canary}
query = (
    rows().writeStream.format("onceonly.kafka").option("kafka.bootstrap.servers", servers).option("topic", target)
    .option("checkpointLocation", folder + "/" + target).options(**secret).start()
)
query.processAllAvailable()
plan = io.StringIO()
with contextlib.redirect_stdout(plan):
    query.explain(extended=True)
assert "onceonly.kafka" in plan.getvalue() and canary not in plan.getvalue()
assert canary not in str(query.recentProgress)
ui = spark.sparkContext.uiWebUrl
api = f"/api/v1/applications/{spark.sparkContext.applicationId}"
pages = ["/jobs/", "/stages/", "/environment/", "/SQL/", "/SQL/execution/?id=0", "/StreamingQuery/",
         api + "/environment", api + "/sql?details=true&length=1000", api + "/jobs", api + "/stages"]
for page in pages:
    text = urllib.request.urlopen(ui + page, timeout=30).read().decode()
    assert len(text) > 100, page
    assert canary not in text, page
query.stop()
spark.stop()
""",
        ui=True,
    )


@contextlib.contextmanager
def open_transaction(bench: Bench, name: str) -> Iterator[None]:
    producer = Producer({"bootstrap.servers": bench.kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(bench.target, "never to be seen")
    producer.flush(30)
    yield
