"""Whether anybody works on a checkpoint: a shared lock that the kernel takes away from the dead.

Every process of a run holds a shared lock on ``onceonly/alive``; who wants to know tries an exclusive one. It is
for people and for tools that would rather not interfere; nothing of the protocol's safety rests on it, as claims
in the log tell two drivers apart (docs/adr/0005-claims.md). On stores without locks, ``heartbeat`` tells.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly.log import heartbeat
from onceonly.log.heartbeat import lives
from onceonly.log.place import FOLDER
from onceonly.stores.opened import address_of, folder_of

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.log.heartbeat import Heartbeat

log = logging.getLogger("onceonly")

NAME = "alive"
# A look at the lock holds it for microseconds; who waits longer goes without.
_TRIES = 50
_WAIT_S = 0.01
# Whoever comes when the list is longer is not named in it: planners come and go for as long as a query runs.
_SIZE_MAX = 4096
_BUSY = frozenset({errno.EACCES, errno.EAGAIN})
_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Presence:
    """The sign that this process works on a checkpoint. Driver's processes; one for each use of a checkpoint.

    Dropped by ``close``, and by the kernel when the process ends in whatever way. A child that is forked off
    does not hold it.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        _held.add(self)

    @classmethod
    def hold(cls, checkpoint: str, *, actor: str = "driver") -> Presence | Heartbeat:
        """Take the lock in the log of a checkpoint, and write down who holds it. Idempotent for each process.

        Never fails and never waits long: where the file system has no such locks, or there is no log yet,
        the presence is an empty one (``held`` is false).
        """
        folder = folder_of(address_of(checkpoint))
        if folder is None:
            return heartbeat.hold(checkpoint, actor=actor)
        path = folder / FOLDER / NAME
        descriptor: int | None = None
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            _share(descriptor)
        except OSError as error:
            log.debug("%s could not be locked: %s", path, error)
            if descriptor is not None:
                os.close(descriptor)
            return cls(None)
        with contextlib.suppress(OSError):  # the words are for people; the lock is what counts
            line = f"{socket.gethostname()} {os.getpid()} {actor}\n".encode()
            told = os.pread(descriptor, 2 * _SIZE_MAX, 0)
            if len(told) < _SIZE_MAX and line not in told:
                os.write(descriptor, line)
        return cls(descriptor)

    @property
    def held(self) -> bool:
        """Whether the lock is really held."""
        return self._descriptor is not None

    def close(self) -> None:
        """Give the lock back. Idempotent."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _forked(self) -> None:
        """Let go in a forked child, which shares the lock with its parent: closing leaves it to the parent."""
        descriptor, self._descriptor = self._descriptor, None
        self._lock = threading.Lock()
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


_held: weakref.WeakSet[Presence] = weakref.WeakSet()


def present(checkpoint: str) -> str | None:
    """Say who works on a checkpoint ("host spark-1, process 4711 (driver)"), None where nobody does.

    Any process; leaves nothing locked and changes nothing. Raises ``UnavailableError`` where it cannot be told.
    """
    folder = folder_of(address_of(checkpoint))
    if folder is None:
        return heartbeat.present(checkpoint)
    path = folder / FOLDER / NAME
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot_tell(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _BUSY:
            raise _cannot_tell(path, error) from error
        return _describe(os.read(descriptor, 2 * _SIZE_MAX).decode(errors="replace"))
    finally:
        os.close(descriptor)
    return None


def _open(path: Path) -> int:
    """Open the lock to look at it. Raises ``OSError``."""
    try:
        # NFS makes an exclusive lock a lock for writing, which wants a descriptor that can write.
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _share(descriptor: int) -> None:
    """Take the shared lock; the first to come clears the list. Raises ``OSError``."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
    for attempt in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt == _TRIES - 1:
                raise
            time.sleep(_WAIT_S)
        else:
            return


def _describe(text: str) -> str:
    """Name the holders that may still live; of this host only those that do."""
    here = socket.gethostname()
    found: list[str] = []
    for line in text.splitlines():
        host, _, rest = line.partition(" ")
        pid, _, actor = rest.partition(" ")
        if pid.isdecimal() and not (host == here and not lives(int(pid))):
            found.append(f"host {host}, process {pid} ({actor})")
    # The driver's process outlives planners and committers, and comes first.
    found.sort(key=lambda entry: "(driver)" not in entry)
    return found[0] if found else "a process that is not named"


def _cannot_tell(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"it cannot be told whether a run is alive: {path}: {error.strerror}",
        next_step="make sure yourself that no run works on this checkpoint",
    )


def _let_go() -> None:
    for presence in list(_held):
        presence._forked()  # noqa: SLF001  of this very module


os.register_at_fork(after_in_child=_let_go)
