"""A streaming job in its own process, to be killed: a feed with a journal → files, exactly once from the journal.

Run as a script by ``test_feeds.py``. It ends when so many rows are visible, or when a file ``stop`` is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rate_rows

_WAIT_S = 400.0


def main(feed: str, folder: Path, count: int, options: dict[str, str], hadoop: dict[str, str]) -> None:
    """Run until the target has as many rows."""
    spark = rate_rows.session(hadoop)
    rows = spark.readStream.format(f"onceonly.{feed}").options(**options).load()
    query = (
        rows.selectExpr("cast(value AS string) AS value")
        .writeStream.format("onceonly.files")
        .option("path", str(folder / "out"))
        .option("format", "json")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )

    def is_over() -> bool:
        seen = sum(1 for path in visible(folder) for _ in path.open())
        return seen >= count or (folder / "stop").exists()

    rate_rows.run_until(spark, query, is_over, within_s=_WAIT_S, poll_s=0.05)


def visible(folder: Path) -> list[Path]:
    """Return the files that a reader sees."""
    return [path for path in (folder / "out").glob("*.json") if not path.name.startswith(("_", "."))]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]), json.loads(sys.argv[5]))
