"""A streaming job in its own process, whose disk may fail: rows of a list → files, by the format or by foreachBatch.

Run as a script by ``test_disk_fails.py``. It ends with 3 where the query fails.
"""

from __future__ import annotations

import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import onceonly
from onceonly.spark.processes.start import FOLDER
from onceonly_proof.local_session import SHORT_LIVED_JAVA

FAILED = 3


def main(way: str, rows: int, checkpoint: str, target: str) -> int:
    """Write the rows; give the status."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.executorEnv.PYTHONPATH", str(FOLDER))
        .config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA)
        .getOrCreate()
    )
    onceonly.register(spark)
    data = [(number, "a") for number in range(rows)]
    source = onceonly.collection(spark, data, "id long, app string", rows_per_epoch=10, partitions=2)
    given = {"checkpointLocation": checkpoint, "path": target}
    writer = source.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if way == "format":
        writer = writer.format("onceonly.files").options(**given)
    else:
        writer = writer.foreachBatch(onceonly.sink("onceonly.files", **given))
    try:
        writer.start().awaitTermination()
    except PySparkException as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
