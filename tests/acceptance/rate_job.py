"""A streaming job in its own process, to be killed: rows of Spark's own source → files, by either way.

Run as a script by ``test_pyspark.py``, on whichever PySpark is first on the path. It stops after some epochs, and
prints what it could see of Spark.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import onceonly
from onceonly.spark import spans
from onceonly_proof.local_session import SHORT_LIVED_JAVA

ROWS_PER_EPOCH = 20
_WAIT_S = 120


def main(way: str, epochs: int, folder: Path) -> None:
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
    rows = source.option("rowsPerBatch", ROWS_PER_EPOCH).load().selectExpr("value", "value % 3 as third")
    checkpoint = str(folder / "checkpoint")
    sink = {"path": str(folder / "out"), "format": "json", "checkpointLocation": checkpoint}
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    if way == "format":
        query = writer.format("onceonly.files").partitionBy("third").options(**sink).start()
    else:
        query = writer.foreachBatch(onceonly.sink("onceonly.files", partitionBy="third", **sink)).start()
    deadline = time.monotonic() + _WAIT_S
    span = None
    while query.isActive and time.monotonic() < deadline:
        found = spans.read(str(query.id))
        span = found if found is not None and found.ends else span
        if span is not None and len(list((folder / "checkpoint" / "commits").glob("[0-9]*"))) >= epochs:
            break
        time.sleep(0.01)
    query.stop()
    failure, version = query.exception(), spark.version
    spark.stop()
    if failure is not None:
        sys.exit(onceonly.explain(failure))
    sys.stdout.write(json.dumps({"spark": version, "span": span is not None}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
