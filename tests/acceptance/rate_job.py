"""A streaming job in its own process, to be killed: rows of Spark's own source → files, by either way.

Run as a script by ``test_pyspark.py``, on whichever PySpark is first on the path. It stops after some epochs, and
prints what it could see of Spark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rate_rows

import onceonly
from onceonly.spark import spans

ROWS_PER_EPOCH = 20
_WAIT_S = 900
"""Whoever runs it kills it before that."""


def main(way: str, epochs: int, folder: Path, pace: str = "0 seconds") -> None:
    """Run until this many epochs are noted by Spark; one begins when ``pace`` has passed since the one before."""
    spark = rate_rows.session()
    rows = rate_rows.rows(spark, "value", "value % 3 as third", per_epoch=ROWS_PER_EPOCH)
    checkpoint = str(folder / "checkpoint")
    sink = {"path": str(folder / "out"), "format": "json", "checkpointLocation": checkpoint}
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(processingTime=pace)
    if way == "format":
        query = writer.format("onceonly.files").partitionBy("third").options(**sink).start()
    else:
        query = writer.foreachBatch(onceonly.sink("onceonly.files", partitionBy="third", **sink)).start()
    seen: list[bool] = []

    def sees_a_span() -> bool:
        found = spans.read(str(query.id))
        if found is not None and found.ends:
            seen.append(True)
        return bool(seen)

    version = spark.version
    rate_rows.run(spark, query, folder / "checkpoint", epochs=epochs, within_s=_WAIT_S, ready=sees_a_span)
    sys.stdout.write(json.dumps({"spark": version, "span": bool(seen)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
