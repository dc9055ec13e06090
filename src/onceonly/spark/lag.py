"""Which queries of this process want a group to show how far they are, and who keeps it for a run. Driver."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from onceonly import background, events
from onceonly.errors import OnceonlyError
from onceonly.guards.lag import Keeper
from onceonly.log import lag_state
from onceonly.log.place import home_of, notes_store
from onceonly.settings.query import CHECKPOINT, LAG_GROUP, SOURCE_FORMAT, SOURCE_OPTION, parse_query
from onceonly.spark import spans

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.settings.query import QuerySettings

log = logging.getLogger("onceonly")

UNHEARD: Final = "nobody hears of the query's epochs (no onceonly.register, or a client of another language)"
NO_LAG: Final = f"The group %s of onceonly.lag.group is not kept: {UNHEARD}."
INSTEAD: Final = (
    "run the query in a session of Python that has called onceonly.register, or leave onceonly.lag.group out; "
    "onceonly checkpoints and its page say how far it is"
)
_OPTIONS = (LAG_GROUP, SOURCE_FORMAT)

# By the home of a checkpoint, of the query that was started on it last.
_wanted: dict[str, QuerySettings] = {}


def options_of(function: object) -> dict[str, str]:
    """Return what a function of ``onceonly.sink`` was told of lag and source; nothing of other functions. Pure."""
    # By name, as its module imports this one.
    told: Mapping[str, str] = getattr(function, "query_options", None) or {}
    return {
        name: text
        for name, text in told.items()
        if name.lower() in _OPTIONS or name.lower().startswith(SOURCE_OPTION)
    }


def want(location: str, options: Mapping[str, str]) -> None:
    """Note at a query's start what its options say. ``options`` have lower-case names. Never fails."""
    if not location:
        return
    try:
        _wanted.pop(home_of(location), None)
        if options.get(LAG_GROUP):
            note(parse_query({**options, CHECKPOINT: location}))
    except OnceonlyError as error:  # wrong options are refused by name, later
        log.debug("Whether the query's lag is shown: %s", error)


def note(settings: QuerySettings) -> None:
    """Note what a query wants, in an epoch too: one by ``onceonly.epoch`` is not seen before. Idempotent."""
    if not settings.lag_group:
        return
    home = home_of(settings.checkpoint)
    if home not in _wanted and not spans.asked:
        log.warning(NO_LAG, settings.lag_group)
    _wanted[home] = settings


def keeper(location: str, query: str, *, starts: bool = False) -> Keeper | None:
    """Begin to keep the group of a run that ``starts``, or was just heard of; return None where no query wants one.

    What an earlier start has noted is then forgotten, beside the query.
    """
    settings = _wanted.get(home_of(location)) if _wanted else None
    if settings is not None:
        return Keeper(settings, query, partial(spans.read_sources, query))
    if starts:
        background.begin("onceonly-lag", _forget, location)
    return None


def unheard(checkpoint: str, group: str) -> None:
    """Note, where nobody of ours hears of a query's epochs, that its group is not kept; without one, nothing.

    The planner's process; for people alone, and never fails.
    """
    with contextlib.suppress(OnceonlyError):
        if not group:
            lag_state.forget(notes_store(checkpoint))
            return
        log.warning(NO_LAG, group)
        state = lag_state.LagState(group=group, told=UNHEARD, next_step=INSTEAD, since=events.stamp().at)
        lag_state.write(notes_store(checkpoint), state)


def _forget(location: str) -> None:
    with contextlib.suppress(OnceonlyError):  # it is for people alone
        lag_state.forget(notes_store(location))
