"""Restart strategies: how long to wait before a failed query is started again, or None to give up.

Pure values with Flink's names and semantics (`restart-strategy.*` in its configuration reference). A strategy
sees the history of failures, in seconds of any monotonic clock, oldest first; the last entry is the failure
to answer now. Only failures that a restart can heal are shown to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class RestartStrategy(Protocol):
    """What a supervisor asks of a strategy."""

    def next_delay(self, history: Sequence[float], *, draw: float = 0.5) -> float | None:
        """Return the seconds to wait before the restart, or None to give up.

        ``history`` holds at least the failure to answer. ``draw`` is a random number in [0, 1) for jitter;
        0.5 means none.
        """
        ...


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The first failure ends the query (Flink: ``none``)."""

    def next_delay(self, history: Sequence[float], *, draw: float = 0.5) -> float | None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Restart at most ``attempts`` times in all, ``delay_s`` seconds after each failure.

    The count never starts again, however long the query ran in between (Flink: ``fixed-delay``).
    """

    attempts: int = 3
    delay_s: float = 1.0

    def __post_init__(self) -> None:
        _require("attempts", self.attempts, minimum=0)
        _require("delay_s", self.delay_s, minimum=0)

    def next_delay(self, history: Sequence[float], *, draw: float = 0.5) -> float | None:  # noqa: ARG002
        return self.delay_s if len(history) <= self.attempts else None


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """Restart for ever, each time ``multiplier`` times later, up to ``maximum_s`` (Flink: ``exponential-delay``).

    The delay falls back to ``initial_s`` when the query has run for ``reset_after_s`` seconds since its last
    restart. ``jitter`` is the share by which a delay is randomly longer or shorter, so that many queries do
    not come back in the same moment; no delay is longer than ``maximum_s``. Defaults are Flink's.
    """

    initial_s: float = 1.0
    maximum_s: float = 60.0
    multiplier: float = 1.5
    reset_after_s: float = 3600.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        _require("initial_s", self.initial_s, minimum=0)
        _require("maximum_s", self.maximum_s, minimum=self.initial_s)
        _require("multiplier", self.multiplier, minimum=1)
        _require("reset_after_s", self.reset_after_s, minimum=0)
        _require("jitter", self.jitter, minimum=0, maximum=1)

    def next_delay(self, history: Sequence[float], *, draw: float = 0.5) -> float | None:
        delay = self.initial_s
        for before, now in pairwise(history):
            # The query was down for `delay` after `before`, and ran for the rest of the time.
            quiet = now - before >= self.reset_after_s + delay
            delay = self.initial_s if quiet else min(delay * self.multiplier, self.maximum_s)
        return min(delay * (1 + self.jitter * (2 * draw - 1)), self.maximum_s)


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Restart ``delay_s`` after a failure, unless more than ``failures`` fell into the last ``per_s`` seconds.

    Flink: ``failure-rate``.
    """

    failures: int = 3
    per_s: float = 60.0
    delay_s: float = 1.0

    def __post_init__(self) -> None:
        _require("failures", self.failures, minimum=1)
        _require("per_s", self.per_s, minimum=0)
        _require("delay_s", self.delay_s, minimum=0)

    def next_delay(self, history: Sequence[float], *, draw: float = 0.5) -> float | None:  # noqa: ARG002
        now = history[-1]
        recent = sum(1 for at in history if now - at <= self.per_s)
        return self.delay_s if recent <= self.failures else None


def _require(name: str, value: float, *, minimum: float, maximum: float = float("inf")) -> None:
    if not minimum <= value <= maximum:
        span = f"at least {minimum}" if maximum == float("inf") else f"between {minimum} and {maximum}"
        message = f"{name} must be {span}, not {value!r}"
        raise ValueError(message)
