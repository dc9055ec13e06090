"""Which epochs Spark had noted in a checkpoint when a query was started on it last. Driver; one for the process."""

from __future__ import annotations

from onceonly.log.place import home_of

# By checkpoint: the newest epoch, -1 for none.
_noted: dict[str, int] = {}


def noted_before(location: str) -> int | None:
    """Return the newest epoch that was noted at the start, -1 for none; None where nobody saw the start."""
    return _noted.get(home_of(location))


def remember(home: str, epoch: int) -> None:
    """Keep what a start has found; ``home`` is the checkpoint as ``home_of`` names it."""
    _noted[home] = epoch


def forget(home: str) -> None:
    """Drop what an earlier start has found."""
    _noted.pop(home, None)
