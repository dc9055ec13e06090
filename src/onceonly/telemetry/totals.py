"""What all settled epochs of a query come to, added up from a line each. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from onceonly.model import LinkKind, letters_of

if TYPE_CHECKING:
    from onceonly.log.history import Summary

BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets of a phase's time."""
WRITE, COMMIT, SETTLE = "write", "commit", "settle"
PHASES: Final = (WRITE, COMMIT, SETTLE)
"""From the plan to the decision; the commits alone; from the decision to the receipt."""


@dataclass(slots=True)
class Times:
    """How long a phase took, over all epochs: how many fell into each bucket, the last of them without a bound."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one time."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


@dataclass(slots=True)
class Totals:
    """All settled epochs up to ``through``, -1 for none yet. ``settled_at`` is when that one was, 0 where unknown.

    ``bytes``, ``rows``, ``transactions`` and ``letters`` are by sink, the last by the sink that refused them;
    ``outcomes`` are of commits, by name.
    """

    through: int = -1
    settled_at: float = 0.0
    committed: int = 0
    skipped: int = 0
    aborts: int = 0
    repairs: int = 0
    bytes: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    transactions: Counter[str] = field(default_factory=Counter)
    letters: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    times: defaultdict[str, Times] = field(default_factory=lambda: defaultdict(Times))

    def add(self, line: Summary) -> None:
        """Count an epoch; each once, in their order."""
        self.through = line.epoch
        self.settled_at = line.at + line.settled_s
        self.aborts += line.aborts
        self.outcomes.update(line.outcomes)
        if line.kind is not LinkKind.COMMIT:
            self.skipped += 1
            return
        self.committed += 1
        # Each further decision of an epoch repeats one of which something was lost.
        self.repairs += line.links - line.aborts - 1
        for sink, (rows, transactions) in line.sinks.items():
            self.transactions[sink] += transactions
            refused_by = letters_of(sink)
            if refused_by is None:
                self.rows[sink] += rows
            else:
                self.letters[refused_by] += rows
        self.bytes.update({sink: size for sink, size in line.bytes.items() if letters_of(sink) is None})
        for phase, seconds in zip(PHASES, (line.planned_s, line.seconds, line.settled_s), strict=True):
            if seconds:  # 0 where it is not known
                self.times[phase].add(seconds)
