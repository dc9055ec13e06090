"""Moments, spans and numbers as people read them. Pure: moments are UTC, as no reader's clock is known."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from onceonly.model import Stamp, seconds_of
from onceonly.operations.disk import iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onceonly.view.values import Mark, Verdict

UNKNOWN = "unknown"
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def moment(at: float | None) -> str:
    """Return a moment as text, UTC with milliseconds."""
    return iso(at) or UNKNOWN


def seconds(text: str) -> float | None:
    """Return a stamp's text in seconds since 1970; None where it is empty or cannot be read."""
    return seconds_of(Stamp(at=text)) or None


def since(found: Verdict) -> str:
    """Return the words before the moment since when something is stuck, or those that say that nobody knows it."""
    if found.since is None:
        return ", and since when is not known" if found.at_latest else ""
    return ", since at the latest " if found.at_latest else ", since "


def by(stamp: Stamp | None) -> str:
    """Name the process that noted something; empty where that is not known."""
    return f"process {stamp.pid} on {stamp.host}" if stamp is not None and stamp.host else ""


def took(span_s: float | None) -> str:
    """Return a span as text: ``1.250 s``, ``3 min``, ``2.0 h``."""
    if span_s is None:
        return UNKNOWN
    if span_s < _MINUTE_S:
        return f"{span_s:.3f} s"
    if span_s < _HOUR_S:
        return f"{span_s / _MINUTE_S:.1f} min"
    return f"{span_s / _HOUR_S:.1f} h" if span_s < _DAY_S else f"{span_s / _DAY_S:.1f} d"


def few(marks: Iterable[Mark], most: int) -> list[Mark]:
    """Return marks in their order, of each kind in each lane at most so many: an epoch may have thousands of slots."""
    seen: Counter[tuple[str, str]] = Counter()
    shown = []
    for mark in marks:
        seen[mark.what, mark.lane] += 1
        if seen[mark.what, mark.lane] <= most:
            shown.append(mark)
    return shown


def outcomes(found: Mapping[str, int]) -> str:
    """Return what a receipt counts."""
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found.items())
