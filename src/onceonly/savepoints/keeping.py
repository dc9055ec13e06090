"""Savepoints that a query makes by itself, now and then. Driver or commit process, beside the epochs.

What goes wrong is told, and tried again later: the query does not wait for it, and never fails because of it. A process
that ends meanwhile leaves a savepoint that is not whole, which is taken away when the next one is made.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import LogError, OnceonlyError
from onceonly.savepoints import place as places
from onceonly.savepoints.making import create, moment_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from onceonly.settings.savepoints import Keeping

log = logging.getLogger("onceonly")

_AGAIN_S = 60.0
_BROKEN_OFF_S = 3600.0
"""How old one that is not whole has to be until nobody is taken to be making it any more."""


class Keeper:
    """Makes the savepoints of one query's checkpoint. One thread; the work is done in another."""

    def __init__(self, checkpoint: str, query: str, wanted: Keeping) -> None:
        self._checkpoint = checkpoint
        self._query = query
        self._wanted = wanted
        self._due = 0.0  # by the monotonic clock; the first look finds out when it is
        self._working: Future[None] | None = None
        self._tried = False

    def look(self) -> None:
        """Begin to make one, if it is time. After each epoch; one comparison where it is not. Never fails."""
        if time.monotonic() < self._due or (self._working is not None and not self._working.done()):
            return
        self._due = time.monotonic() + min(_AGAIN_S, self._wanted.every_s)
        self._working = background.begin("onceonly-savepoint", self._work)

    def _work(self) -> None:
        try:
            left_s = self._left_s()
            if left_s <= 0:
                made = create(self._checkpoint, self._wanted.place, by_itself=True)
                log.info("Query %s: savepoint %s in %s.", self._query, made.name, self._wanted.place)
                left_s = self._wanted.every_s
                self._drop_old(made.name)
            self._due = time.monotonic() + left_s
        except Exception as error:  # noqa: BLE001  a query must not fail because of its savepoints
            if isinstance(error, LogError) and not self._tried:
                self._tried = True  # its first epoch may not be noted yet
                return
            log.warning(
                "No savepoint of query %s could be made; it is tried again: %s", self._query, _told(error)
            )

    def _drop_old(self, made: str) -> None:
        """Drop what is old, once one was ``made``; who may not has more of them, and is told."""
        try:
            self._prune(made)
        except Exception as error:  # noqa: BLE001  as above
            log.warning(
                "Savepoint %s of query %s was made, and older ones could not be dropped: %s",
                made, self._query, _told(error),
            )  # fmt: skip

    def _left_s(self) -> float:
        """Say how long it is until the next one, by the newest that stands; people's clocks are good enough for it."""
        now = time.time()
        return places.newest_at(self._wanted.place, self._query, now=now) + self._wanted.every_s - now

    def _prune(self, made: str) -> None:
        """Drop the savepoints that this query made by itself but the newest ones, and those broken off long ago.

        What an operator has made or renamed stays. The one that was just ``made`` is the newest, whatever clocks say,
        and one of the future the oldest.
        """
        own = places.of_query(self._wanted.place, self._query)
        now = datetime.now().astimezone()
        soon, old = now + timedelta(seconds=places.AHEAD_S), now - timedelta(seconds=_BROKEN_OFF_S)

        def newest_first(each: places.Standing) -> tuple[bool, bool, datetime]:
            moment = moment_of(each.name)
            return each.name == made, moment <= soon, moment

        own.sort(key=newest_first, reverse=True)
        whole = [
            each
            for each in own
            # Who has given one another name, or copied it, wants to keep it.
            if each.savepoint is not None and each.savepoint.by_itself and each.savepoint.name == each.name
        ]
        begun = [
            each
            for each in own
            if each.savepoint is None and each.damaged is None and moment_of(each.name) < old
        ]
        for each in (*whole[self._wanted.keep :], *begun):
            places.drop(each.address)


def _told(error: Exception) -> str:
    return error.what if isinstance(error, OnceonlyError) else f"{type(error).__name__}: {error}"
