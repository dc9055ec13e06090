"""Savepoints that a query makes by itself, now and then. Driver or commit process, beside the epochs.

What goes wrong is told, and tried again later: the query does not wait for it, and never fails because of it. But the
program does that ends: a query that a timetable starts, and that is over in seconds, would never have one that is
whole. A process that is killed meanwhile leaves one that is not, which is taken away when the next one is made.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import wait
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from onceonly import background
from onceonly.errors import LogError, OnceonlyError
from onceonly.savepoints import place as places
from onceonly.savepoints.making import create
from onceonly.savepoints.manifest import moment_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from onceonly.settings.savepoints import Keeping

log = logging.getLogger("onceonly")

_AGAIN_S: Final = 60.0
_BROKEN_OFF_S: Final = 3600.0
"""For how long one that is not whole must not have come further until nobody is taken to be making it any more."""
_WORKING_S: Final = 300.0
"""For how long it may not have come further, and another process is taken to be making it."""
_STILL_S: Final = 300.0
"""How long a copy may stand still until a program that ends waits for it no more."""
_POLL_S: Final = 0.1


class Keeper:
    """Makes the savepoints of one query's checkpoint. One thread at a time; the work is done in another."""

    def __init__(self, checkpoint: str, query: str, wanted: Keeping) -> None:
        self._checkpoint = checkpoint
        self._query = query
        self._wanted = wanted
        self._due = 0.0  # by the monotonic clock; the first look finds out when it is
        self._working: Future[None] | None = None
        self._moved = 0.0  # when it has come further last, by the same clock
        self._is_owed = False
        self._made = ""  # by the work that was begun last
        self._tried = False

    def look(self) -> None:
        """Begin to make one, if it is time. After each epoch; one comparison where it is not. Never fails."""
        if time.monotonic() >= self._due:
            self._begin()

    def end(self) -> None:
        """Try once more what has not come to an end, as the run is over: no epoch will ask for it. Never fails."""
        if self._is_owed:
            self._begin()

    def finish(self) -> None:
        """Wait until the one that is being made is whole, and say so. As the program ends; any thread.

        At most as long as it is from one to the next, and not where the copy stands still.
        """
        working = self._working
        if working is None or working.done():
            return
        log.warning(
            "Query %s is over, and its savepoint is being made in %s: the program ends when it is whole, in %.0f s at "
            "the latest.", self._query, self._wanted.place, self._wanted.every_s,
        )  # fmt: skip
        deadline = time.monotonic() + self._wanted.every_s
        while not working.done() and time.monotonic() < min(deadline, self._moved + _STILL_S):
            wait([working], timeout=_POLL_S)
        if not working.done() and self._made:
            log.warning("Savepoint %s is whole; older ones are dropped when the next is made.", self._made)
        elif not working.done():
            log.warning(
                "The program of query %s ends without its savepoint: it is not whole, and the next run makes another "
                "one. Where that ends like this, too, onceonly savepoint create makes one with the job down.",
                self._query,
            )

    def _begin(self) -> None:
        if self._working is not None and not self._working.done():
            return
        now = time.monotonic()
        self._due, self._moved, self._is_owed = now + min(_AGAIN_S, self._wanted.every_s), now, True
        self._made = ""
        self._working = background.begin("onceonly-savepoint", self._work)

    def _heard(self, _done: int, _all: int, _bytes: int) -> None:
        self._moved = time.monotonic()

    def _work(self) -> None:
        try:
            now = time.time()
            own = places.of_query(self._wanted.place, self._query)
            # People's clocks are good enough for it.
            left_s = places.newest_of(own, now=now) + self._wanted.every_s - now
            if left_s <= 0:
                begun = [(each, now - places.moved_at(each)) for each in own if _is_begun(each)]
                if any(abs(age_s) < _WORKING_S for _, age_s in begun):
                    return  # by the run before, whose program has not ended yet, or by an operator
                # Before: a place that is full of what was broken off would stay so.
                self._drop(
                    [each for each, age_s in begun if age_s > _BROKEN_OFF_S], "what was broken off of it"
                )
                made = create(self._checkpoint, self._wanted.place, by_itself=True, told=self._heard)
                log.info("Query %s: savepoint %s in %s.", self._query, made.name, self._wanted.place)
                left_s, self._made = self._wanted.every_s, made.name
                self._prune(made.name)
            self._due, self._is_owed = time.monotonic() + left_s, False
        except Exception as error:  # noqa: BLE001  a query must not fail because of its savepoints
            if isinstance(error, LogError) and not self._tried:
                self._tried = True  # its first epoch may not be noted yet
                return
            log.warning(
                "No savepoint of query %s could be made; it is tried again: %s", self._query, _told(error)
            )

    def _prune(self, made: str) -> None:
        """Drop the savepoints that this query made by itself but the newest ones.

        What an operator has made or renamed stays. The one that was just ``made`` is the newest, whatever clocks say,
        and one of the future the oldest.
        """
        soon = datetime.now().astimezone() + timedelta(seconds=places.AHEAD_S)

        def newest_first(each: places.Standing) -> tuple[bool, bool, datetime]:
            moment = moment_of(each.name)
            return each.name == made, moment <= soon, moment

        def older() -> Iterator[places.Standing]:
            own = [
                each
                for each in places.of_query(self._wanted.place, self._query)
                # Who has given one another name, or copied it, wants to keep it.
                if each.savepoint is not None
                and each.savepoint.by_itself
                and each.savepoint.name == each.name
            ]
            yield from sorted(own, key=newest_first, reverse=True)[self._wanted.keep :]

        self._drop(older(), f"savepoint {made} was made, and older ones")

    def _drop(self, found: Iterable[places.Standing], what: str) -> None:
        """Drop what is not needed any more; who may not has more of them, and is told."""
        try:
            for each in found:
                self._moved = time.monotonic()
                places.drop(each.address)
        except Exception as error:  # noqa: BLE001  as above
            log.warning("Query %s: %s could not be dropped: %s", self._query, what, _told(error))


def _is_begun(each: places.Standing) -> bool:
    return each.savepoint is None and each.damaged is None


def _told(error: Exception) -> str:
    return error.what if isinstance(error, OnceonlyError) else f"{type(error).__name__}: {error}"
