"""The Spark job of the shown run, in a process of its own, to be killed.

``python -m onceonly_proof.campaign.unaligned_job WORLD LIFE`` goes on where the checkpoint ends and
stops when the input is read, unless it is to stand still at a point of an epoch, to be killed there. One query feeds
both operators, so that each kill hits both in the same moment; their results go to two sinks under one decision.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import onceonly
from onceonly import failpoints
from onceonly_proof.campaign.session import session
from onceonly_proof.campaign.unaligned_operator import RESULT, Mode, counting
from onceonly_proof.campaign.unaligned_plan import PARTITIONS, SCHEMA
from onceonly_proof.parent import die_with_parent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(spark: SparkSession, world: Path, life: int, armed: tuple[int, str, Path] | None) -> StreamingQuery:
    """Start the query: each epoch is one file of each input partition. ``armed`` is an epoch, a point, and where to."""
    checkpoint = str(world / "checkpoint")
    sinks = {
        mode: onceonly.sink("onceonly.files", path=str(world / "output" / mode), format="json")
        for mode in Mode
    }

    def write(df: DataFrame, epoch_id: int) -> None:
        if armed is not None and armed[0] == epoch_id:
            failpoints.arm(armed[2], [f"{armed[1]}=pause"])
        with onceonly.epoch(df, epoch_id, log=checkpoint) as epoch:
            parts = df.groupBy("subtask")
            for mode, sink in sinks.items():
                count = counting(world / "state", mode, epoch_id, life)
                epoch.write(parts.applyInArrow(count, RESULT), sink, name=mode.value)

    rows = (
        spark.readStream.format("json")
        .schema(SCHEMA)
        .option("maxFilesPerTrigger", PARTITIONS)
        .load(str(world / "input"))
    )
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    return writer.foreachBatch(write).start()


def main() -> None:
    """Run one life."""
    die_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("world", type=Path)
    parser.add_argument("life", type=int)
    parser.add_argument("--epoch", type=int)
    parser.add_argument("--point", default="")
    parser.add_argument("--arm", type=Path)
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    spark = session(args.world / f"life-{args.life}")
    # Two small parts would be put into one task, and would not be parallel.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    armed = None if args.epoch is None else (args.epoch, args.point, args.arm)
    start(spark, args.world, args.life, armed).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
