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
import spark_log
from botocore.exceptions import BotoCoreError, ClientError

from onceonly_proof.embedded.kinesis import EmbeddedKinesis
from onceonly_proof.embedded.standalone import Standalone
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


def start(
    checkpoint: Path,
    source: dict[str, str],
    sink: dict[str, str],
    failpoints: str = "",
    conf: dict[str, str] | None = None,
) -> Run:
    """Start a life of the job."""
    told = [str(checkpoint), *map(json.dumps, (source, sink, conf or {}))]
    path = {"PYTHONPATH": harness.python_path()}
    return harness.start(kinesis_job.__file__, checkpoint.parent, *told, failpoints=failpoints, env=path)


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
            run = start(tmp_path / "checkpoint", source, table.options, failpoints)
            try:
                run.wait_for(failpoints.partition("=")[0])
                if place % 3 == 0:
                    server.kill()
                    server.start()
            finally:
                run.kill_tree()
        run = start(tmp_path / "checkpoint", source, table.options)
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


def test_a_twin_of_a_slow_task_reads_other_records_and_each_is_in_the_table_once(tmp_path: Path) -> None:
    """Speculation on: the first attempt has read, and not fixed what; its twin reads more, and fixes that.

    The first one is the quicker in the end, and must give what its twin has fixed.
    """
    hosts = ["127.0.0.1", "127.0.0.2"]
    with EmbeddedKinesis() as server, Standalone(tmp_path, hosts) as cluster:
        server.make_stream("records", shards=2)
        put = [f"{number}" for number in range(60)]

        def feed(texts: list[str]) -> None:
            client = server.client()
            for text in texts:
                client.put_record(StreamName="records", PartitionKey=f"k{text}", Data=text.encode())
            client.close()

        feed(put[:20])
        table = Table(tmp_path)
        source = {**server.options("records"), "onceonly.ranges": str(tmp_path / "ranges"), "tasks": "2"}
        # The third pass is the twin's, the second put as well: the other task's was the first.
        armed = "range.before_put=pause@1#slow, range.before_put=pause@2#other, range.after_put=pause@2#twin"
        env = {
            "ONCEONLY_FAILPOINTS": armed, "ONCEONLY_FAILPOINTS_DIR": str(tmp_path / "fired-1"),
            "PYTHONPATH": harness.python_path(),
        }  # fmt: skip
        conf = dict(pair.split("=", 1) for pair in cluster.conf(env)[3::2])
        conf |= dict(pair.split("=", 1) for pair in spark_log.conf(tmp_path / "spark-log")[1::2])
        often = {"": "true", ".interval": "100ms", ".quantile": "0.5", ".multiplier": "1.1"}
        conf |= {f"spark.speculation{name}": value for name, value in often.items()}
        conf["spark.master"] = cluster.url
        run = start(tmp_path / "checkpoint", source, table.options, armed, conf)
        try:
            for point in ("range.before_put#slow", "range.before_put#other"):
                run.wait_for(point)
            feed(put[20:40])
            (run.fired / "resume#other").touch()
            run.wait_for("range.after_put#twin")
            assert table.rows() == []
            (run.fired / "resume#slow").touch()
            run.until(table.rows, "the first epoch")
            (run.fired / "resume#twin").touch()
            feed(put[40:])
            run.until(lambda: len(table.rows()) >= len(put), "all rows")
            (tmp_path / "stop").touch()
            assert run.wait() == 0, run.tail()
        finally:
            run.kill_tree()
    assert sorted(table.rows()) == sorted(put)
    tasks = spark_log.tasks(tmp_path / "spark-log")
    *firsts, twin = (tasks[str(number)] for number in range(3))
    slow = firsts[twin.partition]
    assert (slow.speculative, slow.partition, slow.ended) == (False, twin.partition, "Success")
    assert (twin.speculative, twin.ended) == (True, "TaskKilled")


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
