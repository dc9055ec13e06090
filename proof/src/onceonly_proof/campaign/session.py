"""The Spark session of a campaign's job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.jars.locked import spark_jars
from onceonly_proof.local_session import local_session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def session(folder: Path, *, java: str = "") -> SparkSession:
    """Start Spark in this process, with the formats of onceonly. ``java`` are more options of its JVM. Driver."""
    return local_session(
        folder,
        name="onceonly verify",
        # Two threads; a task whose worker dies is tried again.
        master="local[2,4]",
        log_level="ERROR",
        conf={
            "spark.jars": spark_jars(),
            "spark.driver.memory": "700m",
            # The audit compares every epoch's log with Spark's; by default Spark forgets all but the last hundred.
            "spark.sql.streaming.minBatchesToRetain": "100000",
        },
        java=java,
    )
