"""A streaming job in its own process, to be killed: rows of Spark's own rate source → a table, by a format.

Run as a script by ``test_sql_queries.py``. It ends when Spark has noted so many epochs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rate_rows

ROWS_PER_EPOCH = 40
COLUMNS = (
    "value AS id", "concat('row ', value) AS name", "CAST(value / 8 AS DECIMAL(12,3)) AS amount",
    "timestamp_micros(value) AS at", "value % 2 = 0 AS even",
)  # fmt: skip
_WAIT_S = 150


def main(sink: str, epochs: int, checkpoint: Path, options: dict[str, str]) -> None:
    """Run until this many epochs are noted by Spark."""
    spark = rate_rows.session()
    rows = rate_rows.rows(spark, *COLUMNS, per_epoch=ROWS_PER_EPOCH)
    query = (
        rows.writeStream.format(f"onceonly.{sink}")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    rate_rows.run(spark, query, checkpoint, epochs=epochs, within_s=_WAIT_S)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4]))
