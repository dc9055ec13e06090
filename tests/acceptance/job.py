"""A streaming job in its own process, to be killed: Kafka → (pass through | windows) → the sink.

Run as a script by ``harness.py``. It ends by itself when everything that was in the topic is processed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import onceonly
from onceonly.embedded.jars import spark_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--road", choices=("format", "foreachBatch"), default="format")
    parser.add_argument("--work", choices=("pass", "window"), default="pass")
    parser.add_argument("--store", choices=("default", "rocksdb"), default="default")
    parser.add_argument("--guarantee", default="exactly-once")
    parser.add_argument("--per-epoch", type=int, default=100)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--option", action="append", default=[], help="NAME=VALUE for the sink")
    parser.add_argument("--conf", action="append", default=[], help="NAME=VALUE for Spark")
    parser.add_argument("--column", action="append", default=[], help="SQL, instead of key and value")
    parser.add_argument("--restart", type=int, default=0, help="restarts in this process")
    return parser.parse_args()


def session(args: argparse.Namespace) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(args.master)
        .config("spark.jars", spark_jars())
        .config("spark.pyspark.python", sys.executable)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "700m")
        # A job that lives for seconds gains nothing from the second compiler.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if args.store == "rocksdb":
        builder = builder.config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    for pair in args.conf:
        name, _, value = pair.partition("=")
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    onceonly.register(spark)
    return spark


def rows(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Give key and value; the window job counts per key and minute (the value is the event's second)."""
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.servers)
        .option("subscribe", args.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.per_epoch)
        .option("kafka.fetch.max.wait.ms", 20)
        .load()
    )
    if args.work == "pass":
        return source.selectExpr(*(args.column or ("key", "value")))
    seconds = f.col("value").cast("string").cast("long")
    counts = (
        source.select(f.col("key").cast("string").alias("k"), f.timestamp_seconds(seconds).alias("t"))
        .withWatermark("t", "10 minutes")
        .groupBy("k", f.window("t", "1 minute"))
        .count()
    )
    key = f.concat_ws("|", "k", f.unix_timestamp("window.start").cast("string"))
    return counts.select(key.alias("key"), f.col("count").cast("string").alias("value"))


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    sink = {
        "kafka.bootstrap.servers": args.servers,
        "topic": args.target,
        "onceonly.guarantee": args.guarantee,
        "checkpointLocation": args.checkpoint,
        **dict(pair.split("=", 1) for pair in args.option),
    }
    sink = {name: value for name, value in sink.items() if value}
    writer = rows(spark, args).writeStream.queryName("job").trigger(availableNow=True)
    if args.road == "foreachBatch":
        writer = writer.option("checkpointLocation", args.checkpoint)
        if args.work == "window":
            writer = writer.outputMode("update")
        return writer.foreachBatch(onceonly.sink("onceonly.kafka", **sink)).start()
    return writer.format("onceonly.kafka").options(**sink).start()


def main() -> None:
    args = options()
    spark = session(args)
    restart = (
        onceonly.FixedDelay(attempts=args.restart, delay_s=0.1) if args.restart else onceonly.NoRestart()
    )
    try:
        onceonly.supervise(lambda: start(spark, args), restart=restart)
    except onceonly.OnceonlyError as error:
        sys.stderr.write(f"job: {error}\n")
        Path(args.checkpoint + ".error").write_text(str(error), encoding="utf-8")
        sys.stdout.flush()
        os._exit(3)
    spark.stop()


if __name__ == "__main__":
    main()
