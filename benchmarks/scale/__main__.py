"""``python -m benchmarks.scale``: measures how it grows; ``make scale`` calls it. Some minutes; jcmd needs a JDK."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from benchmarks.scale import brokers, folders, links, transactions
from benchmarks.scale.values import VERSION, Scale
from benchmarks.values import encode
from onceonly_proof.campaign import machine as host
from onceonly_proof.embedded.kafka import MeasuredKafka

_RESULTS = Path(__file__).parents[1] / "results" / "scale.json"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--repeats", default=5, show_default=True, help="Of what is timed; brokers get half as many.")
@click.option("--results", type=click.Path(path_type=Path, dir_okay=False), default=_RESULTS)
def main(*, repeats: int, results: Path) -> None:
    """Measure size and time of decisions, logs, commits, and the broker's heap, at sizes that one machine can have."""
    began, load = time.monotonic(), os.getloadavg()[0]
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        folder = Path(name)
        _say("decisions")
        points = links.measure(folder, repeats)
        _say("the log's folder")
        points += folders.measure(folder)
        with MeasuredKafka(folder / "kafka") as kafka:
            points += transactions.measure(kafka, folder, repeats, _say)
            kafka.kill()
        points += brokers.measure(folder, max(1, repeats // 2), _say)
    found = Scale(
        version=VERSION,
        started=started,
        seconds=round(time.monotonic() - began, 1),
        load_before=round(load, 2),
        load_after=round(os.getloadavg()[0], 2),
        machine=host.machine(),
        versions=host.versions(),
        points=tuple(points),
    )
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_bytes(encode(found))
    _say(f"written to {results}")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
