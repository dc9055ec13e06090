"""Restart strategies: pure values, Flink's semantics."""

from __future__ import annotations

import pytest

from onceonly.settings.restart import ExponentialDelay, FailureRate, FixedDelay, NoRestart


def test_no_restart_gives_up_at_once() -> None:
    assert NoRestart().next_delay([0.0]) is None


def test_fixed_delay_counts_all_failures_for_ever() -> None:
    strategy = FixedDelay(attempts=2, delay_s=5)
    assert strategy.next_delay([0.0]) == 5
    assert strategy.next_delay([0.0, 1e6]) == 5
    assert strategy.next_delay([0.0, 1e6, 2e6]) is None
    assert FixedDelay(attempts=0).next_delay([0.0]) is None


def test_exponential_delay_grows_to_its_maximum() -> None:
    strategy = ExponentialDelay(initial_s=1, maximum_s=5, multiplier=2, reset_after_s=100, jitter=0)
    times = [0.0, 10.0, 20.0, 30.0, 40.0]
    assert [strategy.next_delay(times[: n + 1]) for n in range(5)] == [1, 2, 4, 5, 5]


def test_exponential_delay_resets_after_a_quiet_time_counted_from_the_restart() -> None:
    strategy = ExponentialDelay(initial_s=10, maximum_s=80, multiplier=2, reset_after_s=100, jitter=0)
    # Down for 10 s after the first failure, so 109.9 s later it has run for less than 100 s.
    assert strategy.next_delay([0.0, 109.9]) == 20
    assert strategy.next_delay([0.0, 110.0]) == 10
    assert strategy.next_delay([0.0, 109.9, 109.9 + 119.9]) == 40
    assert strategy.next_delay([0.0, 109.9, 109.9 + 120.0]) == 10


def test_jitter_spreads_around_the_delay_and_respects_the_maximum() -> None:
    strategy = ExponentialDelay(initial_s=10, maximum_s=10.5, multiplier=1, jitter=0.1)
    assert strategy.next_delay([0.0], draw=0.0) == pytest.approx(9)
    assert strategy.next_delay([0.0], draw=0.5) == pytest.approx(10)
    assert strategy.next_delay([0.0], draw=0.999) == 10.5


def test_failure_rate_gives_up_when_the_rate_is_exceeded() -> None:
    strategy = FailureRate(failures=2, per_s=60, delay_s=3)
    assert strategy.next_delay([0.0]) == 3
    assert strategy.next_delay([0.0, 30.0]) == 3
    assert strategy.next_delay([0.0, 30.0, 60.0]) is None
    assert strategy.next_delay([0.0, 30.0, 60.1]) == 3


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: FixedDelay(attempts=-1), "attempts"),
        (lambda: FixedDelay(delay_s=-0.1), "delay_s"),
        (lambda: ExponentialDelay(initial_s=5, maximum_s=4), "maximum_s"),
        (lambda: ExponentialDelay(multiplier=0.9), "multiplier"),
        (lambda: ExponentialDelay(jitter=1.1), "jitter"),
        (lambda: FailureRate(failures=0), "failures"),
        (lambda: FailureRate(per_s=float("nan")), "per_s"),
    ],
)
def test_a_number_out_of_its_range_is_named(make: object, named: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=named):
        make()
