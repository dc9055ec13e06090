"""The Spark jobs of the textbook, in a process of their own, to be killed: ``python -m onceonly_proof.textbook.job``.

* ``pass``: rows of two partitions → Kafka, each slot into a partition of its own;
* ``count``: page views by app, with state → Kafka;
* ``grow``: a count by key, whose state is what matters → nowhere.

An epoch that is told by ``--stop`` begins when the parent says so: it looks around, arms a crash point, and lets go.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onceonly
from onceonly_proof.campaign.session import session
from onceonly_proof.handover import put, until
from onceonly_proof.parent import die_with_parent, end_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from onceonly.spark.foreach_batch import ForeachBatch

AT, GO, ERROR = "at", "go", "error.json"
"""Files in a life's folder: the epoch stands, it may go on, what was wrong."""
SINK = "kafka"
DELTAS = 4
"""Changes of the state before the store writes it as a whole."""
_WAIT_S = 120.0
_BATCH = 100
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STORE = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": str(DELTAS),
    "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the parent tells a life. ``stop`` is the epoch that waits for it, ``stand`` where no task goes on."""

    kind: str
    world: Path
    life: int
    servers: str
    source: str
    target: str = ""
    per_epoch: int
    stop: int = -1
    stand: int = -1
    java: str = ""

    @property
    def folder(self) -> Path:
        """The life's own folder."""
        return self.world / f"life-{self.life}"

    @property
    def checkpoint(self) -> str:
        """Where Spark and the log keep what they know."""
        return str(self.world / "checkpoint")

    def command(self) -> list[str]:
        """Return the command that runs the job."""
        names = [(name, getattr(self, name)) for name in self.__slots__]
        return [
            *(sys.executable, "-W", "ignore", "-m", "onceonly_proof.textbook.job"),
            *(f"--{name.replace('_', '-')}={value}" for name, value in names),
        ]

    @classmethod
    def parse(cls) -> Told:
        """Read the command line."""
        parser = argparse.ArgumentParser()
        for name in ("kind", "servers", "source", "target", "java"):
            parser.add_argument(f"--{name}")
        for name in ("life", "per-epoch", "stop", "stand"):
            parser.add_argument(f"--{name}", type=int)
        parser.add_argument("--world", type=Path)
        return cls(**vars(parser.parse_args()))

    def wait(self, epoch: int) -> None:
        """Let the parent look before the epoch that it has told."""
        if epoch == self.stop:
            (self.folder / AT).touch()
            until((self.folder / GO).exists, _WAIT_S)


def start(spark: SparkSession, told: Told) -> StreamingQuery:
    """Start the query of a life, until everything is read. Driver."""
    build = {"pass": _pass, "count": _count, "grow": _grow}[told.kind]
    writer = build(spark, told).option("checkpointLocation", told.checkpoint)
    return writer.trigger(availableNow=True).start()


def _read(spark: SparkSession, told: Told) -> DataFrame:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", told.servers)
    source = source.option("subscribe", told.source).option("startingOffsets", "earliest")
    found = source.option("maxOffsetsPerTrigger", told.per_epoch).load()
    return found.selectExpr(
        "cast(key as string) as key", "cast(value as string) as value", "partition", "offset"
    )


def _pass(spark: SparkSession, told: Told) -> DataStreamWriter:
    sink = _sink(told)

    def write(df: DataFrame, number: int) -> None:
        told.wait(number)
        with onceonly.epoch(df, number, log=told.checkpoint) as epoch:
            # What a slot has written is in no other one's partition: nobody waits for another one's open transaction.
            epoch.write(df.select("key", "value", "partition"), sink)

    return _read(spark, told).writeStream.foreachBatch(write)


def _count(spark: SparkSession, told: Told) -> DataStreamWriter:
    from pyspark.sql import functions as f

    sink = _sink(told)
    rows = _read(spark, told).selectExpr("key as app", "cast(value as long) as views", "offset")
    rows = rows.mapInArrow(_reading(told), "app string, views long, offset long")
    totals = rows.groupBy("app").agg(f.sum("views").alias("pv"))

    def write(df: DataFrame, number: int) -> None:
        told.wait(number)
        with onceonly.epoch(df, number, log=told.checkpoint) as epoch:
            found = df.selectExpr("app as key", f"to_json(struct(app, pv, {number} as epoch)) as value")
            epoch.write(found, sink)

    return totals.writeStream.outputMode("update").foreachBatch(write)


def _reading(told: Told) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    folder, stand = told.folder, told.stand

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass rows on, say up to where, and stand still before an offset, to be killed there. Executor."""
        counted: dict[str, int] = {}
        for batch in batches:
            rows = batch.to_pylist()
            if rows and stand >= 0 and rows[0]["offset"] >= stand:
                put(folder / AT, json.dumps({"offset": rows[0]["offset"], "counted": counted}).encode())
                until(lambda: False, _WAIT_S)
            for row in rows:
                counted[row["app"]] = counted.get(row["app"], 0) + row["views"]
            if rows:
                with (folder / "read").open("a", encoding="utf-8") as file:
                    file.write(f"{rows[0]['offset']} {rows[-1]['offset'] + 1}\n")
            yield batch

    return read


def _grow(spark: SparkSession, told: Told) -> DataStreamWriter:
    from pyspark.sql import functions as f

    totals = _read(spark, told).groupBy("key").agg(f.count("*").alias("n"), f.max("value").alias("text"))
    state = Path(told.checkpoint) / "state" / "0" / "0"

    def write(df: DataFrame, number: int) -> None:
        # Version N is what the epochs before N have left; the store writes it as a whole beside the epochs.
        if number and number % DELTAS == 0:
            until((state / f"{number}.zip").exists, _WAIT_S)
        df.write.format("noop").mode("append").save()

    return totals.writeStream.outputMode("update").foreachBatch(write)


def _sink(told: Told) -> ForeachBatch:
    options = {"kafka.bootstrap.servers": told.servers, "topic": told.target}
    return onceonly.sink("onceonly.kafka", **options)


def state_of(spark: SparkSession, told: Told, epoch: int) -> dict[str, int]:
    """Ask Spark for the counts that stand in its state store after an epoch. Driver, after the query."""
    reader = spark.read.format("statestore").option("batchId", epoch)
    rows = reader.load(told.checkpoint).selectExpr("key.app as app", "value.sum as pv").collect()
    return {row.app: row.pv for row in sorted(rows)}


def main() -> None:
    """Run one life; leave a typed error as a JSON file."""
    die_with_parent()
    told = Told.parse()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stateless = told.kind == "pass"
    # With RocksDB, Spark copies files in a way that the settings of short epochs do not have.
    spark = session(
        told.folder, java=told.java, conf={} if stateless else _STORE, local_checkpoints=stateless
    )
    try:
        start(spark, told).awaitTermination()
        if told.kind == "count":
            states = {epoch: state_of(spark, told, epoch) for epoch in (0, 1)}
            put(told.folder / "states.json", json.dumps(states).encode())
    except onceonly.OnceonlyError as error:
        end_with(error, told.folder / ERROR)
    spark.stop()


if __name__ == "__main__":
    main()
