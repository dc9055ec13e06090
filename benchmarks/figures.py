"""Percentiles, the steady part of a run, medians: figures from samples. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

PERCENTILES: Mapping[str, float] = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "max_ms": 100}


def percentiles(latencies_ms: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return p50, p95, p99 and max, each a latency that occurred (the nearest rank above).

    Raises:
        ValueError: there is none.
    """
    if not len(latencies_ms):
        raise ValueError("no latency was measured")
    ranked = np.percentile(latencies_ms, list(PERCENTILES.values()), method="inverted_cdf")
    return {name: round(float(value), 3) for name, value in zip(PERCENTILES, ranked, strict=True)}


def counts(marks: Sequence[Sequence[int]], offsets: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Count the rows below each mark: marks are end offsets by partition, ``offsets`` those of the rows, sorted.

    An offset is no count: a transaction's markers have offsets, too.
    """
    sums = np.zeros(len(marks), dtype=np.int64)
    for partition, rows in enumerate(offsets):
        sums += np.searchsorted(rows, np.array([mark[partition] for mark in marks], dtype=np.int64))
    return sums


def steady(
    times_s: Sequence[float], visible: Sequence[int], total: int, *, skip: float = 0.125
) -> tuple[int, int] | None:
    """Return the places of begin and end of the steady part of a run, None where it has none.

    It begins when a share ``skip`` of the rows has become visible, as the query's start is before it, and ends at the
    last step but one, as a run ends in the middle of a checkpoint or an epoch. The same rule for all: who shows rows
    one by one loses one row by it, who shows them by epochs an ordinary epoch.
    """
    steps = [place for place in range(1, len(visible)) if visible[place] > visible[place - 1]]
    begin = next((place for place in steps if visible[place] >= skip * total), None)
    ends = steps[:-1]
    if begin is None or not ends or ends[-1] <= begin or times_s[ends[-1]] <= times_s[begin]:
        return None
    return begin, ends[-1]


def at(times_s: Sequence[float], values: Sequence[float], moment_s: float) -> float:
    """Return a value between samples, in proportion."""
    return float(np.interp(moment_s, times_s, values))
