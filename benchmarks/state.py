"""What a provider of state costs an epoch: ``python -m benchmarks.state``. Some minutes; no server.

A query counts by key, and an epoch changes a few of very many keys. Each provider has a query and a checkpoint of its
own in a session of its own process, and they take turns by rounds. What is measured is Spark's time of an epoch.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import click

_WARM = 3
_PROVIDERS = {"HDFS-backed": False, "RocksDB with changelog": True}


@click.command()
@click.option("--keys", default=200_000, show_default=True, help="How many keys the state has.")
@click.option("--changed", default=200, show_default=True, help="How many of them an epoch changes.")
@click.option("--epochs", default=20, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--one", type=click.Choice(list(_PROVIDERS)), hidden=True)
def main(*, keys: int, changed: int, epochs: int, rounds: int, one: str | None) -> None:
    """Print the median milliseconds of an epoch by provider, and those of each round, as JSON."""
    if one is not None:
        click.echo(json.dumps(_measured(keys, changed, epochs, changelog=_PROVIDERS[one])))
        return
    found: dict[str, list[float]] = {name: [] for name in _PROVIDERS}
    for _ in range(rounds):
        for name, each in found.items():
            command = [sys.executable, "-m", "benchmarks.state", "--one", name]
            command += ["--keys", str(keys), "--changed", str(changed), "--epochs", str(epochs)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            each.append(json.loads(done.stdout.splitlines()[-1]))
    click.echo(
        json.dumps({name: {"ms": statistics.median(each), "rounds": each} for name, each in found.items()})
    )


def _measured(keys: int, changed: int, epochs: int, *, changelog: bool) -> float:
    """Return the median milliseconds of an epoch, after one that has made all keys and a few more."""
    import onceonly
    from onceonly.spark.configure import CHANGELOG
    from onceonly_proof.local_session import local_session

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        spark = local_session(
            folder, name="state", master="local[2]", log_level="ERROR", conf=CHANGELOG if changelog else {},
            local_checkpoints=False,
        )  # fmt: skip
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", changed).load()
        first = f"sequence(0, {keys}) "
        keyed = rows.selectExpr(f"explode(if(value = 0, {first}, array(value * 7919 % {keys}))) as key")
        query = (
            keyed.groupBy("key").count().writeStream.outputMode("update")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .foreachBatch(
                onceonly.sink(
                    "onceonly.files", path=str(folder / "out"), checkpointLocation=str(folder / "checkpoint")
                )
            )
            .start()
        )  # fmt: skip
        while len(list(folder.glob("checkpoint/commits/[0-9]*"))) < epochs + _WARM + 1:
            if query.awaitTermination(1):
                break
        took = {each["batchId"]: each["durationMs"]["triggerExecution"] for each in query.recentProgress}
        query.stop()
        spark.stop()
    return float(statistics.median(ms for epoch, ms in took.items() if epoch > _WARM))


if __name__ == "__main__":
    main()
