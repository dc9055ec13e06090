"""The Spark job of the power-loss campaign: ``python -m onceonly_proof.power.job FOLDER``.

One process, one session, task after task, each a query of its own that is started again when it fails, a bounded number
of times. It keeps nothing between two tasks but the session.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import onceonly
from onceonly_proof.campaign.session import keep_running, say_ready, session, texts
from onceonly_proof.handover import put, until
from onceonly_proof.parent import die_with_parent
from onceonly_proof.power.task import Done, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.01
_RESTART = onceonly.FixedDelay(attempts=5, delay_s=0.02)
_RATE_TICK_S = 1.1
_UNLOAD_TIMEOUT_S = 60.0
WITH_SUMS = "--with-sums"
ROWS_PER_S = 5
"""Of the rate source."""


def rows(spark: SparkSession, task: Task) -> DataFrame:
    """Return key and value of the input, as texts: each value once."""
    pipeline = task.pipeline
    if pipeline.source == "files":
        reader = spark.readStream.schema("key string, value string").option(
            "maxFilesPerTrigger", task.per_epoch
        )
        found = reader.json(task.input)
    elif pipeline.source == "rate":
        rate = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_S).option("numPartitions", 2)
        found = rate.load().selectExpr("cast(value % 3 as string) as key", "cast(value as string) as value")
    else:
        found = texts(spark, task.servers, task.input, task.per_epoch)
    return found if pipeline.state == "none" else found.dropDuplicates(["value"])


def start(spark: SparkSession, task: Task) -> StreamingQuery:
    """Start the query."""
    for key, value in task.pipeline.conf().items():
        spark.conf.set(key, value)
    writer = rows(spark, task).writeStream.option("checkpointLocation", task.checkpoint)
    options = {"checkpointLocation": task.checkpoint}
    if task.pipeline.sink == "files":
        name = "onceonly.files"
        options |= {"path": task.target, "format": "json"}
    else:
        name = "onceonly.kafka"
        options |= {"topic": task.target, "kafka.bootstrap.servers": task.servers}
    if task.pipeline.way == "foreachBatch":
        writer = writer.foreachBatch(onceonly.sink(name, **options))
    else:
        writer = writer.format(name).options(**options)
    return writer.trigger(availableNow=True).start()


def run(spark: SparkSession, task: Task) -> Done:
    """Run the query to its end, through as many starts as a strategy would give it."""
    starts = 0
    late = threading.Event()
    begun = time.monotonic()

    def build() -> StreamingQuery:
        nonlocal starts
        starts += 1
        return start(spark, task)

    def is_late() -> bool:
        if time.monotonic() - begun > task.limit_s:
            late.set()
        return late.is_set()

    code = what = ""
    # A rate source has no end: it is read up to now, several times. Stopped, a query would leave what it has decided.
    times = task.epochs if task.pipeline.source == "rate" else 1
    try:
        _rescale(spark, task)
        for _ in range(times):
            keep_running(build, restart=_RESTART, shall_end=is_late)
            time.sleep(_RATE_TICK_S if times > 1 else 0)
    except onceonly.OnceonlyError as error:
        code, what = error.code, str(error)
    except Exception as error:  # noqa: BLE001  Spark's own: a person would have to look at it
        code, what = type(error).__name__, str(error).partition("\n\tat ")[0][:2_000]
    if not code and late.is_set():
        code, what = "LATE", f"the query did not end within {task.limit_s:g} s"
    took = time.monotonic() - begun
    return Done(ok=not code, code=code, what=what, starts=starts - times + 1, took_s=took)


def _rescale(spark: SparkSession, task: Task) -> None:
    """Deal the state to other partitions, if so told: to what follows, that is an epoch which no sink has seen."""
    if task.rescale:
        spark._streamingCheckpointManager.repartition(task.checkpoint, task.rescale)  # noqa: SLF001  Spark's only way


def _wait_unloaded(spark: SparkSession) -> None:
    """Wait until the JVM has let go of a query's state: it writes a last snapshot, which the next disk must not get."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  Spark has no other way
    stores = jvm.java.lang.Class.forName("org.apache.spark.sql.execution.streaming.state.StateStore$")
    field = stores.getDeclaredField("loadedProviders")
    field.setAccessible(True)
    loaded = field.get(stores.getField("MODULE$").get(None))
    if not until(lambda: not loaded.size(), _UNLOAD_TIMEOUT_S, poll_s=_POLL_S):
        raise RuntimeError(f"Spark still holds the state of a query that has ended: {loaded.size()} stores")


def main() -> None:
    """Carry out the tasks of a folder, in their order, until the parent ends this process."""
    die_with_parent()
    folder = Path(sys.argv[1])
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    spark = session(
        folder,
        conf={
            # Snapshots of the state are a part of the checkpoint, too.
            "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
            "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            # By the files that are chosen else RocksDB's state cannot be stored; these have checksums beside them.
            **(
                {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}
                if WITH_SUMS in sys.argv
                else {}
            ),
        },
    )
    say_ready(spark, folder)
    number = 0
    while True:
        given = folder / f"task-{number}.json"
        if not given.exists():
            time.sleep(_POLL_S)
            continue
        done = run(spark, msgspec.json.decode(given.read_bytes(), type=Task))
        _wait_unloaded(spark)
        put(folder / f"done-{number}.json", msgspec.json.encode(done))
        number += 1


if __name__ == "__main__":
    main()
