"""The Kinesis source under real Spark, against a server of that interface."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from onceonly_proof.embedded.kinesis import EmbeddedKinesis
from ways import spark  # noqa: F401  a fixture

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]
WAIT_S = 180


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
