"""A streaming job in its own process, to be killed: rows of Spark's own source → a table, by the format's word.

Run as a script with the format, a number of epochs, a folder, options of the sink as JSON, and what the column
``value`` is to be, if not what the source gives.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rate_rows

ROWS_PER_EPOCH = 20
_WAIT_S = 120


def main(form: str, epochs: int, folder: Path, options: dict[str, str], value: str = "value") -> None:
    """Run until this many epochs are noted by Spark."""
    spark = rate_rows.session()
    columns = (f"{value} as value", "cast(value % 3 as int) as third")
    rows = rate_rows.rows(spark, *columns, per_epoch=ROWS_PER_EPOCH)
    checkpoint = folder / "checkpoint"
    writer = rows.writeStream.format(form).options(**options)
    query = writer.partitionBy("third").option("checkpointLocation", str(checkpoint)).start()
    rate_rows.run(spark, query, checkpoint, epochs=epochs, within_s=_WAIT_S)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4]), *sys.argv[5:])
