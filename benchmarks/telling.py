"""What metrics, traces and lag cost an epoch: ``python -m benchmarks.telling``. Some minutes.

Two queries of few rows write in turns from one Spark session to one Kafka: one tells nothing; of the other, metrics are
scraped each second, each epoch has a trace that a collector takes, and a group shows its lag.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from benchmarks.contenders import contenders
from benchmarks.contenders.base import Place, python_path
from benchmarks.data import fill
from benchmarks.jobs import spark as job
from benchmarks.plan import turned
from benchmarks.values import ONCEONLY_EO, RECORD_BYTES, Work
from onceonly.jars.locked import ensure_jars
from onceonly_proof.embedded.kafka import MeasuredKafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

SILENT, TOLD = "nothing is told", "metrics, traces and lag"
_PARTITIONS = 2
_LEFT_OUT = 20
"""Epochs of a query in which its processes come up."""
_SCRAPED_S = 1.0
"""Prometheus asks every 15 s or so."""


class _Collector(BaseHTTPRequestHandler):
    """Takes whatever comes."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's
        """Say nothing."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--epochs", default=200, show_default=True, type=click.IntRange(_LEFT_OUT + 2))
@click.option("--rows", default=200, show_default=True, type=click.IntRange(1), help="Of each epoch.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
def main(*, epochs: int, rows: int, rounds: int) -> None:
    """Measure what an epoch takes with metrics, traces and lag, and without."""
    ensure_jars(used_by="broker")
    folder = Path(tempfile.mkdtemp(prefix="t-"))
    try:
        found, used = _measure(folder, epochs, rows, rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console = Console(width=None if sys.stdout.isatty() else 120)
    for way, medians in found.items():
        rounds_ms = ", ".join(f"{each:.1f}" for each in medians)
        console.print(f"{way}: {statistics.median(medians):.1f} ms an epoch (rounds: {rounds_ms})")
    console.print(f"in between: {cost_ms(found[SILENT], found[TOLD]):+.1f} ms")
    used_ms = cost_ms(used[SILENT], used[TOLD])
    console.print(
        f"of a processor, in the driver's Python: {used_ms:+.2f} ms an epoch, collector and scrapes included"
    )


def cost_ms(silent: Sequence[float], told: Sequence[float]) -> float:
    """Return the median of what each round's second way takes more than its first. Pure."""
    return statistics.median(more - less for less, more in zip(silent, told, strict=True))


def _measure(
    folder: Path, epochs: int, rows: int, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return what an epoch took in each round, and what of a processor it took in this process; both in ms."""
    os.environ |= {"PYTHONPATH": python_path(), "SPARK_LOCAL_IP": "127.0.0.1"}
    found: dict[str, list[float]] = {SILENT: [], TOLD: []}
    used: dict[str, list[float]] = {SILENT: [], TOLD: []}
    with MeasuredKafka(folder / "kafka") as kafka, _collector() as address:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = address
        kafka.create_topic("input", _PARTITIONS, {"retention.ms": "-1"})
        fill(
            kafka.bootstrap_servers, "input", records=epochs * rows, partitions=_PARTITIONS,
            record_bytes=RECORD_BYTES["100b"],
        )  # fmt: skip
        contenders()[ONCEONLY_EO].write_session(folder / "session", _PARTITIONS, few_rows=True)
        spark = job.session(folder / "session")
        try:
            for number in range(-1, rounds):  # the first one finds everything cold
                for way in turned((SILENT, TOLD), number):
                    sys.stderr.write(f"round {number + 1}: {way}\n")
                    topic = f"output-{number}-{way[0]}"
                    kafka.create_topic(topic, _PARTITIONS)
                    place = Place(
                        name=topic, servers=kafka.bootstrap_servers, source="input", target=topic,
                        checkpoint=folder / topic, partitions=_PARTITIONS, per_epoch=rows, window_ms=0,
                    )  # fmt: skip
                    told = {} if way == SILENT else _asked(topic)
                    began_s = time.process_time()
                    took_ms = _run(spark, place, told)
                    used_ms = (time.process_time() - began_s) * 1000 / epochs
                    if number >= 0:
                        found[way].append(took_ms)
                        used[way].append(used_ms)
        finally:
            spark.stop()
    return found, used


def _asked(group: str) -> dict[str, str]:
    return {"onceonly.metrics.port": "0", "onceonly.traces": "otlp", "onceonly.lag.group": group}


def _run(spark: SparkSession, place: Place, told: Mapping[str, str]) -> float:
    """Run a query to its end; give the median of the times from an epoch's begin to the next one's, in ms."""
    order: Mapping[str, Any] = contenders()[ONCEONLY_EO].order(Work(kind="pass"), place)
    writer = job.rows(spark, order).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", order["checkpoint"]).format(order["format"])
    query = writer.options(**order["sink"], **told).start()
    with _scraped(is_asked=bool(told)):
        query.awaitTermination()
    began = [datetime.fromisoformat(each["timestamp"]).astimezone(UTC) for each in query.recentProgress]
    return statistics.median(
        (later - earlier).total_seconds() * 1000 for earlier, later in pairwise(began[_LEFT_OUT:])
    )


@contextmanager
def _scraped(*, is_asked: bool) -> Iterator[None]:
    from onceonly.telemetry import watching

    ended = threading.Event()

    def scrape() -> None:
        address = watching.served_at()
        while is_asked and not ended.wait(_SCRAPED_S):
            with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310  our own
                answer.read()

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _collector() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
