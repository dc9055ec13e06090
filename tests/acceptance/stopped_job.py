"""A streaming job in its own process, to be asked to end: many rows → files, supervised, by either way.

``python stopped_job.py FOLDER WAY TRIGGER``. WAY is ``format`` or ``function``; TRIGGER ``busy`` (one epoch after the
other), ``idle`` (one epoch, then an hour's wait) or ``availableNow``. It exits with 3 if a query failed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rate_rows

import onceonly

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ROWS, PER_EPOCH = 20_000, 20
TRIGGERS: dict[str, dict[str, Any]] = {
    "busy": {"processingTime": "0 seconds"},
    "idle": {"processingTime": "1 hour"},
    "availableNow": {"availableNow": True},
}


def main(folder: Path, way: str, trigger: str) -> None:
    """Run until asked to end."""
    spark = rate_rows.session()
    sink = {"path": str(folder / "out"), "format": "json", "checkpointLocation": str(folder / "checkpoint")}

    def build() -> StreamingQuery:
        rows = onceonly.collection(
            spark, [(number,) for number in range(ROWS)], "value long", rows_per_epoch=PER_EPOCH
        )
        writer = rows.writeStream.trigger(**TRIGGERS[trigger]).option(
            "checkpointLocation", sink["checkpointLocation"]
        )
        if way == "format":
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
