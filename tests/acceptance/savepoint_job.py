"""A stateful streaming job in its own process, for savepoints: rows by a clock of epochs → an operator → the ledger.

``python savepoint_job.py CHECKPOINT FOLDER OPERATOR PROVIDER [FORK LEDGER]...``; a fork is started when it is there. It
ends after the epoch that a file ``CHECKPOINT.last`` names, or ``FOLDER.last`` where the checkpoint is on a store.
OPERATOR is window, dedup, join, tws, or files, a deduplication of what a file source reads in the folder that
``SAVEPOINT_FILES`` names, a file an epoch; PROVIDER hdfs, rocksdb or changelog, with ``2`` behind it for format 2.
``SAVEPOINT_JOB`` in the environment has further settings of Spark's, in JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger_sink import LedgerSink
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

import onceonly
from onceonly.spark import listener
from onceonly.stores.opened import address_of, open_store
from onceonly_proof.handover import until
from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

PER_EPOCH = 100
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STATE = "spark.sql.streaming.stateStore"


def session(provider: str) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "900m")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA)
        # Spark takes away what it needs no more as soon and as often as it can.
        .config("spark.sql.streaming.minBatchesToRetain", "2")
        .config(f"{_STATE}.maintenanceInterval", "1s")
        .config(f"{_STATE}.minDeltasForSnapshot", "3")
        .config("spark.speculation", "true")
        # The list of a file source is compacted soon, so that a cut has to take a part of one.
        .config("spark.sql.streaming.fileSource.log.compactInterval", "3")
    )
    if not provider.startswith("hdfs"):
        builder = builder.config(f"{_STATE}.providerClass", _ROCKSDB)
    if provider.startswith("changelog"):
        builder = builder.config(f"{_STATE}.rocksdb.changelogCheckpointing.enabled", "true")
    if provider.endswith("2"):
        builder = builder.config(f"{_STATE}.checkpointFormatVersion", "2")
    for name, value in json.loads(os.environ.get("SAVEPOINT_JOB", "{}")).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def source(spark: SparkSession) -> DataFrame:
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", PER_EPOCH)
        .option("numPartitions", 2)
        .option("startTimestamp", 1_700_000_000_000)
        .option("advanceMillisPerBatch", 1000)
        .load()
    )


def plan(spark: SparkSession, operator: str) -> tuple[DataFrame, str]:
    """Return the rows of a query, and its output mode."""
    if operator == "files":
        read = spark.readStream.schema("value long, timestamp timestamp").option("maxFilesPerTrigger", 1)
        files = read.json(os.environ["SAVEPOINT_FILES"]).withWatermark("timestamp", "3 seconds")
        return files.dropDuplicates(["value", "timestamp"]), "append"
    rows = source(spark).withColumn("key", F.col("value") % 17)
    if operator == "window":
        late = rows.withWatermark("timestamp", "3 seconds")
        return late.groupBy(F.window("timestamp", "2 seconds"), "key").count().select(
            "window.start", "key", "count"
        ), "append"
    if operator == "dedup":
        old = rows.withColumn("old", F.floor(F.col("value") / 3)).withWatermark("timestamp", "3 seconds")
        return old.dropDuplicates(["old", "timestamp"]).select("old", "timestamp"), "append"
    if operator == "join":
        left = rows.selectExpr("value as l", "timestamp as lt").withWatermark("lt", "2 seconds")
        right = (
            source(spark).selectExpr("value - 150 as r", "timestamp as rt").withWatermark("rt", "2 seconds")
        )
        near = F.expr("l = r and rt between lt - interval 3 seconds and lt + interval 3 seconds")
        return left.join(right, near), "append"
    return (
        rows.groupBy("key").transformWithStateInPandas(_total(), "key long, total long", "update", "none"),
        "update",
    )


def _total() -> Any:  # noqa: ANN401  a class of PySpark's, which needs pandas
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Total(StatefulProcessor):
        def init(self, handle: Any) -> None:  # noqa: ANN401
            self.total = handle.getValueState("total", "total long")

        def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:  # noqa: ANN401, N802
            import pandas as pd

            total = (self.total.get()[0] if self.total.exists() else 0) + sum(len(part) for part in rows)
            self.total.update((total,))
            yield pd.DataFrame({"key": [key[0]], "total": [total]})

        def close(self) -> None:
            pass

    return Total()


def write_files(folder: Path, count: int) -> None:
    """Write what a file source reads, in this order; in each file are rows twice, and one of the file before."""
    folder.mkdir()
    for number in range(count):
        told = [(number, number), (number, number), (number + 1, number), (number, max(number - 1, 0))]
        lines = [
            json.dumps({"value": value, "timestamp": f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"})
            for value, at in told
        ]
        path = folder / f"{number:04}.json"
        path.write_text("\n".join(lines), encoding="utf-8")
        os.utime(path, (number + 1, number + 1))


def newest(checkpoint: Path | str) -> int:
    """Return the newest epoch that Spark has noted, -1 for none."""
    if "://" in str(checkpoint):
        store = open_store(address_of(str(checkpoint)))
        noted = [name.removeprefix("commits/") for name in store.list_names("commits/")]
    else:
        noted = [path.name for path in (Path(checkpoint) / "commits").glob("*")]
    return max((int(name) for name in noted if name.isdecimal()), default=-1)


def main() -> None:
    checkpoint, folder, operator, provider, *forks = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(provider)
    spark.sparkContext.setLogLevel("ERROR")
    onceonly.register(spark, LedgerSink)
    listener.install(spark)
    beside = folder if "://" in checkpoint else checkpoint
    last = Path(f"{beside}.last")
    queries = [start(spark, operator, checkpoint, folder)]
    waiting = dict(zip(forks[::2], forks[1::2], strict=True))

    def is_over() -> bool:
        ready = [each for each in waiting if (Path(each) / "metadata").exists()]
        queries.extend(start(spark, operator, fork, waiting.pop(fork)) for fork in ready)
        is_last = last.exists() and newest(checkpoint) >= int(last.read_text())
        return is_last or not queries[0].isActive

    until(is_over, math.inf, poll_s=0.05)
    # Not afterwards: what Spark does between two epochs a stop interrupts, and HDFS' client calls that another failure.
    errors = [error for query in queries if (error := query.exception()) is not None]
    for query in queries:
        query.stop()
    if errors:
        Path(f"{beside}.error").write_text(str(errors[0]), encoding="utf-8")
        sys.exit(3)
    spark.stop()


def start(spark: SparkSession, operator: str, checkpoint: str, folder: str) -> StreamingQuery:
    rows, mode = plan(spark, operator)
    return (
        rows.writeStream.outputMode(mode)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="100 milliseconds")
        .foreachBatch(onceonly.sink(LedgerSink, folder=folder, checkpointLocation=checkpoint))
        .start()
    )


if __name__ == "__main__":
    main()
