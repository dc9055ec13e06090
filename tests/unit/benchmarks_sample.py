"""Results of a benchmark that nobody ran: three rounds, with figures that are easy to check."""

from __future__ import annotations

from msgspec.structs import replace

from benchmarks import costs, store
from benchmarks.plan import QUICK
from benchmarks.ratios import ASKED
from benchmarks.values import (
    FLINK_EO,
    ONCEONLY_EO,
    SPARK_DEFAULT,
    SPARK_TUNED,
    Measured,
    Outcome,
    Part,
    Results,
    Run,
    Work,
)

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
"""Of rows of 100 bytes."""

PASS, PASS_1KB = Work(kind="pass"), Work(kind="pass", record="1kb")
PACED = Work(kind="pass", rate=200)


def run(
    part: Part,
    work: Work,
    contender: str,
    number: int,
    *,
    outcome: Outcome = "whole",
    lost: int = 0,
    **figures: float,
) -> Measured:
    return Measured(
        run=Run(part=part, contender=contender, round=number, work=work),
        outcome=outcome,
        lost=lost,
        figures=figures,
    )


def runs() -> list[Measured]:
    """Three rounds: the medians are 600 against 400 and 500, 200 against 100, 80 and 60 against 40 ms."""
    found = []
    flink = replace(PASS, interval_ms=1_000)
    for number, change in ((1, 0), (2, 10), (3, -10)):
        fast = {ONCEONLY_EO: 600, SPARK_DEFAULT: 400, SPARK_TUNED: 500}
        found += [
            run("throughput", PASS, name, number, records_per_s=speed + change, memory_mib_jvm=900.0)
            for name, speed in fast.items()
        ]
        found.append(run("throughput", flink, FLINK_EO, number, records_per_s=300 + change))
        found += [
            run("throughput", PASS_1KB, name, number, records_per_s=speed + change)
            for name, speed in ((ONCEONLY_EO, 200), (SPARK_DEFAULT, 100), (SPARK_TUNED, 80))
        ]
        found += [
            run("latency", PACED, name, number, p50_ms=ms + change, p99_ms=2 * ms, p95_ms=ms, max_ms=3 * ms)
            for name, ms in ((ONCEONLY_EO, 60), (SPARK_DEFAULT, 80), (SPARK_TUNED, 40))
        ]
    found += [
        run("commit", Work(kind="commit", count=count), ONCEONLY_EO, number, decide_ms=10.0 + count)
        for count in (1, 4, 16)
        for number in (1, 2, 3)
    ]
    return found


def results(*measured: Measured, not_run: dict[str, str] | None = None, finished: bool = True) -> Results:
    from benchmarks.ratios import ratios

    begun = store.begin(
        command="python -m benchmarks --size quick",
        sizes=QUICK,
        fingerprint="f",
        planned=len(measured),
        settings={ONCEONLY_EO: {"spark.a": "b"}},
        machine={
            "cores": 2,
            "memory_gib": 23,
            "system": "Linux 6",
            "java": 'openjdk "17"',
            "load_before": 0.1,
        },
        versions={"python": "3.11", "pyspark": "4.2.0", "commit": "abc"},
    )
    values, notes = ratios(measured, not_run or {})
    return replace(
        begun,
        runs=measured,
        ratios=values,
        ratio_notes=notes,
        not_run=not_run or {},
        finished=finished,
        seconds=400.0,
    )


__all__ = ["ASKED", "PACED", "PASS", "PASS_1KB", "results", "run", "runs"]
