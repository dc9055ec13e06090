"""A Spark session on this machine, for the jobs that onceonly brings: the demo's and the campaigns'."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from onceonly.spark.configure import configure
from onceonly.spark.register import register

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A short life's options: what the second compiler gains would not be earned back."""


def local_session(
    folder: Path,
    *,
    name: str,
    master: str,
    log_level: str,
    conf: Mapping[str, str],
    java: str = "",
    local_checkpoints: bool = True,
) -> SparkSession:
    """Start Spark in this process, with the formats of onceonly. Driver, once.

    What Spark writes is in ``folder``, but for its sockets and its JVM's temporary files: the path of a socket must be
    short. ``conf`` are the job's own settings, ``java`` more options of its JVM.
    """
    from pyspark.sql import SparkSession

    # Spark would start plain `python3`, which may be another one.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "spark")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # What the job sets counts before, as state in RocksDB asks for other settings, and after, as it wins.
    builder = SparkSession.builder.master(master).appName(name).config(map=dict(conf))
    builder = configure(builder, local_checkpoints=local_checkpoints)
    every = {
        **_CONF,
        "spark.pyspark.python": sys.executable,
        "spark.sql.warehouse.dir": str(folder / "spark" / "warehouse"),
        "spark.driver.extraJavaOptions": f"{SHORT_LIVED_JAVA} {java}".rstrip(),
        **conf,
    }
    for key, value in every.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    register(spark)
    return spark
