"""A job whose query has its checkpoint in one place while onceonly is told another one, in its own process.

Run as a script by ``test_checkpoint_elsewhere.py`` with JSON: Spark's settings, and the cases to run one after the
other, each of which says where rows go (``target``), where Spark keeps the query's checkpoint (``spark``), and where
onceonly is told that it is (``told``). What comes of them is the last line, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import onceonly
from onceonly import errors
from onceonly_proof.local_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WAIT_S = 120


def run(spark: SparkSession, rows: str, case: dict[str, str]) -> str:
    """Run one query until it has written all rows; return what it failed by, nothing where it did not."""
    sink = onceonly.sink(
        "onceonly.files", path=case["target"], format="json", checkpointLocation=case["told"]
    )
    writer = spark.readStream.schema("id long").json(rows).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", case["spark"])
    try:
        query = writer.foreachBatch(sink).start()
        if not query.awaitTermination(_WAIT_S):
            return "it does not end"
    except Exception as error:  # noqa: BLE001  as a query tells it
        found = errors.find_error(error)
        return str(found or error)
    return ""


def main(folder: Path, settings: dict[str, str], cases: list[dict[str, str]]) -> None:
    """Run the cases in one session."""
    conf = {"spark.driver.memory": "700m", **settings}
    spark = local_session(
        folder, name="elsewhere", master="local[2]", log_level="ERROR", conf=conf, local_checkpoints=False
    )
    told = [run(spark, str(folder / "in"), case) for case in cases]
    spark.stop()
    sys.stdout.write(f"\n{json.dumps(told)}\n")


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(Path(given["folder"]), given["settings"], given["cases"])
