"""Which queries of this process make savepoints by themselves: after their epochs, and when they end. Driver's Python.

It hears of an epoch when Spark has noted it. Where it hears of none (Spark Connect, a session without
``onceonly.register``), who decides the epochs asks after each whether a savepoint is due.
"""

from __future__ import annotations

import atexit
import logging
from typing import TYPE_CHECKING

from onceonly.errors import OnceonlyError
from onceonly.log.place import home_of
from onceonly.settings.savepoints import OPTIONS, keeping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.savepoints.keeping import Keeper
    from onceonly.settings.query import QuerySettings
    from onceonly.settings.savepoints import Keeping

log = logging.getLogger("onceonly")

# By the home of a checkpoint, of the query that was started on it last.
_wanted: dict[str, Keeping] = {}
# A query that is started again goes on with the one that is being made.
_keepers: dict[tuple[str, str, Keeping], Keeper] = {}


def want(location: str, options: Mapping[str, str]) -> None:
    """Note at a query's start what its options say. ``options`` have lower-case names. Never fails."""
    if not location:
        return
    try:
        home = home_of(location)
        _wanted.pop(home, None)
        if (wanted := keeping(options)) is not None:
            _wanted[home] = wanted
    except OnceonlyError as error:  # wrong options are refused by name, later
        log.debug("Whether the query makes savepoints: %s", error)


def note(settings: QuerySettings) -> None:
    """Note what a query wants, in an epoch too: one by ``onceonly.epoch`` is not seen before. Idempotent."""
    if settings.savepoints is not None:
        _wanted[home_of(settings.checkpoint)] = settings.savepoints


def options_of(function: object) -> dict[str, str]:
    """Return what a function of ``onceonly.sink`` was told of savepoints; nothing of other functions. Pure."""
    told: Mapping[str, str] = getattr(function, "query_options", None) or {}
    return {name: text for name, text in told.items() if name.lower() in OPTIONS}


def keeper(location: str, query: str) -> Keeper | None:
    """Return who makes the savepoints of a query; None where it wants none."""
    wanted = _wanted.get(home := home_of(location)) if _wanted else None
    if wanted is None:
        return None
    from onceonly.savepoints.keeping import Keeper

    return _keepers.setdefault((home, query, wanted), Keeper(location, query, wanted))


def epoch_noted(location: str, query: str) -> None:
    """Hear that Spark has noted an epoch. Does not wait, and never fails."""
    if (each := keeper(location, query)) is not None:
        each.look()


def ended(location: str, query: str) -> None:
    """Hear that a run is over. Does not wait, and never fails."""
    if (each := keeper(location, query)) is not None:
        each.end()


def finish() -> None:
    """Wait, as the program ends, for the savepoints that are being made; not where one stands still."""
    for each in list(_keepers.values()):
        each.finish()


atexit.register(finish)
