"""A query that reads what is new and ends, as one that a timetable starts: files → files, with savepoints by itself.

``python short_job.py WAY END``, in a folder with ``in``. WAY is format, sink or epoch; END is stop, where the program
stops its session, or exit, where it just ends. What
Hadoop is told comes in JSON in ``SHORT_JOB``, the place of savepoints in ``SHORT_JOB_PLACE``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

import rate_rows

import onceonly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVERY = "1 day"


def main() -> None:
    way, end = sys.argv[1:]
    place = os.environ.get("SHORT_JOB_PLACE", "place")
    spark = rate_rows.session(json.loads(os.environ.get("SHORT_JOB", "{}")))
    rows = spark.readStream.schema("value long").option("maxFilesPerTrigger", 1).json("in")
    writer = rows.writeStream.option("checkpointLocation", "checkpoint").trigger(availableNow=True)
    saved = {"onceonly.savepoint.every": EVERY, "onceonly.savepoint.place": place}
    if way == "format":
        writer = writer.format("onceonly.files").option("path", "out").options(**saved)
    elif way == "sink":
        sink = onceonly.sink("onceonly.files", path="out", checkpointLocation="checkpoint", **saved)
        writer = writer.foreachBatch(sink)
    else:

        def write(df: DataFrame, epoch: int) -> None:
            with onceonly.epoch(
                df, epoch, log="checkpoint", savepoint_every=EVERY, savepoint_place=place
            ) as each:
                each.write(df, onceonly.sink("onceonly.files", path="out"))

        writer = writer.foreachBatch(write)
    query = writer.start()
    query.awaitTermination()
    print(f"query ended at {time.time()}", flush=True)  # noqa: T201  for whoever measures it
    if end == "stop":
        spark.stop()
    print(f"program ends at {time.time()}", flush=True)  # noqa: T201  as above


if __name__ == "__main__":
    main()
