"""Commits where the coordinators' log has replicas: ``python -m benchmarks.replicas``, on three brokers. Some minutes.

An answer to EndTxn waits for the replicas there, and a broker takes up no other request of its connection meanwhile.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from unittest.mock import patch

import click
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.parts import commits
from benchmarks.plan import turned
from benchmarks.values import Recorded, encode
from onceonly.sinks.kafka.wire import connections
from onceonly_proof.campaign import machine as host
from onceonly_proof.campaign.result import save
from onceonly_proof.embedded.kafka import MeasuredKafka
from onceonly_proof.embedded.kafka_cluster import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1
COUNTS = (4, 64)
"""Of transactions in an epoch."""
_PARTITIONS = 2
_DECIDED, _COMMITTED = "until_link.persisted_ms", "until_epoch.completed_ms"


class Committing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Medians over the rounds: from the durable decision until all transactions are committed."""

    connections_max: int
    transactions: int
    commits_ms: float
    rounds: int


class Replicas(Recorded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of them."""

    found: tuple[Committing, ...]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="After one not counted.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False))
def main(*, rounds: int, path: Path | None) -> None:
    """Measure epochs of few and of many transactions on three brokers, by one connection to each and by several."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    found = _measure(rounds, [1, connections.CONNECTIONS_MAX])
    Console(width=None if sys.stdout.isatty() else 120).print(table(found))
    if path is not None:
        replicas = Replicas(
            version=VERSION,
            command=f"python -m benchmarks.replicas --rounds {rounds}",
            started=started,
            machine=host.machine(),
            versions=host.versions(),
            found=tuple(found),
        )
        save(path, encode(replicas))


def table(found: Sequence[Committing]) -> Table:
    """Draw them. Pure."""
    drawn = Table("transactions", "connections to a broker", "ms", title="commits on three brokers, medians")
    for column in drawn.columns:
        column.justify = "right"
    for each in found:
        drawn.add_row(str(each.transactions), str(each.connections_max), f"{each.commits_ms:.1f}")
    return drawn


def _measure(rounds: int, connections_max: Sequence[int]) -> list[Committing]:
    times: dict[tuple[int, int], list[float]] = {}
    with (
        EmbeddedCluster(kind=MeasuredKafka) as cluster,
        tempfile.TemporaryDirectory(prefix="replicas-") as folder,
    ):
        for number in range(rounds + 1):
            # Who begins moves on: the brokers are warmer for the next one.
            for most in turned(connections_max, number):
                for count in COUNTS:
                    sys.stderr.write(f"round {number} of {rounds}: {count} by {most}\n")
                    topic = uuid.uuid4().hex
                    cluster.create_topic(topic, _PARTITIONS)
                    with patch.object(connections, "CONNECTIONS_MAX", most):
                        epochs = commits.decide(cluster.bootstrap_servers, topic, count, Path(folder))
                    if number:
                        times.setdefault((count, most), []).append(
                            median(each[_COMMITTED] - each[_DECIDED] for each in epochs)
                        )
    return [
        Committing(
            connections_max=most, transactions=count, commits_ms=round(median(each), 2), rounds=len(each)
        )
        for (count, most), each in sorted(times.items())
    ]


if __name__ == "__main__":
    main()
