"""``python -m benchmarks.soak --minutes 60``: Kafka to Kafka at five epochs a second. ``make soak`` calls it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from benchmarks import settings
from benchmarks.contenders.base import prefixed, python_path
from benchmarks.contenders.onceonly import Onceonly
from benchmarks.lives import Contending
from benchmarks.load.feeding import feed
from benchmarks.soak.trend import trend
from benchmarks.soak.values import VERSION, Soak
from benchmarks.soak.watch import Watch
from benchmarks.values import encode
from onceonly_proof.auditor.kafka import read_committed
from onceonly_proof.campaign import machine as host
from onceonly_proof.embedded.kafka import MeasuredKafka

_RESULTS = Path(__file__).parents[1] / "results" / "soak.json"
_INTERVAL_MS, _RATE, _PARTITIONS, _RECORD_BYTES = 200, 200, 2, 100
_DRAIN_S = 10.0
_EXIT_GROWS, _EXIT_CANNOT = 1, 2


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", type=click.FloatRange(min=0.5), default=60.0, show_default=True)
@click.option(
    "--every", "every_s", type=click.FloatRange(min=0.5), default=5.0, show_default=True, help="Seconds."
)
@click.option(
    "--heap-every", "heap_s", type=click.FloatRange(min=1), default=30.0, show_default=True, help="Seconds."
)
@click.option("--results", type=click.Path(path_type=Path, dir_okay=False), default=_RESULTS)
def main(*, minutes: float, every_s: float, heap_s: float, results: Path) -> None:
    """See whether anything grows while a query runs: memory, descriptors, threads, files, the JVM's live heap.

    Exit status: 0 if all is flat and every row came out once, 1 if not, 2 if it was too short to tell.
    """
    if shutil.which("jcmd") is None:
        raise click.ClickException("jcmd was not found, which looks into the JVM's heap; install a JDK.")
    found = run(minutes, every_s, heap_s)
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_bytes(encode(found))
    verdicts = set()
    for series in found.series:
        told = trend(series)
        verdicts.add(told.verdict)
        click.echo(
            f"{series.name:40} {told.verdict:6} {told.first:9.1f} to {told.last:9.1f} {series.unit}"
            f"  {told.per_hour:+9.1f} an hour"
        )
    click.echo(
        f"{found.epochs:,} epochs in {found.seconds:,.0f} s; {found.rows_in:,} rows in, {found.rows_out:,} out"
    )
    if "grows" in verdicts or found.rows_in != found.rows_out:
        sys.exit(_EXIT_GROWS)
    sys.exit(_EXIT_CANNOT if "short" in verdicts else 0)


def run(minutes: float, every_s: float, heap_s: float) -> Soak:
    """Run it once."""
    started, load = datetime.now(UTC).isoformat(timespec="seconds"), os.getloadavg()[0]
    contender = Onceonly("onceonly", "exactly-once")
    contender.prepare()
    with tempfile.TemporaryDirectory(prefix="soak-") as name, MeasuredKafka(Path(name) / "kafka") as kafka:
        folder = Path(name)
        for topic in ("in", "out"):
            kafka.create_topic(topic, partitions=_PARTITIONS)
        contender.write_session(folder / "job", _PARTITIONS, few_rows=True)
        env = {"PYTHONPATH": python_path(), "SPARK_LOCAL_IP": "127.0.0.1"}
        job = Contending.start(contender.command(), folder / "job", env)
        try:
            servers = kafka.bootstrap_servers
            checkpoint = folder / "checkpoint"
            job.order("start", **order(servers, checkpoint))
            begun = time.monotonic()
            with Watch(job.process.members, checkpoint, every_s=every_s, heap_s=heap_s) as watch:
                rows_in = feed(
                    servers,
                    "in",
                    rate=_RATE,
                    seconds=minutes * 60,
                    partitions=_PARTITIONS,
                    record_bytes=_RECORD_BYTES,
                )
            seconds = time.monotonic() - begun
            time.sleep(_DRAIN_S)
            job.order("check")
            epochs = newest_epoch(checkpoint) + 1
            job.order("stop")
        finally:
            job.kill()
        rows_out = sum(1 for _ in read_committed(servers, "out"))
    return Soak(
        version=VERSION,
        started=started,
        seconds=round(seconds, 1),
        interval_ms=_INTERVAL_MS,
        rate=_RATE,
        epochs=epochs,
        rows_in=rows_in,
        rows_out=rows_out,
        load_before=round(load, 2),
        load_after=round(os.getloadavg()[0], 2),
        machine=host.machine(),
        versions=host.versions(),
        series=watch.series(),
    )


def order(servers: str, checkpoint: Path) -> dict[str, object]:
    """Return what the job is told."""
    return {
        "kind": "pass",
        "servers": servers,
        "source": "in",
        "source_options": prefixed(settings.SOURCE, "kafka."),
        "per_epoch": 0,
        "format": "onceonly.kafka",
        "sink": {"kafka.bootstrap.servers": servers, "topic": "out"},
        "checkpoint": str(checkpoint),
        "interval_ms": _INTERVAL_MS,
    }


def newest_epoch(checkpoint: Path) -> int:
    """Return the newest epoch that Spark has noted as complete."""
    return max(
        (int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), default=-1
    )


if __name__ == "__main__":
    main()
