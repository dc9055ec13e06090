"""Spark's own Delta beside the sink: tables that it makes are taken, and what the sink writes it reads."""

from __future__ import annotations

import os
import sys
from decimal import Decimal
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.sql import SparkSession
from table_rows import COLUMNS, batch
from tests.unit.loaded_bench import Bench

from onceonly.model import AlreadyCommitted, Committed
from onceonly.sinks.delta import DeltaSink
from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(900)]

PACKAGES = {"4.2": "io.delta:delta-spark_4.2_2.13:4.4.0"}
"""Of Delta, by the version of Spark that each is made for."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    version = ".".join(pyspark.__version__.split(".")[:2])
    if version not in PACKAGES:
        pytest.skip(f"no Delta is known for Spark {version}")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars.packages", PACKAGES[version])
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def ids(spark: SparkSession, path: Path, where: str = "true") -> list[int]:
    return sorted(row["id"] for row in spark.read.format("delta").load(str(path)).where(where).collect())


def test_a_table_of_sparks_own_takes_epochs_and_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, day DATE, shop STRING, at TIMESTAMP, price DECIMAL(12,2)) "
        "USING delta PARTITIONED BY (day, shop)"
    )
    bench = Bench(DeltaSink, "delta", {"path": str(path)}, COLUMNS)
    bench.committed(batch(*range(12)))
    assert ids(spark, path) == list(range(12))
    assert ids(spark, path, "shop = '50%'") == [2, 8]
    assert ids(spark, path, "shop is null") == [5, 11]
    assert ids(spark, path, "day = '2026-11-21'") == [1, 4, 7, 10]
    assert ids(spark, path, "id > 8 and price < 0.11") == [9, 10]
    assert ids(spark, path, "at >= timestamp'2026-11-21 12:00:00.123456'") == list(range(12))
    assert ids(spark, path, "at > timestamp'2026-11-21 12:00:00.123456'") == []
    one = spark.read.format("delta").load(str(path)).where("id = 7").first()
    assert one is not None
    assert (one["price"], one["shop"]) == (Decimal("0.07"), "a/b")


def test_spark_writes_deletes_and_compacts_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    bench = Bench(DeltaSink, "delta", {"path": str(path), "create": "true", "partitionBy": "day"}, COLUMNS)
    first = bench.committed(batch(0, 1, 2))
    spark.read.format("delta").load(str(path)).selectExpr(
        "id + 100 as id", "day", "shop", "at", "price"
    ).write.format("delta").mode("append").save(str(path))
    second = bench.prepared(batch(3, 4), epoch=1)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 101")  # noqa: S608  of this test
    spark.sql(f"OPTIMIZE delta.`{path}`")
    assert bench.sink().commit(second) == Committed()
    assert bench.sink().commit(second) == AlreadyCommitted()
    assert ids(spark, path) == [0, 1, 2, 3, 4, 100, 102]
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    assert ids(spark, path) == [0, 1, 2, 3, 4, 100, 102]
    bench.sink().abort(first)
    bench.sink().look_back(bench.query, 1, [second])
    bench.committed(batch(5), epoch=2)
    assert ids(spark, path) == [0, 1, 2, 3, 4, 5, 100, 102]
