"""Spark's own Iceberg beside the sink: through one catalogue, each reads what the other writes.

The Iceberg for Spark comes later than Spark: it is there for older ones than the lock's, so ``make matrix`` runs this.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.sql import SparkSession
from table_rows import COLUMNS, SCHEMA, batch
from tests.unit import iceberg_bench
from tests.unit.loaded_bench import Bench

from onceonly.model import AlreadyCommitted, Committed
from onceonly.sinks.iceberg import IcebergSink
from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(900)]

PACKAGES = {
    version: f"org.apache.iceberg:iceberg-spark-runtime-{version}_{scala}:1.11.0"
    for version, scala in (("3.5", "2.12"), ("4.0", "2.13"), ("4.1", "2.13"))
}
"""Of Iceberg, by the version of Spark that each is made for."""
SQLITE = "org.xerial:sqlite-jdbc:3.46.1.3"
"""By which Iceberg's own catalogue reads the one that pyiceberg keeps in a file."""
TABLE = f"`default`.{iceberg_bench.NAME}"
"""By the name that pyiceberg gives a catalogue."""


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    options = iceberg_bench.options_of(tmp_path_factory.mktemp("iceberg"))
    iceberg_bench.make_table(options, SCHEMA)
    return options


@pytest.fixture(scope="module")
def spark(options: Mapping[str, str]) -> Iterator[SparkSession]:
    version = ".".join(pyspark.__version__.split(".")[:2])
    if version not in PACKAGES:
        pytest.skip(f"no Iceberg is known for Spark {version}")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    catalog = "spark.sql.catalog.default"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars.packages", f"{PACKAGES[version]},{SQLITE}")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog")
        .config(f"{catalog}.uri", options["catalog.uri"].replace("sqlite:///", "jdbc:sqlite:"))
        .config(f"{catalog}.jdbc.schema-version", "V1")
        .config(f"{catalog}.warehouse", options["catalog.warehouse"])
        .config(f"{catalog}.cache-enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def ids(spark: SparkSession, where: str = "true") -> list[int]:
    return sorted(row["id"] for row in spark.table(TABLE).where(where).collect())


def test_spark_reads_epochs_and_writes_rewrites_and_expires_beside_them(
    spark: SparkSession, options: Mapping[str, str], tmp_path: Path
) -> None:
    bench = Bench(IcebergSink, "iceberg", options, COLUMNS)
    bench.committed(batch(*range(12)))
    assert ids(spark) == list(range(12))
    assert ids(spark, "shop = '50%'") == [2, 8]
    assert ids(spark, "shop is null") == [5, 11]
    assert ids(spark, "day = '2026-11-21'") == [1, 4, 7, 10]
    assert ids(spark, "id > 8 and price < 0.11") == [9, 10]
    assert ids(spark, "at >= timestamp'2026-11-21 12:00:00.123456'") == list(range(12))
    assert ids(spark, "at > timestamp'2026-11-21 12:00:00.123456'") == []

    waiting = bench.prepared(batch(12, 13), epoch=1)
    assert ids(spark) == list(range(12))  # nobody sees what is not decided
    spark.sql(f"INSERT INTO {TABLE} SELECT id + 100, day, shop, at, price FROM {TABLE} WHERE id < 3")  # noqa: S608  of this test
    spark.sql(f"DELETE FROM {TABLE} WHERE id = 101")  # noqa: S608  of this test
    assert bench.sink().commit(waiting) == Committed()
    assert bench.sink().commit(waiting) == AlreadyCommitted()
    assert ids(spark) == [*range(14), 100, 102]
    assert sorted(row["id"] for row in iceberg_bench.rows_of(options)) == [*range(14), 100, 102]

    spark.sql(f"CALL `default`.system.rewrite_data_files(table => '{iceberg_bench.NAME}')")
    spark.sql(
        f"CALL `default`.system.expire_snapshots(table => '{iceberg_bench.NAME}', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )
    assert bench.sink().commit(waiting) == AlreadyCommitted()
    bench.committed(batch(14), epoch=2)
    assert ids(spark) == [*range(15), 100, 102]
