"""Where an epoch's time went, read from its events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from benchmarks.phases import (
    ALL,
    BETWEEN,
    BOTH,
    HOLDS,
    KAFKA,
    OURS,
    SPARK,
    Phases,
    main,
    reckoned,
    spent,
    whose,
)
from benchmarks.store import recorded

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {
    "plan.started": [0], "epoch.planned": [1], "slot.has_rows": [9, 10], "slot.begun": [11, 13],
    "slot.prepared": [20, 31],
    "votes.collected": [41], "epoch.checked": [42], "link.persisted": [45], "epoch.completed": [55], "epoch.done": [60],
}  # fmt: skip


def events(epoch: int, began_ms: float, kinds: dict[str, list[int]] = KINDS) -> list[dict[str, Any]]:
    """What an epoch records; Spark began it 8 ms before its plan, and reports it when it is over."""
    lines: list[dict[str, Any]] = [
        {"kind": kind, "t": (began_ms + at) / 1000, "seq": at}
        for kind, moments in kinds.items()
        for at in moments
    ]
    if "epoch.done" in kinds:
        report = {"began": (began_ms - 8) / 1000, "took_ms": 69}
        lines.append({"kind": "epoch.reported", "t": (began_ms + 65) / 1000, "seq": 65, **report})
    return [{"query": "q", "epoch": epoch, "incarnation": "i", **line} for line in lines]


def test_phases_are_those_of_whole_epochs_one_after_the_other() -> None:
    failed = {"plan.started": [0], "epoch.planned": [500], "slot.begun": [900]}
    lines = [*events(1, 0), *events(2, 100, failed), *events(2, 2000), *events(3, 2070)]
    found = {each.title: each for each in spent(lines)}

    assert found["the plan"].median_ms == pytest.approx(1)
    assert found["until a slot has rows"].median_ms == pytest.approx(8)
    assert found["the slot's transaction begun"].median_ms == pytest.approx(2)
    assert found["rows written, flushed and marked"].median_ms == pytest.approx(20)
    assert found["votes on their way to the commit process"].median_ms == pytest.approx(10)
    assert found["every transaction committed: visible"].epochs == 3
    assert found[BETWEEN].epochs == 2
    assert found[BETWEEN].p95_ms == pytest.approx(1931)
    assert found["Spark, until it asks for the plan"].p95_ms == pytest.approx(8)
    assert found["Spark, until the epoch is over"].epochs == 3


def test_whose_time_it_is_adds_up_to_an_epoch() -> None:
    took = whose(spent([*events(1, 0), *events(2, 70), *events(3, 140)]))
    assert took[SPARK] == pytest.approx(8 + 8 + 10 + 1 + 1)
    assert took[KAFKA] == pytest.approx(2 + 20 + 10)
    assert took[OURS] == pytest.approx(1 + 1 + 3 + 5)
    assert sum(took.values()) == pytest.approx(70)


def test_a_row_waits_for_the_running_epochs_end_and_until_the_next_one_is_visible() -> None:
    found = reckoned([*events(1, 0), *events(2, 70), *events(3, 140)])
    assert found[ALL]["p50_ms"] == pytest.approx(63 + 34.5)
    assert found[ALL]["p99_ms"] == pytest.approx(63 + 69.5)
    assert found[BOTH]["p50_ms"] == pytest.approx(58 + 29.5)
    assert found[SPARK]["p50_ms"] == pytest.approx(26 + 13.5)
    assert found[SPARK]["p99_ms"] == pytest.approx(26 + 27.5)


def test_a_long_epoch_has_as_many_more_rows_wait() -> None:
    later = {
        kind: [at + 930 if kind == "epoch.done" else at for at in moments] for kind, moments in KINDS.items()
    }
    long = [
        {**line, "took_ms": 999} if line["kind"] == "epoch.reported" else line
        for line in events(2, 70, later)
    ]
    found = reckoned([*events(1, 0), *long, *events(3, 1070)])
    # Of 1,070 rows, the first 70 wait for the first epoch's end, and no longer than 70 ms of it.
    assert found[ALL]["p50_ms"] == pytest.approx(63 + (535 - 70) - 0.5)


def test_epochs_that_do_not_follow_each_other_say_nothing_of_a_rows_wait() -> None:
    assert reckoned([*events(1, 0), *events(3, 70)]) == {}
    assert (
        reckoned([line for line in [*events(1, 0), *events(2, 70)] if line["kind"] != "epoch.reported"]) == {}
    )


def test_the_command_shows_a_table_or_says_what_is_missing(tmp_path: Path) -> None:
    empty = CliRunner().invoke(main, [str(tmp_path)])
    assert empty.exit_code == 1
    assert "ONCEONLY_EVENTS" in empty.output
    (tmp_path / "1.jsonl").write_text("\n".join(json.dumps(line) for line in events(1, 0)))
    shown = CliRunner().invoke(main, [str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "the plan" in shown.output
    path = tmp_path / "phases.json"
    assert CliRunner().invoke(main, [str(tmp_path), "--json", str(path)]).exit_code == 0
    found = recorded(path, Phases)
    assert found is not None
    assert {each.title for each in found.phases} < set(HOLDS)
    assert found.phases[0].median_ms == pytest.approx(8)


def test_only_what_happened_before_the_end_counts_when_asked(tmp_path: Path) -> None:
    slow = {**KINDS, "epoch.planned": [9]}
    lines = [*events(1, 0, slow), *events(2, 10_000), *events(3, 10_100)]
    (tmp_path / "1.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    path = tmp_path / "phases.json"
    assert CliRunner().invoke(main, [str(tmp_path), "--last", "5", "--json", str(path)]).exit_code == 0
    found = recorded(path, Phases)
    assert found is not None
    planned = next(each for each in found.phases if each.title == "the plan")
    assert (found.last_s, planned.epochs) == (5, 2)
    assert planned.p95_ms == pytest.approx(1)


def test_the_start_of_each_query_is_left_out_when_asked(tmp_path: Path) -> None:
    slow = {**KINDS, "epoch.planned": [9]}
    lines = [
        {**line, "query": query}
        for query, began in (("p", 0), ("q", 50_000))
        for line in [*events(1, began, slow), *events(2, began + 3_000), *events(3, began + 3_070)]
    ]
    (tmp_path / "1.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    path = tmp_path / "phases.json"
    assert CliRunner().invoke(main, [str(tmp_path), "--warm", "2", "--json", str(path)]).exit_code == 0
    found = recorded(path, Phases)
    assert found is not None
    planned = next(each for each in found.phases if each.title == "the plan")
    assert (found.warm_s, planned.epochs) == (2, 4)
    assert planned.p95_ms == pytest.approx(1)


def test_a_log_without_sparks_reports_has_the_phases_of_the_protocol() -> None:
    lines = [line for line in [*events(1, 0), *events(2, 70)] if line["kind"] != "epoch.reported"]
    found = {each.title for each in spent(lines)}
    assert "the plan" in found
    assert BETWEEN not in found
    assert not {title for title in found if title.startswith("Spark, ")}
