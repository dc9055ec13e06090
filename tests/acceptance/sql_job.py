"""A streaming job in its own process, to be killed: rows of Spark's own rate source → a table, by a format.

Run as a script by ``test_sql_queries.py``. It ends when Spark has noted so many epochs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import onceonly
from onceonly_proof.local_session import SHORT_LIVED_JAVA

ROWS_PER_EPOCH = 40
COLUMNS = (
    "value AS id", "concat('row ', value) AS name", "CAST(value / 8 AS DECIMAL(12,3)) AS amount",
    "timestamp_micros(value) AS at", "value % 2 = 0 AS even",
)  # fmt: skip
_WAIT_S = 150


def main(sink: str, epochs: int, checkpoint: Path, options: dict[str, str]) -> None:
    """Run until this many epochs are noted by Spark."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        onceonly.configure(SparkSession.builder.master("local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    onceonly.register(spark)
    source = spark.readStream.format("rate-micro-batch").option("numPartitions", 2)
    rows = source.option("rowsPerBatch", ROWS_PER_EPOCH).load().selectExpr(*COLUMNS)
    query = (
        rows.writeStream.format(f"onceonly.{sink}")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    deadline = time.monotonic() + _WAIT_S
    while query.isActive and time.monotonic() < deadline:
        if len(list((checkpoint / "commits").glob("[0-9]*"))) >= epochs:
            break
        time.sleep(0.01)
    query.stop()
    failure = query.exception()
    spark.stop()
    if failure is not None:
        sys.exit(onceonly.explain(failure))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4]))
