"""``python -m benchmarks.sinks``: the comparison from the command line."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pyspark.errors import StreamingQueryException
from rich.console import Console

from benchmarks import settings
from benchmarks.contenders.base import python_path, write_session
from benchmarks.jobs import spark as job
from benchmarks.plan import turned
from benchmarks.sinks import page
from benchmarks.sinks.values import GROUPS, ROW_BYTES, SHARE, VERSION, Ran, Sinks
from benchmarks.sinks.worlds import COLUMNS, JARS, WORLDS
from benchmarks.values import encode
from onceonly.errors import OnceonlyError
from onceonly.jars.locked import ensure_jars
from onceonly_proof.campaign import machine as host
from onceonly_proof.campaign.result import save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from benchmarks.sinks.worlds import World

_RESULTS = Path(__file__).parents[1] / "results" / "sinks.json"
_SLOTS = 2
_KEY = "{:010d}"
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}
_EXIT_BROKEN = 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--rows", default=1_000_000, show_default=True, type=click.IntRange(10), help="In all epochs that count."
)
@click.option(
    "--epochs",
    default=4,
    show_default=True,
    type=click.IntRange(1),
    help="Into so many; one more comes before.",
)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option(
    "--warm", default=1, show_default=True, type=click.IntRange(0), help="Rounds before, not counted."
)
@click.option(
    "--only", "groups", type=click.Choice(list(GROUPS)), multiple=True, help="This group; may be repeated."
)
@click.option("--results", type=click.Path(path_type=Path, dir_okay=False), default=_RESULTS)
def main(*, rows: int, epochs: int, rounds: int, warm: int, groups: tuple[str, ...], results: Path) -> None:
    """Measure sinks beside what people use in their place, on this machine.

    A group whose server is missing, or that a query fails in, is told as not run; the others go on.

    Exit status: 0 if every row was there once after every run, 1 if not.
    """
    chosen = [group for group in GROUPS if group in (groups or GROUPS)]
    asked = [f"--rows {rows}", f"--epochs {epochs}", f"--rounds {rounds}", f"--warm {warm}"]
    asked += [f"--only {group}" for group in groups]
    machine = host.before()
    started, began_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="s-"))
    folder.chmod(0o755)  # a server may run as another user
    try:
        ran, not_run = _measure(folder, chosen, rows=rows, epochs=epochs, rounds=rounds, warm=warm)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record = Sinks(
        version=VERSION,
        command=" ".join(["python -m benchmarks.sinks", *asked]),
        started=started,
        seconds=round(time.monotonic() - began_s, 1),
        machine=machine,
        versions=host.versions(),
        epochs=epochs,
        ran=tuple(ran),
        not_run=not_run,
    )
    save(results, encode(record))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(page.table(record), soft_wrap=True, markup=False)
    console.print(f"written to {results}", soft_wrap=True)
    sys.exit(0 if all(each.whole for each in ran) else _EXIT_BROKEN)


def _measure(
    folder: Path, groups: Sequence[str], *, rows: int, epochs: int, rounds: int, warm: int
) -> tuple[list[Ran], dict[str, str]]:
    os.environ |= {"PYTHONPATH": python_path(), "SPARK_LOCAL_IP": "127.0.0.1"}
    spark = _session(folder / "session", groups)
    found: list[Ran] = []
    not_run: dict[str, str] = {}
    try:
        for group in groups:
            input_ = _input(
                folder / "input" / group, rows // SHARE.get(group, 1) // epochs // _SLOTS, epochs + 1
            )
            try:
                with WORLDS[group](folder / group) as world:
                    found += _rounds(spark, world, group, folder, input_, rounds=rounds, warm=warm)
            except OnceonlyError as error:
                not_run[group] = f"{error.what}"
            except StreamingQueryException as error:
                not_run[group] = f"a query failed: {str(error).splitlines()[0]}"
            shutil.rmtree(input_)
    finally:
        spark.stop()
    return found, not_run


def _session(folder: Path, groups: Sequence[str]) -> SparkSession:
    jars = [path for group in groups if group in JARS for path in ensure_jars(used_by=JARS[group])]
    conf = {
        **settings.BASE,
        **settings.SESSION,
        **(_DELTA if "delta" in groups else {}),
        "spark.jars": ",".join(map(str, jars)),
        "spark.pyspark.python": sys.executable,
        "spark.sql.shuffle.partitions": str(_SLOTS),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "tmp"),
    }
    write_session(folder, {"conf": conf, "master": f"local[{_SLOTS}]", "register": True})
    return job.session(folder)


def _input(folder: Path, rows: int, epochs: int) -> Path:
    """Write a file for each slot of each epoch: a number, a key and a text, 100 bytes together."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True)
    for number in range(epochs * _SLOTS):
        ids = range(number * rows, (number + 1) * rows)
        keys = [_KEY.format(each) for each in ids]
        texts = os.urandom(rows * ROW_BYTES // 2).hex()
        length = ROW_BYTES - 8 - len(keys[0])
        values = [texts[each * length : (each + 1) * length] for each in range(rows)]
        table = pa.table({"id": pa.array(ids, pa.int64()), "key": keys, "value": values})
        parquet.write_table(table, folder / f"{number:03d}.parquet", compression="none", use_dictionary=False)
    return folder


def _rounds(
    spark: SparkSession, world: World, group: str, folder: Path, input_: Path, *, rounds: int, warm: int
) -> list[Ran]:
    files = len(list(input_.iterdir()))
    contenders = GROUPS[group]
    runs: dict[str, list[tuple[float, float, int]]] = {name: [] for name in contenders}
    whole = dict.fromkeys(contenders, True)
    wanted = spark.read.schema(COLUMNS).parquet(str(input_)).count()
    source = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", _SLOTS)
    for number in range(-warm, rounds):
        # Who begins moves on, so that nobody always has what another one left behind.
        for contender in turned(contenders, number):
            name = f"t{uuid.uuid4().hex[:12]}"
            query = world.start(contender, source.parquet(str(input_)), name, folder / "checkpoints" / name)
            query.awaitTermination()
            epochs = _epochs(query)[1:]  # the first one brings the query up
            is_whole = world.count(name) == wanted and len(epochs) == files // _SLOTS - 1
            shutil.rmtree(folder / "checkpoints" / name, ignore_errors=True)
            spent_s, counted = sum(epochs), wanted // files * _SLOTS * len(epochs)
            wrong = "" if is_whole else ", NOT WHOLE"
            sys.stderr.write(
                f"{group}, round {number + 1}: {contender} {counted / spent_s:,.0f} rows/s{wrong}\n"
            )
            whole[contender] = whole[contender] and is_whole
            if number >= 0:
                runs[contender].append((counted / spent_s, statistics.median(epochs) * 1000, counted))
    return [
        Ran(
            group=group,
            contender=name,
            rows=each[0][2],
            rows_per_s=tuple(round(rate, 1) for rate, _, _ in each),
            epoch_ms=round(statistics.median(took for _, took, _ in each), 1),
            whole=whole[name],
        )
        for name, each in runs.items()
    ]


def _epochs(query: StreamingQuery) -> list[float]:
    """Return the time of each epoch that had rows, in seconds."""
    return [
        int(each["durationMs"]["triggerExecution"]) / 1000
        for each in query.recentProgress
        if each["numInputRows"]
    ]


if __name__ == "__main__":
    main()
