"""A job that writes files of numbers to a table, but for those that it is told to leave out, and ends."""

from __future__ import annotations

import sys

import rate_rows

import onceonly


def main(folder: str, *left_out: str) -> None:
    """Write what is there. The code of the error that it ends with, if any, is the last line."""
    spark = rate_rows.session()
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"{folder}/in")
    if left_out:
        rows = rows.where(f"id not in ({', '.join(left_out)})")
    writer = rows.writeStream.format("onceonly.sqlite").trigger(availableNow=True)
    writer = writer.options(url=f"sqlite:///{folder}/r.db", table="t", key="id")
    try:
        writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    except Exception as error:  # noqa: BLE001  whatever it is, its code is asked for
        sys.exit(str(onceonly.explain(error)))


if __name__ == "__main__":
    main(*sys.argv[1:])
