"""A streaming job in its own process, to be killed: rows of Spark's own source → files or a table in a store.

Run as a script by ``test_files_on_stores.py`` and ``test_tables.py``: ``WAY EPOCHS FOLDER TARGET SETTINGS``, the last
of which is JSON. The checkpoint is on this machine, and Spark itself knows nothing of the store.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rate_rows

import onceonly
from onceonly_proof.local_session import local_session

ROWS_PER_EPOCH = 20
_WAIT_S = 120


def main(way: str, epochs: int, folder: Path, target: str, settings: dict[str, str]) -> None:
    """Run until this many epochs are noted by Spark."""
    conf = {f"spark.hadoop.{name}": value for name, value in settings.items()}
    conf |= {"spark.driver.memory": "700m", "spark.eventLog.enabled": "true"}
    conf |= {"spark.eventLog.dir": str(folder / "events"), "spark.eventLog.compress": "false"}
    (folder / "events").mkdir(exist_ok=True)
    spark = local_session(folder, name="stored", master="local[2]", log_level="ERROR", conf=conf)
    rows = rate_rows.rows(spark, "value", "cast(value % 3 as int) as third", per_epoch=ROWS_PER_EPOCH)
    checkpoint = str(folder / "checkpoint")
    sink = {"path": target, "checkpointLocation": checkpoint}
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    if way == "format":
        query = writer.format("onceonly.files").partitionBy("third").options(**sink).start()
    elif way == "delta":
        query = writer.format("onceonly.delta").partitionBy("third").options(**sink, create="true").start()
    elif way == "iceberg":  # the target is a warehouse, and its catalogue is here
        options = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{folder}/catalog.db", "create": "true"}
        options |= {"catalog.warehouse": target, "table": "sales.orders", "checkpointLocation": checkpoint}
        query = writer.format("onceonly.iceberg").partitionBy("third").options(**options).start()
    else:
        query = writer.foreachBatch(onceonly.sink("onceonly.files", partitionBy="third", **sink)).start()
    rate_rows.run(spark, query, folder / "checkpoint", epochs=epochs, within_s=_WAIT_S)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], json.loads(sys.argv[5]))
