"""What was published stays known, each benchmark once, and nothing but full ones."""

from __future__ import annotations

import msgspec
from tests.unit.benchmarks_sample import results, runs

from benchmarks import history
from benchmarks.plan import FULL, QUICK
from benchmarks.values import encode


def test_a_full_benchmark_joins_those_before_it_once() -> None:
    first, second = (
        msgspec.structs.replace(results(*runs()), size=FULL.name, started=started)
        for started in ("2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z")
    )
    found = history.NONE
    for each in (second, first, first):
        found = history.followed(found, each)
    assert [each.started for each in found.runs] == [first.started, second.started]
    assert found.runs[0].commit == "abc"
    assert history.known(found.runs, "throughput_100b_vs_spark") == [1.2, 1.2]
    assert history.known(found.runs, "latency_max_ms_4rps") == []
    assert msgspec.json.decode(encode(found), type=history.History) == found


def test_a_smaller_benchmark_is_not_compared_with_full_ones() -> None:
    found = msgspec.structs.replace(results(*runs()), size=QUICK.name)
    assert history.followed(history.NONE, found) == history.NONE
