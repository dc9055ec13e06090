"""Who works on a checkpoint that is on a store without locks: an object for each process, written anew now and then.

``onceonly/heartbeats/{host}-{process}-….json``. For people, and for tools that would rather not interfere: it is told
by clocks, and nothing of the protocol's safety rests on it. A process that was killed is taken for alive for up to
``GONE_S`` seconds more, unless it was of this very host. The folder is not called as the lock of a checkpoint in a file
system is, as a checkpoint may be copied from the one to the other.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import threading
from concurrent.futures import wait
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from onceonly import background, events
from onceonly.durable.sealed import decoder
from onceonly.errors import OnceonlyError
from onceonly.log.place import log_store

if TYPE_CHECKING:
    from concurrent.futures import Future

    from onceonly.stores.port import RewritableStore

ALIVE: Final = "heartbeats/"
EVERY_S: Final = 20.0
GONE_S: Final = 90.0
# What nobody has written anew for so long is cleared away by the next to come.
_OLD_S = 86_400.0
# A planner holds it for each plan, and lets go of it between two.
_LINGER_S = 60.0
# A process that ends does not wait longer for a store.
_END_S = 2.0


class Beat(msgspec.Struct, frozen=True):
    """What an object says."""

    host: str
    process: int
    actor: str
    at: str

    @property
    def age_s(self) -> float:
        """For how long nothing was heard, by this machine's clock; never below 0."""
        with contextlib.suppress(ValueError):
            return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(self.at)).total_seconds())
        return _OLD_S


class Heart:
    """The thread of one process for one checkpoint. Beats from the first use until some time after the last."""

    def __init__(self, store: RewritableStore, actor: str) -> None:
        self._store = store
        self._actor = actor
        host = re.sub(r"[^A-Za-z0-9.-]", "-", events.stamp().host)
        self.name = f"{ALIVE}{host}-{os.getpid()}-{secrets.token_hex(4)}.json"
        self.is_left = False
        """It was given back at once, and its object may stand until the store has taken it away."""
        self._users = 0
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._beats = self._is_over = False
        self._beating: Future[None] | None = None

    def take(self, store: RewritableStore) -> None:
        """Begin to beat, or go on; by the store as it is reached now, as a later job may log in anew. Does not wait."""
        with self._lock:
            self._store = store
            self._users += 1
            self.is_left = False
            if not self._beats and not self._is_over:
                self._beats = True
                self._beating = background.begin("onceonly-alive", self._beat, self._beating)

    def give_back(self, *, at_once: bool) -> None:
        """Stop, now or after a while, unless somebody takes it again."""
        with self._lock:
            self._users -= 1
            self.is_left = at_once and self._users == 0
        if at_once:
            self._changed.set()

    def end(self) -> Future[None] | None:
        """Stop for good, whoever uses it; give what is done when the object is gone, None where there never was one."""
        with self._lock:
            self._is_over = True
            self._changed.set()
            return self._beating

    def _beat(self, before: Future[None] | None) -> None:
        if before is not None:
            wait([before])  # it may be taking the object away yet, which has the same name
        with contextlib.suppress(OnceonlyError):
            self._clear()
        idle_s = 0.0
        while True:
            with self._lock:
                unused = self._users == 0 and (self._changed.is_set() or idle_s >= _LINGER_S)
                if unused or self._is_over:
                    self._beats = False
                    break
                idle_s = 0.0 if self._users else idle_s + EVERY_S
                self._changed.clear()
            now = events.stamp()
            beat = Beat(host=now.host, process=now.pid, actor=self._actor, at=now.at)
            with contextlib.suppress(OnceonlyError):  # for people: the query goes on
                self._store.replace(self.name, msgspec.json.encode(beat))
            self._changed.wait(EVERY_S)
        with contextlib.suppress(OnceonlyError):
            self._store.delete(self.name)

    def _clear(self) -> None:
        """Remove what processes of long ago have left."""
        for name in self._store.list_names(ALIVE):
            beat = _read(self._store, name)
            if beat is None or beat.age_s > _OLD_S:
                self._store.delete(name)


class Heartbeat:
    """One use of a checkpoint; fulfils what ``Presence`` does."""

    held = True

    def __init__(self, heart: Heart, store: RewritableStore, *, lingers: bool) -> None:
        self._heart: Heart | None = heart
        self._lingers = lingers
        heart.take(store)

    def close(self) -> None:
        """Give it back. Idempotent; does not wait."""
        heart, self._heart = self._heart, None
        if heart is not None:
            heart.give_back(at_once=not self._lingers)


_lock = threading.Lock()
_hearts: dict[tuple[int, str], Heart] = {}


def hold(checkpoint: str, *, actor: str) -> Heartbeat:
    """Show that this process works on a checkpoint. Never fails and never waits."""
    key, store = (os.getpid(), checkpoint), log_store(checkpoint)
    with _lock:
        if key not in _hearts:
            _hearts[key] = Heart(store, actor)
        heart = _hearts[key]
    # Planners and committers come back with the next epoch, and are soon gone without them.
    return Heartbeat(heart, store, lingers=actor in {"planner", "committer"})


def end() -> None:
    """Take away what this process shows of itself, as it ends in order. Idempotent, does not wait long."""
    ended = [heart.end() for (process, _), heart in list(_hearts.items()) if process == os.getpid()]
    wait([each for each in ended if each is not None], timeout=_END_S)


atexit.register(end)


def present(checkpoint: str) -> str | None:
    """Say who works on a checkpoint, None where nobody does. Any process; changes nothing.

    Raises ``UnavailableError``.
    """
    store = log_store(checkpoint)
    here = events.stamp().host
    own = {
        each.name for (process, _), each in list(_hearts.items()) if process == os.getpid() and each.is_left
    }
    found: list[str] = []
    for name in store.list_names(ALIVE):
        beat = _read(store, name) if name not in own else None
        if beat and beat.age_s < GONE_S and not (beat.host == here and not lives(beat.process)):
            found.append(
                f"host {beat.host}, process {beat.process} ({beat.actor}), heard of {beat.age_s:.0f} s ago"
            )
    # The driver's process outlives planners and committers, and comes first.
    return min(found, key=lambda each: "(driver)" not in each, default=None)


def _read(store: RewritableStore, name: str) -> Beat | None:
    try:
        return decoder(Beat).decode(store.get(name) or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def lives(pid: int) -> bool:
    """Say whether a process of this machine is there. Anywhere."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
