"""A Spark session for a job of a campaign: quick to start, quick micro-batches, its own interpreter."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import onceonly
from onceonly.embedded.jars import spark_jars

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# Two threads; a task whose worker dies is tried again.
_MASTER = "local[2,4]"
# Where the job runs, and what of it is read; the rest is as onceonly.configure sets it.
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "700m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # The audit compares every epoch's log with Spark's; by default Spark forgets all but the last hundred.
    "spark.sql.streaming.minBatchesToRetain": "100000",
}


def session(folder: Path, *, java: str = "") -> SparkSession:
    """Start Spark in this process, with the formats of onceonly. ``java`` are more options of its JVM. Driver."""
    from pyspark.sql import SparkSession

    # Spark would start plain `python3`, which may be another one.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "spark")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = {
        **_CONF,
        "spark.jars": spark_jars(),
        "spark.pyspark.python": sys.executable,
        "spark.sql.warehouse.dir": str(folder / "spark" / "warehouse"),
        # A life is short: what the second compiler gains, it would not earn back.
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {java}",
    }
    builder = onceonly.configure(SparkSession.builder.master(_MASTER).appName("onceonly verify"))
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    onceonly.register(spark)
    return spark
