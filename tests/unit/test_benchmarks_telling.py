"""What being told of a query costs an epoch, from the medians of rounds."""

from __future__ import annotations

from benchmarks.telling import cost_ms


def test_rounds_are_compared_one_with_one_as_a_busy_machine_is_slow_for_both() -> None:
    assert cost_ms([100.0, 300.0, 101.0], [102.0, 303.0, 102.0]) == 2.0
