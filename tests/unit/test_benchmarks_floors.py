"""What could be reached at best is reckoned from what was measured, and from nothing else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.benchmarks_sample import results, run, runs

from benchmarks import costs, floors
from benchmarks.ratios import EVERY, ratios
from benchmarks.values import ONCEONLY_EO, SPARK_TUNED, Measured, Work

COSTS = costs.Costs(
    version=2,
    command="c",
    started="2026-11-22",
    machine={},
    versions={},
    costs=tuple(
        costs.Cost(sink=sink, rounds=5, records_per_s=1e6, jvm_us=jvm, python_us=python, broker_us=broker)
        for sink, jvm, python, broker in (
            (costs.READING, 1.0, 0.5, 0.25),
            (costs.RECEIVING, 1.25, 0.25, 0.25),
            (ONCEONLY_EO, 1.5, 0.5, 1.0),
            (SPARK_TUNED, 2.5, 0.5, 0.75),
        )
    ),
    record="100b",
    parts={costs.CHECKSUM: 0.25, costs.MAKING: 0.25, costs.SENDING: 0.75},
    parts_by_numpy={costs.CHECKSUM: 0.5, costs.MAKING: 1.0, costs.SENDING: 0.75},
    loading=costs.Loading(seconds=1.25, mib=100.4),
)


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
