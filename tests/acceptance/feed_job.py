"""A streaming job in its own process, to be killed: a feed with a journal → files, exactly once from the journal.

Run as a script by ``test_feeds.py``. It ends when so many rows are visible, or when a file ``stop`` is there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import rate_rows

import onceonly

_WAIT_S = 400.0
_POLL_S = 0.05


def main(feed: str, folder: Path, count: int, options: dict[str, str]) -> None:
    """Run until the target has as many rows."""
    spark = rate_rows.session()
    rows = spark.readStream.format(f"onceonly.{feed}").options(**options).load()
    query = (
        rows.selectExpr("cast(value AS string) AS value")
        .writeStream.format("onceonly.files")
        .option("path", str(folder / "out"))
        .option("format", "json")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    deadline = time.monotonic() + _WAIT_S
    while query.isActive and time.monotonic() < deadline:
        seen = sum(1 for path in visible(folder) for _ in path.open())
        if seen >= count or (folder / "stop").exists():
            break
        time.sleep(_POLL_S)
    query.stop()
    failure = query.exception()
    spark.stop()
    if failure is not None:
        sys.exit(onceonly.explain(failure))


def visible(folder: Path) -> list[Path]:
    """Return the files that a reader sees."""
    return [path for path in (folder / "out").glob("*.json") if not path.name.startswith(("_", "."))]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
