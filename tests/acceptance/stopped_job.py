"""A streaming job in its own process, to be asked to end: many rows → files, supervised, by either way.

``python stopped_job.py FOLDER WAY TRIGGER``. WAY is ``format``, ``connect`` (a format, on a server of its
own) or ``function``; TRIGGER ``busy`` (one epoch after the other), ``idle`` (one epoch, then an hour's wait) or
``availableNow``. It exits with 3 if a query failed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rate_rows
from pyspark.sql import SparkSession

import onceonly
from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ROWS, PER_EPOCH = 20_000, 20
TRIGGERS: dict[str, dict[str, Any]] = {
    "busy": {"processingTime": "0 seconds"},
    "idle": {"processingTime": "1 hour"},
    "availableNow": {"availableNow": True},
}


def client() -> SparkSession:
    """Return the session of a client whose server is a child of this process, at any port that is free."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "700m")
    spark = builder.config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA).remote("local[2]").getOrCreate()
    onceonly.register(spark)
    return spark


def main(folder: Path, way: str, trigger: str) -> None:
    """Run until asked to end."""
    spark = client() if way == "connect" else rate_rows.session()
    sink = {"path": str(folder / "out"), "format": "json", "checkpointLocation": str(folder / "checkpoint")}

    def build() -> StreamingQuery:
        rows = onceonly.collection(
            spark, [(number,) for number in range(ROWS)], "value long", rows_per_epoch=PER_EPOCH
        )
        writer = rows.writeStream.trigger(**TRIGGERS[trigger]).option(
            "checkpointLocation", sink["checkpointLocation"]
        )
        if way != "function":
            return writer.format("onceonly.files").options(**sink).start()
        return writer.foreachBatch(onceonly.sink("onceonly.files", **sink)).start()

    try:
        onceonly.supervise(build)
    except Exception as error:  # noqa: BLE001  told in its words
        sys.stderr.write(onceonly.explain(error))
        sys.exit(3)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
