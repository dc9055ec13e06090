"""The Spark job of the demo, in a process of its own, to be killed: ``python -m onceonly_proof.demo.job …``.

Two queries read the same topic:

* ``clean``: every parsed event → the topic ``clean``, through the format ``onceonly.kafka``;
* ``results``: page views (PV) and exact unique visitors (UV) per ``app_id`` and day → the topic ``results`` *and*
  JSON files, in update mode, through ``foreachBatch`` and ``onceonly.epoch``: both under one decision.

**How UV is counted exactly.** The state of a window holds the *set* of its users (``collect_set``), and UV is
the set's size; a missing user is a view but no visitor. A sketch (``approx_count_distinct``) would be small but
not exact, and the usual way out, to drop duplicates first and count then, needs two stateful steps, which Spark
refuses in update mode. The set is bounded: a carrier has at most some hundred aircraft a day, and the watermark
drops a window's set when no event can fall into it any more. The size of a set does not depend on the order
in which it was filled, so a replay counts the same.

Each result carries its epoch, which is the same when the epoch is run again; so the audit can see whether an
(epoch, key) was written twice.

``availableNow`` ends the job when everything that was in the topic is processed. It is restarted from its
checkpoints by the parent when killed, and by ``onceonly.supervise`` when a query fails.
"""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onceonly
from onceonly.jars.locked import spark_jars
from onceonly.spark.configure import CHANGELOG
from onceonly_proof.demo.data import WATERMARK, WINDOW
from onceonly_proof.local_session import local_session
from onceonly_proof.parent import die_with_parent, end_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVENTS, CLEAN, RESULTS = "events", "clean", "results"
QUERIES = (CLEAN, RESULTS)
FILES = "results-files"
_SCHEMA = "id LONG, app_id STRING, user STRING, event_time LONG"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What the parent tells the job, on its command line."""

    servers: str
    folder: Path
    guarantee: str
    per_epoch: int

    def command(self) -> list[str]:
        """Return the command that runs the job."""
        return [
            *(sys.executable, "-m", "onceonly_proof.demo.job", "--servers", self.servers),
            *("--folder", str(self.folder), "--guarantee", self.guarantee),
            *("--per-epoch", str(self.per_epoch)),
        ]

    @classmethod
    def parse(cls) -> JobOptions:
        """Read the command line."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--servers", required=True)
        parser.add_argument("--folder", type=Path, required=True)
        parser.add_argument("--guarantee", required=True)
        parser.add_argument("--per-epoch", type=int, required=True)
        return cls(**vars(parser.parse_args()))

    def checkpoint(self, query: str) -> str:
        """Return the folder of a query's checkpoint."""
        return str(self.folder / "checkpoints" / query)

    def sink(self, query: str) -> dict[str, str]:
        """Return the options of a query's sink; the topic has the query's name."""
        return {
            "kafka.bootstrap.servers": self.servers,
            "topic": query,
            "checkpointLocation": self.checkpoint(query),
            "onceonly.guarantee": self.guarantee,
        }

    def files(self) -> dict[str, str]:
        """Return the options of the file sink of the query ``results``."""
        path = str(self.folder / FILES)
        return {"path": path, "format": "json", "onceonly.guarantee": self.guarantee}


def session(folder: Path) -> SparkSession:
    """Start Spark in this process, with two threads, and state in RocksDB with its changelog. Driver."""
    return local_session(
        folder,
        name="onceonly demo",
        master="local[2]",
        log_level="WARN",
        conf={"spark.jars": spark_jars(), "spark.driver.memory": "1g", **CHANGELOG},
    )


def events(spark: SparkSession, options: JobOptions) -> DataFrame:
    """Read and parse the events: id, app_id, user, event_time (seconds since 1970)."""
    from pyspark.sql import functions as f

    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.servers)
        .option("subscribe", EVENTS)
        .option("startingOffsets", "earliest")
        # Bounds an epoch, and keeps the partitions in step: each gives its share.
        .option("maxOffsetsPerTrigger", options.per_epoch)
        .option("kafka.fetch.max.wait.ms", 20)
        .load()
    )
    return source.select(f.from_json(f.col("value").cast("string"), _SCHEMA).alias("event")).select("event.*")


def start_clean(spark: SparkSession, options: JobOptions) -> StreamingQuery:
    """Start query (a)."""
    from pyspark.sql import functions as f

    rows = events(spark, options).select(
        f.col("id").cast("string").alias("key"),
        f.to_json(f.struct("id", "app_id", "user", "event_time")).alias("value"),
    )
    writer = rows.writeStream.queryName(CLEAN).format("onceonly.kafka").options(**options.sink(CLEAN))
    return writer.trigger(availableNow=True).start()


def start_results(spark: SparkSession, options: JobOptions) -> StreamingQuery:
    """Start query (b)."""
    from pyspark.sql import functions as f

    window = f.window("time", f"{int(WINDOW.total_seconds())} seconds")
    totals = (
        events(spark, options)
        .select("app_id", "user", f.timestamp_seconds("event_time").alias("time"))
        .withWatermark("time", f"{int(WATERMARK.total_seconds())} seconds")
        .groupBy("app_id", window)
        .agg(f.count("*").alias("pv"), f.size(f.collect_set("user")).alias("uv"))
        .select("app_id", f.unix_seconds("window.start").alias("window_start"), "pv", "uv")
    )
    kafka = onceonly.sink("onceonly.kafka", **options.sink(RESULTS))
    files = onceonly.sink("onceonly.files", **options.files())

    def write(totals: DataFrame, number: int) -> None:
        with onceonly.epoch(totals, number, log=options.checkpoint(RESULTS)) as epoch:
            rows = totals.withColumn("epoch", f.lit(number))
            key = f.concat_ws("|", "app_id", f.col("window_start").cast("string"))
            epoch.write(
                rows.select(key.alias("key"), f.to_json(f.struct(rows.columns)).alias("value")), kafka
            )
            epoch.write(rows.coalesce(1), files)

    writer = totals.writeStream.queryName(RESULTS).outputMode("update").foreachBatch(write)
    writer = writer.option("checkpointLocation", options.checkpoint(RESULTS))
    return writer.trigger(availableNow=True).start()


def main() -> None:
    """Run both queries until everything is processed; leave a typed error as a JSON file."""
    die_with_parent()
    options = JobOptions.parse()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        spark = session(options.folder)
        onceonly.supervise(
            lambda: start_clean(spark, options),
            lambda: start_results(spark, options),
            restart=onceonly.ExponentialDelay(initial_s=0.2, maximum_s=5.0),
        )
        spark.stop()
    except onceonly.OnceonlyError as error:
        end_with(error, options.folder / "job-error.json")


if __name__ == "__main__":
    main()
