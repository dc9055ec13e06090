"""What the syncs of Spark's files cost an epoch: ``python -m benchmarks.syncs``. Ten minutes; starts a broker.

A query of 20 rows an epoch, ten times a second, to Kafka: as they come, or each once, with each provider of state. Its
epochs come in blocks with all syncs and without those of Spark's files (``benchmarks.turns``), so that both have one
process, one disk and the same minutes. The first epochs of a block make up for the block before, and are not counted.
What is measured is Spark's time of an epoch.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotations at run time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.contenders.base import python_path
from benchmarks.turns import BLOCK, LEFT_OUT_ENV, SITE, has_syncs
from benchmarks.values import Recorded, encode
from onceonly.jars.locked import ensure_jars
from onceonly_proof.campaign import machine as host
from onceonly_proof.campaign.result import save
from onceonly_proof.embedded.kafka import MeasuredKafka
from onceonly_proof.power.task import STATES, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = 1
NAMES = {"none": "none", "hdfs": "HDFS-backed", "rocksdb": "RocksDB", "changelog": "RocksDB with changelog"}
_ROWS = 20
_INTERVAL_MS = 100
# Of each block: what the block before has left, and the switch itself.
_SKIPPED = 4
# Its processes come up, and the loops of the JVM are compiled.
_WARM = 2 * BLOCK


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an epoch took, in milliseconds, with its syncs and without those of Spark's files."""

    epochs: int
    median_ms: float
    median_without_ms: float
    middle_ms: float
    """The mean of the middle half: Spark tells whole milliseconds."""
    middle_without_ms: float

    @property
    def cost_ms(self) -> float:
        """What the syncs cost."""
        return self.middle_ms - self.middle_without_ms


class Costs(Recorded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of costs, by what keeps the state."""

    costs: Mapping[str, Cost]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--epochs", default=600, show_default=True, type=click.IntRange(6 * BLOCK), help="For each state."
)
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Record it there, too.")
@click.option("--one", type=click.Choice(STATES), hidden=True)
def main(*, epochs: int, path: Path | None, one: str | None) -> None:
    """Measure what the syncs of Spark's files cost an epoch."""
    if one is not None:
        click.echo(json.dumps(_took(one, epochs)))
        return
    ensure_jars(used_by="broker")
    started = datetime.now(UTC).isoformat(timespec="seconds")
    found: dict[str, Cost] = {}
    for state in STATES:
        sys.stderr.write(f"state: {state}\n")
        command = [sys.executable, "-m", "benchmarks.syncs", "--one", state, "--epochs", str(epochs)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[state] = cost(
            {int(epoch): ms for epoch, ms in json.loads(done.stdout.splitlines()[-1]).items()}
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table(found))
    if path is not None:
        record = Costs(
            version=VERSION,
            command=f"python -m benchmarks.syncs --epochs {epochs}",
            started=started,
            machine=host.machine(),
            versions=host.versions(),
            costs=found,
        )
        save(path, encode(record))


def cost(took: Mapping[int, int]) -> Cost:
    """Compare the epochs of both kinds: what each took, in milliseconds, by its number. Pure."""
    counted = {epoch: ms for epoch, ms in took.items() if epoch >= _WARM and epoch % BLOCK >= _SKIPPED}
    with_syncs = [ms for epoch, ms in counted.items() if has_syncs(epoch)]
    without = [ms for epoch, ms in counted.items() if not has_syncs(epoch)]
    return Cost(
        epochs=len(counted),
        median_ms=statistics.median(with_syncs),
        median_without_ms=statistics.median(without),
        middle_ms=_middle(with_syncs),
        middle_without_ms=_middle(without),
    )


def table(costs: Mapping[str, Cost]) -> Table:
    """Draw them. Pure."""
    drawn = Table(
        "state", "epochs", "median", "without", "middle half", "without", "syncs cost", title="ms of an epoch"
    )
    for column in drawn.columns[1:]:
        column.justify = "right"
    for state, each in costs.items():
        values = (each.median_ms, each.median_without_ms, each.middle_ms, each.middle_without_ms)
        drawn.add_row(NAMES[state], str(each.epochs), *(f"{ms:.1f}" for ms in values), f"{each.cost_ms:+.1f}")
    return drawn


def _middle(values: list[int]) -> float:
    fourth = len(values) // 4
    return round(statistics.fmean(sorted(values)[fourth : len(values) - fourth]), 2)


def _took(state: str, epochs: int) -> dict[int, int]:
    from onceonly_proof.local_session import local_session

    with tempfile.TemporaryDirectory(prefix="s-") as made:
        folder = Path(made)
        left_out = folder / "left-out"
        os.environ |= {"PYTHONPATH": os.pathsep.join((str(SITE), python_path())), LEFT_OUT_ENV: str(left_out)}
        with MeasuredKafka(folder / "kafka") as kafka:
            kafka.create_topic("output", 2)
            spark = local_session(
                folder,
                name="syncs",
                master="local[2]",
                log_level="ERROR",
                conf={
                    **Pipeline("rate", state, "kafka").conf(),
                    "spark.sql.streaming.numRecentProgressUpdates": str(epochs + 1),
                },
                local_checkpoints=state in {"none", "hdfs"},
            )
            try:
                found = _run(spark, folder, kafka.bootstrap_servers, state, epochs)
            finally:
                spark.stop()
        if not left_out.exists():
            raise click.ClickException("no epoch was run without its syncs, so nothing was compared")
    return found


def _run(spark: SparkSession, folder: Path, servers: str, state: str, epochs: int) -> dict[int, int]:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).load()
    told = rows.selectExpr("cast(value as string) as value")
    told = told if state == "none" else told.dropDuplicates(["value"])
    query = (
        told.writeStream.format("onceonly.kafka")
        .option("kafka.bootstrap.servers", servers).option("topic", "output")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=f"{_INTERVAL_MS} milliseconds")
        .start()
    )  # fmt: skip
    while query.lastProgress is None or query.lastProgress["batchId"] < epochs:
        if query.awaitTermination(1):
            break
    query.stop()
    return {each["batchId"]: each["durationMs"]["triggerExecution"] for each in query.recentProgress}


if __name__ == "__main__":
    main()
