"""The Spark job of a campaign, in a process of its own, to be killed.

``python -m onceonly_proof.campaign.job FOLDER`` starts Spark, says that it is ready and waits for its task, so
that a campaign can keep one warm for the next life. The task's query runs, and is started again when it fails,
until a file ``stop`` is in the folder.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import onceonly
from onceonly_proof.campaign import queries
from onceonly_proof.campaign.session import session
from onceonly_proof.campaign.task import ERROR, EXIT_TYPED_ERROR, READY, SPARK, STOP, TASK, Task
from onceonly_proof.parent import die_with_parent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.02
# The faults are more than any sensible strategy would answer.
_RESTART = onceonly.FixedDelay(attempts=1_000_000, delay_s=0.05)


def rows(spark: SparkSession, task: Task) -> DataFrame:
    """Return key and value of the input, as texts; a query with state drops those that came before."""
    for name, value in queries.session(task.query).items():
        spark.conf.set(name, value)
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", task.servers)
        .option("subscribe", task.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", task.per_epoch)
        .option("kafka.fetch.max.wait.ms", 20)
        # A broker that is down is the query's failure, and answered by its restart, within seconds.
        .option("kafka.default.api.timeout.ms", 10_000)
        .option("kafka.request.timeout.ms", 5_000)
        .load()
    )
    texts = source.selectExpr("cast(key as string) as key", "cast(value as string) as value")
    return texts.dropDuplicates(["value"]) if task.query in queries.STATEFUL else texts


def start(spark: SparkSession, task: Task) -> StreamingQuery:
    """Start the query: by the format of its sink, or all of them under one decision. Micro-batches without a pause."""
    writer = rows(spark, task).writeStream.option("checkpointLocation", task.checkpoint)
    if len(task.sinks) == 1:
        (sink,) = task.sinks
        form = "kafka" if sink == SPARK else f"onceonly.{sink}"
        return writer.format(form).options(**task.options(sink)).start()
    sinks = [onceonly.sink(f"onceonly.{name}", **task.options(name)) for name in task.sinks]

    def write(df: DataFrame, epoch_id: int) -> None:
        with onceonly.epoch(df, epoch_id, log=task.checkpoint, epoch_timeout_s=task.limit_s) as epoch:
            for sink in sinks:
                epoch.write(df, sink)

    return writer.foreachBatch(write).start()


def run(spark: SparkSession, task: Task, folder: Path) -> None:
    """Keep the query running until it shall end."""
    running: list[StreamingQuery] = []
    ended = threading.Event()

    def build() -> StreamingQuery:
        running[:] = [start(spark, task)]
        return running[0]

    def stop() -> None:
        while not ended.wait(_POLL_S):
            # Again and again: one may be in the middle of its restart.
            if (folder / STOP).exists() and running:
                running[0].stop()

    stopper = threading.Thread(target=stop, name="stop", daemon=True)
    stopper.start()
    try:
        onceonly.supervise(build, restart=_RESTART)
    finally:
        ended.set()
        stopper.join()


def main() -> None:
    """Wait for a task, run it, and leave a typed error as a JSON file."""
    die_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--java", default="")
    args = parser.parse_args()
    folder: Path = args.folder
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    spark = session(folder, java=args.java)
    # Starts the workers, and loads what every query needs: a spare has the time for it.
    spark.range(2, numPartitions=2).mapInArrow(lambda batches: batches, "id long").collect()
    (folder / READY).touch()
    while not (folder / TASK).exists():
        if (folder / STOP).exists():
            spark.stop()
            return
        time.sleep(_POLL_S)
    task = msgspec.json.decode((folder / TASK).read_bytes(), type=Task)
    try:
        run(spark, task, folder)
    except onceonly.OnceonlyError as error:
        logging.getLogger("onceonly").error("%s", error)  # noqa: TRY400  the message says it all
        failure = {"code": error.code, "what": error.what, "next_step": error.next_step}
        (folder / ERROR).write_text(json.dumps(failure), encoding="utf-8")
        logging.shutdown()
        os._exit(EXIT_TYPED_ERROR)  # Spark's threads would keep the process alive
    spark.stop()


if __name__ == "__main__":
    main()
