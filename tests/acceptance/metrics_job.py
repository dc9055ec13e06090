"""A streaming job in its own process that tells its metrics and traces: rows of Spark's own source → files.

``python metrics_job.py FOLDER EPOCHS``; it prints the address of its metrics, and ends when Spark has noted so many
epochs and a file ``end`` is in the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import rate_rows

from onceonly.telemetry import watching

ROWS_PER_EPOCH = 20
_WAIT_S = 120


def main(folder: Path, epochs: int) -> None:
    """Run until the folder says so."""
    spark = rate_rows.session()
    rows = rate_rows.rows(spark, "value", per_epoch=ROWS_PER_EPOCH)
    query = (
        rows.writeStream.queryName("orders")
        .format("onceonly.files")
        .option("path", str(folder / "out"))
        .option("format", "json")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("onceonly.metrics.port", 0)
        .option("onceonly.metrics.file", str(folder / "orders.prom"))
        .option("onceonly.traces", "otlp")
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    address = folder / "address"
    address.with_suffix(".new").write_text(watching.served_at())
    address.with_suffix(".new").rename(address)
    end = folder / "end"
    rate_rows.run(spark, query, folder / "checkpoint", epochs=epochs, within_s=_WAIT_S, ready=end.exists)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
