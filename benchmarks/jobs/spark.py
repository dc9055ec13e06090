"""The Spark job of a contender, ``python -m benchmarks.jobs.spark FOLDER``: a session, and query after query."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.jobs.orders import serve
from onceonly_proof.parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Job:
    """What the orders act on."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: StreamingQuery | None = None

    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        """Start the query that the order describes."""
        writer = (
            rows(self._spark, order)
            .writeStream.format(order["format"])
            .options(**order["sink"])
            .option("checkpointLocation", order["checkpoint"])
        )
        if order["interval_ms"]:
            writer = writer.trigger(processingTime=f"{order['interval_ms']} milliseconds")
        self._query = writer.start()
        return {}

    def check(self, _order: dict[str, Any]) -> dict[str, Any]:
        """Say whether the query goes on, and why not."""
        if self._query is None or self._query.isActive:
            return {}
        return {"error": f"the query has ended: {self._query.exception()}"}

    def stop(self, _order: dict[str, Any]) -> dict[str, Any]:
        """End the query, and tell how long its micro-batches took."""
        if self._query is None:
            return {"epochs": []}
        progress = [
            {"rows": each["numInputRows"], **each["durationMs"]}
            for each in (json.loads(report.json) for report in self._query.recentProgress)
        ]
        self._query.stop()
        self._query = None
        return {"epochs": progress}


def session(folder: Path) -> SparkSession:
    """Make the session that ``session.json`` in the folder describes."""
    # Spark would start plain `python3`, which may be another one.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    told: dict[str, Any] = json.loads((folder / "session.json").read_text(encoding="utf-8"))
    builder = SparkSession.builder.master(told["master"]).appName("benchmark")
    for name, setting in told["conf"].items():
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if told["register"]:
        import onceonly

        onceonly.register(spark)
    return spark


def rows(spark: SparkSession, order: Mapping[str, Any]) -> DataFrame:
    """Return what an order's query writes: key and value."""
    from pyspark.sql import functions as f

    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", order["servers"])
        .option("subscribe", order["source"])
        .option("startingOffsets", "earliest")
        .options(**order["source_options"])
    )
    if order["per_epoch"]:
        source = source.option("maxOffsetsPerTrigger", order["per_epoch"])
    found = source.load()
    if order["kind"] == "pass":
        return found.select("key", "value")
    if order["kind"] == "empty":
        return found.where("length(value) < 0").select("key", "value")
    window = f.window("timestamp", f"{order['window_ms']} milliseconds")
    return (
        found.withWatermark("timestamp", f"{order['late_ms']} milliseconds")
        .groupBy(window, f.col("key"))
        .count()
        .select(
            "key",
            f.concat_ws(
                ",", f.date_format("window.start", "yyyy-MM-dd HH:mm:ss.SSS"), f.col("count").cast("string")
            ).alias("value"),
        )
    )


def main() -> None:
    """Start the session as ``session.json`` says, and take orders."""
    die_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    spark = session(folder)
    job = Job(spark)
    serve(folder, {"start": job.start, "check": job.check, "stop": job.stop})
    spark.stop()


if __name__ == "__main__":
    main()
