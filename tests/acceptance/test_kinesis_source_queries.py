"""The Kinesis source under real Spark: records come, shards split and merge, drivers, workers and the server die."""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import harness
import kinesis_job
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from onceonly_proof.embedded.kinesis import EmbeddedKinesis
from onceonly_proof.handover import until
from ways import spark  # noqa: F401  a fixture

if TYPE_CHECKING:
    from pathlib import Path

    from harness import Run
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(2400)]  # a further server
WAIT_S = 180
LIVES = (
    "range.before_put=pause@3", "range.after_put=kill@3", "slot.during_write=pause@2", "link.after_put=pause@2",
    "range.after_put=pause@2",
)  # fmt: skip


class Feeder:
    """A thread that puts numbered records, and splits and merges shards meanwhile; it waits out a dead server."""

    def __init__(self, server: EmbeddedKinesis, stream: str) -> None:
        self._server, self._stream = server, stream
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.put: list[str] = []
        self.moves = 0
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        client = self._server.client()
        while not self._ended.wait(0.2):
            try:
                if number % 50 == 45:  # seldom enough that parents are read meanwhile
                    self._server.reshard(self._stream, client)
                    self.moves += 1
                for _ in range(5):
                    # Known by what was answered: one whose answer is lost may be there.
                    text = f"{number % 13}:{number}:{uuid.uuid4().hex[:8]}"
                    number += 1
                    client.put_record(
                        StreamName=self._stream, PartitionKey=f"k{number % 13}", Data=text.encode()
                    )
                    self.put.append(text)
            except (BotoCoreError, ClientError):
                pass
        client.close()


class Table:
    """The table that the job writes."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "rows.db"
        with closing(sqlite3.connect(self.file)) as db, db:
            db.execute('CREATE TABLE "rows" ("value" TEXT, "key" TEXT)')
        self.options = {"url": f"sqlite:///{self.file}", "table": "rows"}

    def rows(self) -> list[str]:
        with closing(sqlite3.connect(self.file, timeout=60)) as db:
            return [value for (value,) in db.execute('SELECT "value" FROM "rows" ORDER BY rowid')]


def start(folder: Path, source: dict[str, str], sink: dict[str, str], failpoints: str = "") -> Run:
    """Start a life of the job."""
    told = [str(folder / "checkpoint"), json.dumps(source), json.dumps(sink)]
    return harness.start(kinesis_job.__file__, folder, *told, failpoints=failpoints)


def test_every_record_is_in_the_table_once_whatever_dies(tmp_path: Path) -> None:
    with EmbeddedKinesis() as server:
        server.make_stream("records", shards=2)
        table = Table(tmp_path)
        source = {
            **server.options("records"), "onceonly.ranges": str(tmp_path / "ranges"), "tasks": "2",
            "maxRecordsPerTrigger": "60",
        }  # fmt: skip
        feeder = Feeder(server, "records")
        for place, failpoints in enumerate(LIVES):
            run = start(tmp_path, source, table.options, failpoints)
            try:
                run.wait_for(failpoints.partition("=")[0])
                if place % 3 == 0:
                    server.kill()
                    server.start()
            finally:
                run.kill_tree()
        run = start(tmp_path, source, table.options)
        try:
            seen = len(table.rows())
            run.until(lambda: len(table.rows()) > seen, "new rows")
            feeder.stop()
            assert until(lambda: set(feeder.put) <= set(table.rows()), WAIT_S, poll_s=0.5), run.tail()
            (tmp_path / "stop").touch()
            assert run.wait() == 0, run.tail()
        finally:
            run.kill_tree()
        rows = Counter(table.rows())
        assert rows == Counter(record["Data"].decode() for record in server.records("records"))
        assert max(rows.values()) == 1
        assert feeder.moves > 2
        ordered: dict[str, list[int]] = {}
        for value in table.rows():
            key, number, _ = value.split(":")
            ordered.setdefault(key, []).append(int(number))
        assert all(numbers == sorted(numbers) for numbers in ordered.values())


def test_a_format_reads_what_it_writes(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811  a fixture
    with EmbeddedKinesis() as server:
        server.make_stream("orders", shards=2)
        client = server.client()
        for number in range(30):
            client.put_record(StreamName="orders", PartitionKey=f"k{number}", Data=b"%d" % number)
        client.close()
        table = Table(tmp_path)
        source = {**server.options("orders"), "onceonly.ranges": str(tmp_path / "ranges")}
        for _ in range(2):  # nothing is new at the second time
            query = (
                spark.readStream.format("onceonly.kinesis")
                .options(**source)
                .load()
                .selectExpr("CAST(value AS STRING) AS value", "partitionKey AS key")
                .writeStream.format("onceonly.sqlite")
                .options(**table.options)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(WAIT_S)
            assert sorted(map(int, table.rows())) == list(range(30))
