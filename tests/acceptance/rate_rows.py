"""What the jobs that are killed have in common: a session, rows of Spark's own source, and an end after some epochs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import onceonly
from onceonly_proof.handover import until
from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


def session(
    hadoop: Mapping[str, str] | None = None, *, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Make the session of a job whose checkpoint is on this machine; ``hadoop`` tells how stores are reached.

    ``conf`` is told to Spark, too, and comes last.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        onceonly.configure(SparkSession.builder.master("local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA)
        .config(map={f"spark.hadoop.{name}": value for name, value in (hadoop or {}).items()})
        .config(map=dict(conf or {}))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    onceonly.register(spark)
    return spark


def rows(spark: SparkSession, *columns: str, per_epoch: int) -> DataFrame:
    """Return a stream of so many rows an epoch, in two partitions: the same ones in each replay."""
    source = spark.readStream.format("rate-micro-batch").option("numPartitions", 2)
    return source.option("rowsPerBatch", per_epoch).load().selectExpr(*columns)


def run(
    spark: SparkSession,
    query: StreamingQuery,
    checkpoint: Path,
    *,
    epochs: int,
    within_s: float,
    ready: Callable[[], bool] = lambda: True,
) -> None:
    """Wait until Spark has noted this many epochs and all is ``ready``, then end. A failed query is told on exit."""
    commits = checkpoint / "commits"
    run_until(
        spark, query, lambda: ready() and len(list(commits.glob("[0-9]*"))) >= epochs, within_s=within_s
    )


def run_until(
    spark: SparkSession,
    query: StreamingQuery,
    ready: Callable[[], bool],
    *,
    within_s: float,
    poll_s: float = 0.01,
) -> None:
    """Wait until all is ``ready``, then end. A failed query is told on exit."""
    until(lambda: not query.isActive or ready(), within_s, poll_s=poll_s)
    query.stop()
    failure = query.exception()
    spark.stop()
    if failure is not None:
        sys.exit(onceonly.explain(failure))
