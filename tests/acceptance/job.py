"""A job in its own process, to be killed: Kafka → (pass through | shuffle | windows) → one sink or several.

Run as a script by ``harness.py``. It ends by itself when everything that was in the topic is processed, by a stream or
by one batch.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import onceonly
from onceonly.jars.locked import spark_jars
from onceonly.spark.processes.start import FOLDER
from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

BATCH = "backfill"
"""The id of the batch that the job is where it is no stream."""
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--way", choices=("format", "foreachBatch", "epoch", "batch"), default="format")
    parser.add_argument("--sink", choices=("kafka", "files", "results"), default="kafka")
    parser.add_argument("--files", help="the folder of the file sink")
    parser.add_argument("--database", help="the database of the docs' sink")
    parser.add_argument("--skip-files-from", type=int, default=-1, help="the epoch that leaves the files out")
    parser.add_argument("--work", choices=("pass", "shuffle", "window"), default="pass")
    parser.add_argument("--store", choices=("default", "rocksdb"), default="default")
    parser.add_argument("--guarantee", default="exactly-once")
    parser.add_argument("--per-epoch", type=int, default=100)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--option", action="append", default=[], help="NAME=VALUE for the sink")
    parser.add_argument("--conf", action="append", default=[], help="NAME=VALUE for Spark")
    parser.add_argument("--subscribe", default="", help="topics, instead of the source alone")
    parser.add_argument("--source-option", action="append", default=[], help="NAME=VALUE for the source")
    parser.add_argument("--column", action="append", default=[], help="SQL, instead of key and value")
    parser.add_argument("--configured", action="store_true", help="with what onceonly.configure sets")
    parser.add_argument("--connect", action="store_true", help="as a client of a server of its own")
    parser.add_argument("--java", default="", help="more options of the driver's JVM")
    parser.add_argument("--restart", type=int, default=0, help="restarts in this process")
    return parser.parse_args()


def session(args: argparse.Namespace) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder if args.connect else SparkSession.builder.master(args.master)
    builder = (
        builder.config("spark.jars", spark_jars())
        .config("spark.pyspark.python", sys.executable)
        .config("spark.executorEnv.PYTHONPATH", str(FOLDER))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "700m")
        # A job that lives for seconds gains nothing from the second compiler.
        .config("spark.driver.extraJavaOptions", f"{SHORT_LIVED_JAVA} {args.java}")
        .config("spark.executor.extraJavaOptions", f"-Djava.io.tmpdir={tempfile.gettempdir()}")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if args.configured:
        builder = onceonly.configure(builder)
    if args.store == "rocksdb":
        builder = builder.config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    for pair in args.conf:
        name, _, value = pair.partition("=")
        builder = builder.config(name, value)
    if args.connect:
        # Its port is any that is free; as Spark's own tests do.
        os.environ["SPARK_TESTING"] = "1"
        spark = builder.remote(args.master).getOrCreate()
    else:
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
    onceonly.register(spark, *([docs_sink()] if args.database else []))
    return spark


def rows(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Return key and value; the window job counts per key and minute (the value is the event's second)."""
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.servers)
        .option("subscribe", args.subscribe or args.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.per_epoch)
        .option("kafka.fetch.max.wait.ms", 1)
        .options(**dict(pair.split("=", 1) for pair in args.source_option))
        .load()
    )
    if args.work != "window":
        passed = source.selectExpr(*(args.column or ("key", "value")))
        return passed.repartition(2, "key") if args.work == "shuffle" else passed
    seconds = f.col("value").cast("string").cast("long")
    counts = (
        source.select(f.col("key").cast("string").alias("k"), f.timestamp_seconds(seconds).alias("t"))
        .withWatermark("t", "10 minutes")
        .groupBy("k", f.window("t", "1 minute"))
        .count()
    )
    key = f.concat_ws("|", "k", f.unix_timestamp("window.start").cast("string"))
    return counts.select(key.alias("key"), f.col("count").cast("string").alias("value"))


def docs_sink() -> type[onceonly.StagedSink]:
    """Return the sink of the docs, from the module that the harness has made of its page."""
    found: type[onceonly.StagedSink] = importlib.import_module("docs_sink").ResultsSink
    return found


def options_of(sink: str, args: argparse.Namespace) -> dict[str, str]:
    own = {
        "kafka": {"kafka.bootstrap.servers": args.servers, "topic": args.target},
        "files": {"path": args.files, "format": "json"},
        "results": {"database": args.database},
    }[sink]
    given = {**own, "onceonly.guarantee": args.guarantee, **dict(pair.split("=", 1) for pair in args.option)}
    return {name: value for name, value in given.items() if value}


def write_to_all(args: argparse.Namespace) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that writes every row to Kafka, to files and to the database."""
    kafka, files = (
        onceonly.sink(f"onceonly.{name}", **options_of(name, args)) for name in ("kafka", "files")
    )
    results = onceonly.sink(docs_sink(), **options_of("results", args))

    def write(df: DataFrame, batch_id: int) -> None:
        texts = df.select(*(f.col(name).cast("string").alias(name) for name in ("key", "value")))
        with onceonly.epoch(df, batch_id, log=args.checkpoint) as epoch:
            epoch.write(df, kafka)
            if not 0 <= args.skip_files_from <= batch_id:
                # One file an epoch, so that a kill can strike between its commit and Kafka's.
                epoch.write(texts.coalesce(1), files)
            epoch.write(texts, results)

    return write


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    writer = rows(spark, args).writeStream.queryName("job").trigger(availableNow=True)
    if args.way == "epoch":
        writer = writer.option("checkpointLocation", args.checkpoint)
        return writer.foreachBatch(write_to_all(args)).start()
    sink = {**options_of(args.sink, args), "checkpointLocation": args.checkpoint}
    if args.way == "foreachBatch":
        writer = writer.option("checkpointLocation", args.checkpoint)
        if args.work == "window":
            writer = writer.outputMode("update")
        return writer.foreachBatch(onceonly.sink(f"onceonly.{args.sink}", **sink)).start()
    return writer.format(f"onceonly.{args.sink}").options(**sink).start()


def backfill(spark: SparkSession, args: argparse.Namespace) -> None:
    """Write all that is in the topic now, as one batch."""
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", args.servers)
    found = source.option("subscribe", args.source).load().selectExpr(*(args.column or ("key", "value")))
    sink = {**options_of(args.sink, args), "checkpointLocation": args.checkpoint, "onceonly.job": BATCH}
    found.write.format(f"onceonly.{args.sink}").options(**sink).mode("append").save()


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    if args.way == "batch":
        backfill(spark, args)
        return
    restart = (
        onceonly.FixedDelay(attempts=args.restart, delay_s=0.1) if args.restart else onceonly.NoRestart()
    )
    onceonly.supervise(lambda: start(spark, args), restart=restart)


def main() -> None:
    args = options()
    spark = session(args)
    try:
        run(spark, args)
    except onceonly.OnceonlyError as error:
        sys.stderr.write(f"job: {error}\n")
        Path(args.checkpoint + ".error").write_text(str(error), encoding="utf-8")
        sys.stdout.flush()
        os._exit(3)
    spark.stop()


if __name__ == "__main__":
    main()
