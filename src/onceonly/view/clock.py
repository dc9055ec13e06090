"""Where a step is drawn in time: the log's order first, clocks second. Pure.

Planners, commit processes and commands follow each other in the log, whichever hosts they were on: their steps are a
spine, along which no place comes before the one before. A host whose clock contradicts that is moved, with all that it
notes from there on, so that what it took by its own clock stays as long as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

TOLERANCE_S: Final = 0.002
"""Stamps are noted in milliseconds."""


class Placed(NamedTuple):
    """A place; ``skewed`` says that a clock contradicts the log."""

    place: float | None
    skewed: bool = False


def between(place: float, begin: float | None, end: float | None) -> Placed:
    """Hold a place between those of two steps, as far as these are known."""
    held = place if begin is None else max(place, begin)
    if end is not None:
        held = min(held, max(end, begin or end))
    return Placed(held, abs(held - place) > TOLERANCE_S)


@dataclass(slots=True)
class Clock:
    """The places of one view, given out in the log's order."""

    floor: float | None = None
    _late: dict[str, float] = field(default_factory=dict)

    def next(self, at: float | None, host: str) -> Placed:
        """Place a step of the spine; one without a clock is where the spine has come to."""
        if at is None:
            return Placed(self.floor)
        place = at + self._late.get(host, 0.0)
        if self.floor is not None and place < self.floor:
            if self.floor - place > TOLERANCE_S:
                self._late[host] = self.floor - at
            place = self.floor
        self.floor = place
        return Placed(place, host in self._late)

    def between(self, at: float | None, host: str, begin: float | None, end: float | None) -> Placed:
        """Place a step beside the spine, which was between two steps of it."""
        if at is None:
            return Placed(None)
        held = between(at + self._late.get(host, 0.0), begin, end)
        return held._replace(skewed=held.skewed or host in self._late)

    @property
    def told(self) -> tuple[str, ...]:
        """Say whose clocks contradict the log, a sentence each."""
        return tuple(
            f"the clock of {host or 'an unknown host'} contradicts the order of the log: what it noted is drawn "
            f"{late:.3f} s later"
            for host, late in self._late.items()
        )
