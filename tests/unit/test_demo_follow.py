"""The event log is followed while it grows, and transactions are counted once each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onceonly_proof.demo.follow import EventLog, Transactions, count_epochs, count_transactions, query_ids

if TYPE_CHECKING:
    from pathlib import Path


def line(kind: str, t: float, transaction: str = "", **more: str | int) -> dict[str, Any]:
    blank = {"query": "q", "epoch": 0, "sink": "kafka", "slot": 0}
    return {**blank, "kind": kind, "t": t, "transaction": transaction, **more}


def test_only_whole_new_lines_are_given_in_the_order_of_time(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    assert log.fresh() == []
    (tmp_path / "a.jsonl").write_text(json.dumps(line("x", 2)) + "\n" + '{"kind": "torn')
    (tmp_path / "b.jsonl").write_text(json.dumps(line("y", 1)) + "\n")
    assert [each["kind"] for each in log.fresh()] == ["y", "x"]
    assert log.fresh() == []
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('", "t": 3}\n')
    assert [each["kind"] for each in log.fresh()] == ["torn"]


def test_a_transaction_counts_once_by_its_first_success_though_ids_are_used_again() -> None:
    events = [
        line("handle.committed", 1, "a", outcome="Committed"),
        line("handle.resolved", 2, "a", outcome="AlreadyCommitted"),
        line("handle.committed", 1, "b", outcome="RetryLater"),
        line("handle.resolved", 2, "b", outcome="Committed"),
        line("handle.resolved", 3, "b", outcome="AlreadyCommitted"),
        line("handle.committed", 3, "a", outcome="Committed", epoch=1),
        line("swept", 4, "c"),
        line("epoch.done", 6),
    ]
    assert count_transactions(events) == Transactions(committed=2, recovered=1, aborted=1)


def test_epochs_and_names_come_from_the_checkpoints(tmp_path: Path) -> None:
    for query, epochs in (("clean", 3), ("results", 0)):
        (tmp_path / query / "commits").mkdir(parents=True)
        (tmp_path / query / "metadata").write_text(json.dumps({"id": f"id-{query}"}))
        for number in range(epochs):
            (tmp_path / query / "commits" / str(number)).touch()
            (tmp_path / query / "commits" / f".{number}.crc").touch()
    queries = ("clean", "results", "none")
    assert count_epochs(tmp_path, queries) == {"clean": 3, "results": 0, "none": 0}
    assert query_ids(tmp_path, queries) == {"id-clean": "clean", "id-results": "results"}
