"""The Spark job of a campaign, in a process of its own, to be killed.

``python -m onceonly_proof.campaign.job FOLDER`` starts Spark, says that it is ready and waits for its task, so
that a campaign can keep one warm for the next life. The task's query runs, and is started again when it fails,
until a file ``stop`` is in the folder.
"""

from __future__ import annotations

import argparse
import logging
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import onceonly
from onceonly_proof.campaign import queries, speculating
from onceonly_proof.campaign.session import keep_running, say_ready, session, texts
from onceonly_proof.campaign.targets.keyed import NUMBER, SEQUENCE
from onceonly_proof.campaign.task import CONF, ERROR, SPARK, STOP, TASK, Task
from onceonly_proof.campaign.way import format_of
from onceonly_proof.embedded.standalone import Standalone
from onceonly_proof.parent import die_with_parent, end_with

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_POLL_S = 0.02
_SLOTS = 2
_COLLECTION, _PAUSE = format_of("collection"), "1 second"
# The faults are more than any sensible strategy would answer.
_RESTART = onceonly.FixedDelay(attempts=1_000_000, delay_s=0.05)


def rows(spark: SparkSession, task: Task) -> DataFrame:
    """Return key and value as texts: of the input, of what of it had not come before, or of its windows."""
    for name, value in queries.session(task.query).items():
        spark.conf.set(name, value)
    # A broker that is down is the query's failure, and answered by its restart, within seconds.
    limits = {"default_api_timeout_ms": 10_000, "request_timeout_ms": 5_000}
    if task.format:
        given = read(spark, task)
        found = given.selectExpr(f"{task.key} as key", "cast(value as string) as value")
    else:
        found = texts(spark, task.servers, task.source, task.per_epoch, **limits)
    if task.query == queries.WINDOW:
        return by_window(found, queries.delay_s(task.per_epoch))
    return found.dropDuplicates(["value"]) if task.query in queries.DROPPING else found


def read(spark: SparkSession, task: Task) -> DataFrame:
    """Return the rows of a source beside Kafka; those of a collection are given anew by each start."""
    if task.format != _COLLECTION:
        return spark.readStream.format(task.format).options(**task.read).load()
    lines = Path(task.read["path"]).read_text(encoding="utf-8").splitlines()
    return onceonly.collection(
        spark,
        [(line,) for line in lines],
        "value string",
        rows_per_epoch=int(task.read["rows_per_epoch"]),
        partitions=int(task.read["partitions"]),
    )


def by_window(found: DataFrame, delay_s: int) -> DataFrame:
    """Return the windows of rows: numbered, and as texts of what they count."""
    from pyspark.sql import functions as f

    numbered = found.selectExpr(
        f"timestamp_seconds({NUMBER}) as moment",
        "crc32(cast(value as binary)) as checksum",
    )
    counted = (
        numbered.withWatermark("moment", f"{delay_s} seconds")
        .groupBy(f.window("moment", f"{queries.WINDOW_S} seconds"))
        .agg(f.count("*").alias("members"), f.sum("checksum").alias("checksums"))
    )
    number = f"unix_seconds(window.start) div {queries.WINDOW_S} as number"
    told = """format_string('{"id":%d,"rows":%d,"sum":%d}', number, members, checksums) as value"""
    return counted.selectExpr(number, "members", "checksums").selectExpr(
        "cast(number as string) as key", told
    )


def start(spark: SparkSession, task: Task) -> StreamingQuery:
    """Start the query: by the format of its sink, or all of them under one decision."""
    found = rows(spark, task)
    if len(task.sinks) == 1:
        (sink,) = task.sinks
        form = "kafka" if sink == SPARK else f"onceonly.{sink}"
        options = task.options(sink)
        return written(fitted(found, options), task).format(form).options(**options).start()
    sinks = [
        (options, onceonly.sink(f"onceonly.{name}", **options))
        for name, options in ((name, task.options(name)) for name in task.sinks)
    ]

    def write(df: DataFrame, epoch_id: int) -> None:
        with onceonly.epoch(df, epoch_id, log=task.checkpoint, epoch_timeout_s=task.limit_s) as epoch:
            for options, sink in sinks:
                epoch.write(fitted(df, options), sink)

    return written(found, task).foreachBatch(write).start()


def written(found: DataFrame, task: Task) -> DataStreamWriter:
    """Return the writer of a query: without a pause, but for a collection, which shall last."""
    writer = found.writeStream.option("checkpointLocation", task.checkpoint)
    return writer.trigger(processingTime=_PAUSE) if task.format == _COLLECTION else writer


def fitted(df: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Return the rows as a sink wants them: for one by key, numbered, and all of a key in one partition."""
    if options.get("sequence") != SEQUENCE:
        return df
    numbered = df.selectExpr("key", "value", f"{NUMBER} as {SEQUENCE}")
    return numbered.repartition(_SLOTS, "key")


def main() -> None:
    """Wait for a task, run it, and leave a typed error as a JSON file."""
    die_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--java", default="")
    parser.add_argument("--executors", type=int, default=0)
    parser.add_argument("--speculation", action="store_true")
    args = parser.parse_args()
    folder: Path = args.folder
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    conf = msgspec.json.decode((folder / CONF).read_bytes(), type=dict[str, str])
    with ExitStack() as close:
        cluster = None
        if args.speculation:
            cluster = close.enter_context(Standalone(folder / "cluster", speculating.hosts(args.executors)))
        spark = session(
            folder,
            java=args.java,
            conf=conf,
            # What it is told beside what all are is how to reach the store of its checkpoint.
            local_checkpoints=not conf,
            executors=args.executors,
            cluster=cluster,
        )
        run(spark, folder)


def run(spark: SparkSession, folder: Path) -> None:
    """Say that a task can be given, and run the one that is."""
    say_ready(spark, folder)
    while not (folder / TASK).exists():
        if (folder / STOP).exists():
            spark.stop()
            return
        time.sleep(_POLL_S)
    task = msgspec.json.decode((folder / TASK).read_bytes(), type=Task)
    try:
        keep_running(lambda: start(spark, task), restart=_RESTART, shall_end=(folder / STOP).exists)
    except onceonly.OnceonlyError as error:
        end_with(error, folder / ERROR)
    spark.stop()


if __name__ == "__main__":
    main()
