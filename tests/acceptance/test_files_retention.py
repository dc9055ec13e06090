"""Old epochs expire while a real query writes and others read: what is due is there, and no reader breaks."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import onceonly
import ways
from onceonly import files
from onceonly.sinks.files.manifests import expiry
from ways import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

spark = ways.spark  # a fixture
pytestmark = pytest.mark.acceptance

EPOCHS, ROWS = 40, 10
GRACE_S = 6.0


class Reader(threading.Thread):
    """Reads again and again until it is stopped, and sees that all is there that was committed all the while."""

    def __init__(self, target: Path, read: Callable[[], list[int]]) -> None:
        super().__init__()
        self._target = target
        self._read = read
        self._done = threading.Event()
        self.wrong: list[object] = []
        self.firsts: list[int] = []

    def run(self) -> None:
        while not self._done.is_set():
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  told by the test
                self.wrong.append(error)
                return

    def stop(self) -> None:
        self._done.set()
        self.join()

    def _look(self) -> None:
        if not (self._target / "_onceonly").is_dir():
            return
        before = {epoch.epoch for epoch in files.committed(str(self._target))}
        if not before:
            return
        rows = self._read()
        due = before & {epoch.epoch for epoch in files.committed(str(self._target))}
        if len(set(rows)) < len(rows):
            self.wrong.append(("twice", rows))
        missing = {row for epoch in due for row in range(epoch * ROWS, (epoch + 1) * ROWS)} - set(rows)
        if missing:
            self.wrong.append(("missing", sorted(missing)))
        if rows:
            self.firsts.append(min(rows) // ROWS)


def by_manifests(spark: SparkSession, target: Path, query: StreamingQuery) -> list[int]:
    """Read as one does who is slow: two more epochs are written between the listing and the reading."""
    frame = files.read(spark, str(target)).select("id")
    newest = files.committed(str(target))[-1].epoch
    waiting = threading.Event()
    while query.isActive and files.committed(str(target))[-1].epoch < newest + 2:
        waiting.wait(0.02)
    return [row.id for row in frame.collect()]


def by_a_pattern(target: Path) -> list[int]:
    """Read as DuckDB does: it lists, then opens. What is gone by then must have expired; then it asks again."""
    while True:
        try:
            found = duckdb.read_parquet(f"{target}/part-*.parquet", connection=duckdb.connect())
            return [row[0] for row in found.select("id").fetchall()]
        except duckdb.Error as error:
            if "No files found" in str(error):
                return []
            gone = re.search(r"part-(\d+)-", str(error))
            listed = {epoch.epoch for epoch in files.committed(str(target))}
            if gone is None or int(gone[1]) in listed:
                raise


def expire(target: Path) -> None:
    """Let an operator's command do what the setting does beside the query."""
    command = [
        "-m",
        "onceonly",
        "files",
        "expire",
        str(target),
        "--older-than",
        "1s",
        "--grace",
        f"{GRACE_S:.0f}s",
    ]
    done = subprocess.run(
        [sys.executable, *command, "--yes"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("how", ["setting", "command"])
def test_readers_find_what_is_due_while_old_epochs_expire(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    target = tmp_path / "out"
    monkeypatch.setattr(expiry, "_PAUSE_S", 0.0)
    defaults: Any = expiry.Retention.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "grace_s", GRACE_S)
    rows = [(number, "a") for number in range(EPOCHS * ROWS)]
    given = {"checkpointLocation": str(tmp_path / "checkpoint"), "path": str(target)}
    if how == "setting":
        given["retention"] = "1 s"
    source = onceonly.collection(spark, rows, "id long, app string", rows_per_epoch=ROWS, partitions=2)
    writer = source.writeStream.foreachBatch(onceonly.sink("onceonly.files", **given)).trigger(
        availableNow=True
    )
    query = writer.option("checkpointLocation", given["checkpointLocation"]).start()
    readers = [
        Reader(target, lambda: by_manifests(spark, target, query)),
        Reader(target, lambda: by_a_pattern(target)),
    ]
    for reader in readers:
        reader.start()
    try:
        while how == "command" and query.isActive:
            if (target / "_onceonly").is_dir():
                expire(target)
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()
        for reader in readers:
            reader.stop()
    assert [reader.wrong for reader in readers] == [[], []]
    assert all(len(set(reader.firsts)) > 1 for reader in readers), "none read while epochs expired"
    assert files.committed(str(target))[-1].epoch == EPOCHS - 1
    on_disk = {int(path.name.split("-")[1]) for path in target.glob("part-*")}
    assert len(on_disk) < EPOCHS, "no file was deleted beside the query"
