"""Whether a figure grows: the median of the slopes between all pairs of samples (Theil and Sen). Pure.

A process takes what it needs while it warms up; what is asked is whether it goes on taking. So the first quarter of the
time is left out, and the rest is a trend only if it is larger than noise: in the whole rest more than a share of the
figure and more than a floor, with a lower bound of the slope (Sen's, 95 %) above zero.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarks.soak.values import Series

WARM_SHARE = 0.25
GROWTH_SHARE = 0.05
FLOORS = {"MiB": 8.0, "count": 3.0}
"""What a figure may grow by without being called so: a page cache of an allocator, a few files until the next fold."""
_SAMPLES_MIN = 8
_NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Trend:
    """``per_hour`` is the slope, ``low_per_hour`` its lower bound; ``first`` and ``last`` are medians of the ends."""

    first: float
    last: float
    per_hour: float
    low_per_hour: float
    verdict: str


def trend(series: Series) -> Trend:
    """Say whether a figure is ``flat``, ``grows``, or has too few samples to tell (``short``)."""
    begin = series.at_s[0] + WARM_SHARE * (series.at_s[-1] - series.at_s[0]) if series.at_s else 0.0
    pairs = [(at, value) for at, value in zip(series.at_s, series.values, strict=True) if at >= begin]
    if len(pairs) < _SAMPLES_MIN:
        ends = series.values[:1] + series.values[-1:] or (0.0, 0.0)
        return Trend(ends[0], ends[-1], 0.0, 0.0, "short")
    at = np.array([each[0] for each in pairs])
    values = np.array([each[1] for each in pairs])
    slopes = sorted(
        (values[j] - values[i]) / (at[j] - at[i])
        for i, j in itertools.combinations(range(len(at)), 2)
        if at[j] > at[i]
    )
    slope, low = float(np.median(slopes)), slopes[_low(len(at), len(slopes))]
    end = max(2, len(values) // 5)
    first, last = float(np.median(values[:end])), float(np.median(values[-end:]))
    grown = slope * float(at[-1] - at[0])
    much = grown > max(FLOORS.get(series.unit, 0.0), GROWTH_SHARE * first)
    return Trend(first, last, slope * 3600, float(low) * 3600, "grows" if much and low > 0 else "flat")


def _low(samples: int, slopes: int) -> int:
    """Return the place of the lower bound among the sorted slopes (Sen 1968)."""
    spread = math.sqrt(samples * (samples - 1) * (2 * samples + 5) / 18)
    return max(0, int((slopes - _NORMAL_95 * spread) / 2))
