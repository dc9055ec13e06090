"""What a journal costs: ``python -m benchmarks.journal FOLDER``. A minute; no Spark and no server.

The rate is that of rows of 1 KB that are handed over as a feed does, until each is durable; beside it what the disk
itself takes, written in files as large and synced. What a journal adds to a row is the time of ``append`` for one row.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import click

from onceonly.sources.journal import Journal, Limits, Writer
from onceonly.sources.journal.feeds import Gather

_COLUMNS = {"value": "binary", "arrived": "timestamp", "id": "string"}
_ROW_BYTES = 1024
_ALONE = 300


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--mb", "size_mb", default=1024, show_default=True, help="How much to write.")
@click.option("--rounds", default=3, show_default=True)
def main(folder: Path, *, size_mb: int, rounds: int) -> None:
    """Measure a journal in a FOLDER, which is made if it is missing; print medians as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    count = size_mb * 1024**2 // _ROW_BYTES
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, measured in (
            ("disk MB/s", lambda place: _bare(place, size_mb)),
            ("without ids MB/s", lambda place: _filled(place, count, with_ids=False)),
            ("with ids MB/s", lambda place: _filled(place, count, with_ids=True)),
            ("one row ms", _alone),
        ):
            with tempfile.TemporaryDirectory(dir=folder) as made:
                found.setdefault(name, []).append(measured(Path(made)))
    click.echo(json.dumps({name: round(statistics.median(values), 2) for name, values in found.items()}))


def _bare(place: Path, size_mb: int) -> float:
    block = os.urandom(Limits().segment_bytes)
    begun = time.perf_counter()
    for number in range(size_mb * 1024**2 // len(block)):
        with (place / str(number)).open("xb") as file:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
    return size_mb / (time.perf_counter() - begun)


def _opened(place: Path, limits: Limits) -> Writer:
    return Writer.open(Journal.at(str(place / "journal")), limits, feed="benchmark", of="rows", wait_s=0)


def _filled(place: Path, count: int, *, with_ids: bool) -> float:
    limits = Limits(backlog_bytes=1 << 60)
    value = os.urandom(_ROW_BYTES)
    with _opened(place, limits) as writer:
        gather = Gather(_COLUMNS, limits)
        begun = time.perf_counter()
        for number in range(count):
            gather.add(value, str(number) if with_ids else None)
            if gather.is_due:
                writer.append(gather.take().rows)
        if gather:
            writer.append(gather.take().rows)
        return count * _ROW_BYTES / 1024**2 / (time.perf_counter() - begun)


def _alone(place: Path) -> float:
    limits = Limits(linger_s=0.0)
    value = os.urandom(_ROW_BYTES)
    took = []
    with _opened(place, limits) as writer:
        for number in range(_ALONE):
            begun = time.perf_counter()
            gather = Gather(_COLUMNS, limits)
            gather.add(value, str(number))
            writer.append(gather.take().rows)
            took.append(1000 * (time.perf_counter() - begun))
    return statistics.median(took)


if __name__ == "__main__":
    main()
