"""What could be reached at best is reckoned from what was measured, and from nothing else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.benchmarks_sample import COSTS, results, run, runs

from benchmarks import floors
from benchmarks.ratios import EVERY, ratios
from benchmarks.values import ONCEONLY_EO, Measured, Work


def best(name: str, *found: Measured) -> float | None:
    measured = results(*(found or runs()))
    _, notes = ratios(measured.runs, {}, EVERY)
    return floors.of_ratio(EVERY[name], notes[name], measured, {"100b": COSTS}, {})


def test_of_a_row_it_is_what_python_and_the_broker_cannot_be_spared_and_sending() -> None:
    # 3.75 of Spark's own sink; 1.75 until Python has a row, 0.5 for the broker, 0.15 for sending.
    assert best("throughput_100b_vs_spark") == pytest.approx(3.75 / 2.4)


def test_against_flink_it_is_less_by_what_flink_is_ahead_of_spark() -> None:
    # Spark's own sink wrote 500 records a second, Flink 300.
    assert best("throughput_100b_vs_flink_exactly_once") == pytest.approx(3.75 / 2.4 * 500 / 300)


def test_a_nearer_one_has_the_loops_over_rows_as_they_are_alone() -> None:
    measured = results(*runs())
    _, notes = ratios(measured.runs, {}, EVERY)
    name = "throughput_100b_vs_spark"
    found = floors.of_rows(EVERY[name], notes[name], measured, {"100b": COSTS}, with_loops=True)
    assert found == pytest.approx(3.75 / (2.4 + 0.25 + 0.25))


def test_where_rows_of_that_size_were_not_taken_apart_there_is_none() -> None:
    assert best("throughput_1kb_vs_spark") is None
    assert best("latency_p50_200rps_vs_spark") is None
    assert best("latency_p99_ms_200rps") is None


def test_of_a_commit_it_is_the_decision_and_the_brokers_share_of_the_cores() -> None:
    def epoch(count: int, decide_ms: float) -> Measured:
        measured = run("commit", Work(kind="commit", count=count), ONCEONLY_EO, 1)
        figures = {"until_link.persisted_ms": 3.0, "cpu_broker_ms": 30.0, "cpu_own_ms": 12.0}
        return replace(measured, figures={**figures, "decide_ms": decide_ms})

    found = [epoch(4, 9.0), epoch(64, 40.0)]
    assert best("commit_64_vs_4_transactions", *found) == pytest.approx(2.0)
    assert best("commit_64_vs_4_transactions", found[0]) is None
