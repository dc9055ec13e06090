"""Keeps ``onceonly.lag.group`` where the query is, in a thread beside it. Driver; no Spark.

What is committed is read in the decision log: the newest epoch that is decided and has its receipt. So the group is
never ahead, whoever is killed when. The group is read before the log, so what stands ahead of the log then shows that
the checkpoint was set back. A failure is told once and noted beside the log; the query never hears of it.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from onceonly import background, events
from onceonly.errors import ConfigurationError, LogError, OnceonlyError
from onceonly.guards.source import merged
from onceonly.log import lag_state, left
from onceonly.log.lag_state import LagState
from onceonly.log.opening import look
from onceonly.log.place import home_of, log_store, notes_store
from onceonly.model import LinkKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onceonly.guards.positions import Group
    from onceonly.guards.source import Source
    from onceonly.log import FileDecisionLog
    from onceonly.model import Link
    from onceonly.settings.query import QuerySettings

log = logging.getLogger("onceonly")

EVERY_S: Final = 5.0
"""Burrow looks at the last ten commits of a partition: with one an epoch of 200 ms, its window would be 2 s."""
_AGAIN_S: Final = 15.0
"""How long after a failure it is tried again, also where nothing new is decided."""
_IDLE_S_MAX: Final = 3600.0
# A process that ends does not wait longer for a broker.
_END_S = 5.0
# Of the newest epochs, as many may have been passed by, or be undecided.
_LOOKED_AT_MAX = 20


def settled(log: FileDecisionLog) -> Link | None:
    """Return the decision of the newest epoch that is committed everywhere, None where there is none in the details.

    Any process; a few reads. Raises ``LogError``, ``UnavailableError``.
    """
    newest = log.newest()
    for epoch in range(newest, max(newest - _LOOKED_AT_MAX, -1), -1) if newest is not None else ():
        chain, receipt = log.chain(epoch), log.receipt(epoch)
        if not chain:
            return None
        is_settled = receipt is not None and receipt.index == chain[-1].index
        if chain[-1].kind is LinkKind.COMMIT and is_settled:
            return chain[-1]
    return None


@dataclass(slots=True)
class _Target:
    """What is found out once in a run: the groups, and how long an offset stays in them."""

    groups: dict[str, Group] = field(default_factory=dict)
    idle_s: float = _IDLE_S_MAX

    def close(self) -> None:
        for group in self.groups.values():
            group.close()
        self.groups.clear()


class Keeper:
    """Keeps the group of one run of a query. ``planned`` gives the sources of Spark's plan, None where nobody can look.

    ``every_s`` is how often it commits at most. Begins at once; ``close`` it when the run is over.
    """

    def __init__(
        self,
        settings: QuerySettings,
        query: str,
        planned: Callable[[], Sequence[Source] | None],
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._settings = settings
        self._query = query
        self._planned = planned
        self._every_s = every_s
        self._sources: tuple[Source, ...] | None = None
        self._target = _Target()
        self._log: FileDecisionLog | None = None
        self._back = True
        self._told: str | None = None
        self._new, self._over = threading.Event(), threading.Event()
        self._new.set()
        self._keeping = background.begin("onceonly-lag", self._keep)
        _keepers.add(self)

    def moved(self) -> None:
        """Take note that an epoch has ended. Any thread; does not wait."""
        self._new.set()

    def end(self) -> None:
        """Commit what is new, and stop. Any thread; does not wait."""
        self._new.set()  # before the thread may see that it is over
        self._over.set()

    def close(self, within_s: float = _END_S) -> None:
        """End, and wait for it within bounds. Idempotent."""
        self.end()
        wait([self._keeping], within_s)

    # --- the thread ---------------------------------------------------------------------------------------

    def _keep(self) -> None:
        pause_s = 0.0
        try:
            while not self._over.is_set():
                self._new.wait(pause_s)
                self._new.clear()
                pause_s = self._target.idle_s if self._round() else _AGAIN_S
                self._over.wait(self._every_s)
            if self._new.is_set():
                self._round()
        finally:
            self._target.close()

    def _round(self) -> bool:
        """Bring the group to where the query is; say whether it is there."""
        try:
            self._post()
        except OnceonlyError as error:
            self._tell(error)
            return False
        except Exception as error:  # noqa: BLE001  the query must not fail because of its picture
            self._tell(ConfigurationError(f"{type(error).__name__}: {error}", next_step="report this"))
            return False
        return True

    def _post(self) -> None:
        from onceonly.guards import positions

        standing = self._newest()
        if standing is None:
            return  # its first epoch is to come
        read = [
            (self._group(source), list(places))
            for source, places in positions.positions(self._reads(), standing.barrier)
        ]
        before = [group.read(places) for group, places in read]
        for stood in before:
            positions.require_own(stood, self._query, is_start=self._back)
        # Behind the groups: what stands there was settled before it was put there.
        standing = self._newest() or standing
        places = [each for _, each in positions.positions(self._reads(), standing.barrier)]
        for (group, _), now, stood in zip(read, places, before, strict=False):
            ahead = [place for place, at in now.items() if place in stood and at < stood[place].at]
            if ahead and self._back:
                log.warning(
                    "Query %s: the group %s stood ahead of the checkpoint, which was set back to chk-%s; it goes back, "
                    "too.", self._query, self._settings.lag_group, standing.epoch,
                )  # fmt: skip
            chosen = positions.post(
                group, now, stood, query=self._query, epoch=standing.epoch, back=self._back
            )
            events.record(
                "lag.posted",
                actor="driver",
                query=self._query,
                epoch=standing.epoch,
                partitions=len(chosen),
            )
        self._back = False
        self._well()

    def _newest(self) -> Link | None:
        """Return the newest epoch that is decided and committed, of a log that is this query's and at home here."""
        if self._log is None:
            try:
                found, named = look(self._settings.checkpoint)
            except LogError:
                return None  # its planner makes it; one that is damaged stops the query by name
            where = self._settings.checkpoint
            left.require_home(
                named, found, log_store(where), query=self._query, address=home_of(where), path=where
            )
            self._log = found
        return settled(self._log)

    def _reads(self) -> tuple[Source, ...]:
        if self._sources is None:
            given = dict(self._settings.source)
            self._sources = merged(self._planned(), given, self._settings.source_format)
        if self._sources is None:
            raise ConfigurationError(
                "what the query's sources are is not seen here",
                next_step="give onceonly.source.format=kafka and onceonly.source.option.kafka.bootstrap.servers",
            )
        return self._sources

    def _group(self, source: Source) -> Group:
        from onceonly.guards.positions import Group

        servers = source.options.get("kafka.bootstrap.servers", "")
        if servers not in self._target.groups:
            group = self._target.groups[servers] = Group(self._settings.lag_group, source)
            self._target.idle_s = min(group.retention_s() / 4, self._target.idle_s)
        return self._target.groups[servers]

    # --- telling ------------------------------------------------------------------------------------------

    def _tell(self, error: OnceonlyError) -> None:
        if self._told == error.what:
            return
        self._told = error.what
        log.warning(
            "Query %s: the group %s does not show its lag: %s. Next: %s.",
            self._query, self._settings.lag_group, error.what.rstrip("."), error.next_step,
        )  # fmt: skip
        events.record("lag.failed", actor="driver", query=self._query, message=error.what)
        self._note(error.what, error.next_step)

    def _well(self) -> None:
        if self._told == "":
            return
        if self._told:
            log.info("Query %s: the group %s shows its lag again.", self._query, self._settings.lag_group)
        self._told = ""
        self._note("", "")

    def _note(self, told: str, next_step: str) -> None:
        state = LagState(
            group=self._settings.lag_group, told=told, next_step=next_step, since=events.stamp().at
        )
        lag_state.write(notes_store(self._settings.checkpoint), state)


_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _end_all() -> None:
    """Commit what the runs of this process have decided last, as it ends in order; does not wait long."""
    keepers = list(_keepers)
    for each in keepers:
        each.end()
    deadline = time.monotonic() + _END_S
    for each in keepers:
        each.close(max(0.0, deadline - time.monotonic()))


atexit.register(_end_all)
