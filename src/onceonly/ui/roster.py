"""The queries that a server shows: those that it was started with, and those that have come below the same places."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Final

from onceonly.errors import OnceonlyError
from onceonly.operations.find import newcomers
from onceonly.ui import records
from onceonly.ui.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.operations.find import Checkpoint
    from onceonly.operations.search import Problem

EVERY_S: Final = 5.0
EVERY_DISTANT_S: Final = 60.0
"""How often is looked for what is new while somebody looks at the list; on a store each folder is a request."""
_SHARE: Final = 20
"""Looking for it takes at most one part of so many of the time: there may be very many folders."""


class Roster:
    """The watchers of a server by their keys. Any thread; a key stays, so that a link to it does.

    ``places`` are those in which is looked for more; none where nobody is to look. ``problems`` are of those that
    could not be opened; what is Spark's alone is none.
    """

    def __init__(
        self, checkpoints: Sequence[Checkpoint], places: Sequence[str] = (), problems: Sequence[Problem] = ()
    ) -> None:
        self._places = places
        self._problems = [each for each in problems if not each.foreign]
        self._lock = threading.Lock()
        self._by_key: dict[str, Watcher] = {}
        self._add(checkpoints)
        distant = any(each.checkpoint.folder is None for each in self.all)
        self._every_s = EVERY_DISTANT_S if distant else EVERY_S
        self._next = time.monotonic() + self._every_s

    @property
    def all(self) -> tuple[Watcher, ...]:
        """Those that are known, in the order in which they became so."""
        return tuple(self._by_key.values())

    @property
    def unopened(self) -> tuple[Problem, ...]:
        """What is wrong with those that could not be opened when the server began, and have not been since."""
        opened = {each.checkpoint.path for each in self.all}
        return tuple(each for each in self._problems if each.path not in opened)

    @property
    def every_s(self) -> float:
        """How long a look at all of them is good."""
        return max(each.every_s for each in self.all)

    def get(self, key: str) -> Watcher | None:
        """Return the one of a key; None where there is none, also after a look for what is new."""
        if key not in self._by_key:
            self.look()
        return self._by_key.get(key)

    def look(self) -> None:
        """Look for what is new, where the last look is old. What cannot be opened, or listed now, is left out."""
        if not self._places or not self._lock.acquire(blocking=False):
            return  # somebody looks already
        try:
            began = time.monotonic()
            if began < self._next:
                return
            known = {each.checkpoint.location for each in self.all}
            for place in self._places:
                try:
                    self._add(newcomers(place, known))
                except OnceonlyError:
                    continue
            ended = time.monotonic()
            self._next = ended + max(self._every_s, _SHARE * (ended - began))
        finally:
            self._lock.release()

    def state(self) -> tuple[tuple[str, ...], ...]:
        """Return what is told of each query, to see whether it is another than before."""
        self.look()
        return (*map(_state, self.all), *((each.path, each.error.what) for each in self.unopened))

    def _add(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Name each by its query; of two with one query, the second has a number."""
        found = dict(self._by_key)
        for each in checkpoints:
            name = re.sub(r"[^A-Za-z0-9-]+", "-", each.query) or "query"
            key, number = name, 2
            while key in found:
                key, number = f"{name}-{number}", number + 1
            found[key] = Watcher(each, key)
        self._by_key = found


def _state(watcher: Watcher) -> tuple[str, ...]:
    try:
        model = watcher.model()
    except OnceonlyError as error:
        return watcher.key, error.what
    stands = model.epochs[0].view.state if model.epochs else ""
    trouble = watcher.trouble.what if watcher.trouble is not None else ""
    return watcher.key, model.run.word, str(records.newest(model.epochs)), stands, trouble
