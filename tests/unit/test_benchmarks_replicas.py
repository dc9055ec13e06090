"""Commits on three brokers: how they are drawn, and what is measured by how many connections."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console

from benchmarks import replicas
from benchmarks.parts import commits
from benchmarks.replicas import Committing
from onceonly.sinks.kafka.wire import connections

if TYPE_CHECKING:
    from types import TracebackType

    import pytest


class _Cluster:
    bootstrap_servers = "nowhere:9"

    def __init__(self, *, kind: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        return None

    def create_topic(self, _name: str, _partitions: int) -> None:
        return None


def test_each_count_is_measured_by_each_number_of_connections_in_turns_and_the_first_round_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most_before, calls = connections.CONNECTIONS_MAX, list[tuple[int, int]]()

    def decide(_servers: str, _topic: str, count: int, *_more: Any) -> list[dict[str, float]]:  # noqa: ANN401
        calls.append((count, connections.CONNECTIONS_MAX))
        is_warm = len(calls) > 2 * len(replicas.COUNTS)
        spent = count / connections.CONNECTIONS_MAX if is_warm else 1000.0
        return [{"until_link.persisted_ms": 3.0, "until_epoch.completed_ms": 3.0 + spent}]

    monkeypatch.setattr(replicas, "EmbeddedCluster", _Cluster)
    monkeypatch.setattr(commits, "decide", decide)
    found = replicas._measure(2, [1, 8])
    assert [(each.transactions, each.connections_max, each.commits_ms, each.rounds) for each in found] == [
        (4, 1, 4.0, 2), (4, 8, 0.5, 2), (64, 1, 64.0, 2), (64, 8, 8.0, 2),
    ]  # fmt: skip
    assert [most for _, most in calls[::2]] == [1, 8, 8, 1, 1, 8], "who begins moves on"
    assert most_before == connections.CONNECTIONS_MAX


def test_a_row_says_how_many_transactions_took_how_long_by_how_many_connections() -> None:
    text = io.StringIO()
    Console(file=text, width=80).print(
        replicas.table([Committing(connections_max=16, transactions=64, commits_ms=50.84, rounds=5)])
    )
    assert [part.strip() for part in text.getvalue().splitlines()[-2].strip("│").split("│")] == [
        "64", "16", "50.8",
    ]  # fmt: skip
