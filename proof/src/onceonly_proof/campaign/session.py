"""What the jobs of all campaigns have in common: their Spark session, their input, and a query that is kept running."""

from __future__ import annotations

import tempfile
import threading
from typing import TYPE_CHECKING

import onceonly
from onceonly.jars.locked import spark_jars
from onceonly_proof.campaign import speculating
from onceonly_proof.campaign.task import READY
from onceonly_proof.local_session import SHORT_LIVED_JAVA, local_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from onceonly.settings.restart import RestartStrategy
    from onceonly_proof.embedded.standalone import Standalone

_POLL_S = 0.01
_EXECUTOR_MB = 700


def session(
    folder: Path,
    *,
    java: str = "",
    conf: Mapping[str, str] | None = None,
    local_checkpoints: bool = True,
    executors: int = 0,
    cluster: Standalone | None = None,
) -> SparkSession:
    """Start Spark in this process, with the formats of onceonly. ``java`` are more options of its JVM. Driver.

    Tasks run in two threads of it, or in ``executors`` that are processes of their own; on a ``cluster`` Spark starts
    second attempts of those that are slow.
    """
    master = f"local-cluster[{executors},1,{_EXECUTOR_MB}]" if executors else "local[2,4]"
    return local_session(
        folder,
        name="onceonly verify",
        # A task whose worker dies is tried again.
        master=cluster.url if cluster else master,
        log_level="ERROR",
        conf={
            "spark.jars": spark_jars(),
            "spark.driver.memory": "700m",
            # The audit compares every epoch's log with Spark's; by default Spark forgets all but the last hundred.
            "spark.sql.streaming.minBatchesToRetain": "100000",
            **(_of_executors() if executors else {}),
            **({**cluster.settings(), **speculating.settings(folder)} if cluster else {}),
            **(conf or {}),
        },
        java=java,
        local_checkpoints=local_checkpoints,
    )


def _of_executors() -> dict[str, str]:
    return {
        "spark.executor.memory": f"{_EXECUTOR_MB}m",
        # Whoever is free takes a task, and not who has read its input before.
        "spark.locality.wait": "0",
        # Who is killed leaves what it has there.
        "spark.executor.extraJavaOptions": f"{SHORT_LIVED_JAVA} -Djava.io.tmpdir={tempfile.gettempdir()}",
    }


def say_ready(spark: SparkSession, folder: Path) -> None:
    """Say that a task can be given, when the workers are up, and what every query needs is loaded."""
    spark.range(2, numPartitions=2).mapInArrow(lambda batches: batches, "id long").collect()
    (folder / READY).touch()


def texts(spark: SparkSession, servers: str, topic: str, per_epoch: int, **more: int) -> DataFrame:
    """Return key and value of a topic, as texts. ``more`` are options of its consumers."""
    options: dict[str, str | int] = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": per_epoch,
        "kafka.fetch.max.wait.ms": 20,
        **{f"kafka.{name.replace('_', '.')}": value for name, value in more.items()},
    }
    found = spark.readStream.format("kafka").options(**options).load()
    return found.selectExpr("cast(key as string) as key", "cast(value as string) as value")


def keep_running(
    build: Callable[[], StreamingQuery], *, restart: RestartStrategy, shall_end: Callable[[], bool]
) -> None:
    """Run a query, through its restarts, until it ends by itself or shall end."""
    running: list[StreamingQuery] = []
    ended = threading.Event()

    def started() -> StreamingQuery:
        running[:] = [build()]
        return running[0]

    def stop() -> None:
        while not ended.wait(_POLL_S):
            # Again and again: one may be in the middle of its restart.
            if shall_end() and running:
                running[0].stop()

    stopper = threading.Thread(target=stop, name="stop", daemon=True)
    stopper.start()
    try:
        onceonly.supervise(started, restart=restart)
    finally:
        ended.set()
        stopper.join()
