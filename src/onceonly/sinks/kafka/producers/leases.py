"""Which process has which transactional id: a lock that ends with its process, on a file that tells id and last use.

Kafka keeps each id for days, and Spark ends a worker that has been idle for a minute. So ids belong to the machine, not
to a worker. Whoever needs one takes the first whose lock is free and that was not used in this epoch. When an epoch is
written, every handle of the epochs before it is resolved, so an id that they used is free once its lock is. Each run
has ids of its own, so an older run never finds one of a newer run among its own.

A file that is made draws an id of its own. So a lock whose file was removed, by a cleaner of temporary files perhaps,
stays the only one on its id: whoever makes the file anew has another. A folder that is used is kept young.

A process that sleeps keeps its locks, and what a dead one has sent is at its broker. After a restart of the machine, or
in another container, other ids are drawn: the file may not be what was written last.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.durable.machine import boot
from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    import fcntl
except ImportError:  # pragma: no cover  not on Windows, where no executor of Spark's Python runs
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("onceonly")

IDS_MAX = 10_000
"""Transactional ids of one run on one machine. Kafka keeps each for days; a need for more is a leak."""

REST_EPOCHS = 100
"""How long an id is not tried again whose last transaction did not come to its end."""

_NEVER = -1
_OLD_S = 7 * 86_400.0
_TOUCH_S = 3600.0
# What a file tells: the epoch of the last use, then what is random in the id.
_EPOCH_BYTES = 20
_TOKEN_BYTES = 12


class Lease:
    """One transactional id, of this process alone until it is given back. Any thread."""

    def __init__(
        self, transactional_id: str, note: Callable[[int], None], let_go: Callable[[], None]
    ) -> None:
        self.transactional_id = transactional_id
        self._note = note
        self._let_go: Callable[[], None] | None = let_go
        self._epoch = _NEVER

    def use(self, epoch: int) -> None:
        """Note the epoch whose transaction it carries, before it carries it."""
        self._epoch = epoch
        if self._let_go is not None:
            self._note(epoch)

    def rest(self) -> None:
        """Keep it from being taken for ``REST_EPOCHS``: something is wrong with it, which may pass."""
        self.use(self._epoch + REST_EPOCHS)

    def give_back(self) -> None:
        """Let others take it, in a later epoch. Idempotent."""
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            let_go()


class Leases:
    """The ids of one run of a query's sink on this machine. Executor; thread-safe, and so between processes.

    ``prefix`` is what they begin with, up to the run. Where no file can be locked, they belong to this process.
    """

    def __init__(self, prefix: str, root: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._prefix = prefix
        # Where nothing can be locked, ids are this process's: those that it has, and the epochs of their last uses.
        self._token = _new_token()
        self._held: set[int] = set()
        self._used: dict[int, int] = {}
        self._root = (
            root or Path(tempfile.gettempdir()) / f"onceonly-{os.getuid() if hasattr(os, 'getuid') else ''}"
        )
        self._folder: Path | None = self._root / hashlib.sha256((prefix + boot()).encode()).hexdigest()[:32]
        self._touched = time.monotonic()
        try:
            _make(self._root, self._folder)
        except OSError as error:
            self._go_without(error)

    def claim(self, epoch: int) -> Lease:
        """Take an id for a transaction of ``epoch``: its last one belongs to an earlier, hence resolved, epoch."""
        with self._lock:
            for number in range(IDS_MAX):
                lease = self._claim(number, epoch)
                if lease is not None:
                    return lease
        raise ConfigurationError(
            f"Epoch {epoch} needs more than {IDS_MAX} transactions on one machine ({self._prefix}*).",
            next_step="use fewer partitions before the sink, for instance with coalesce",
        )

    def _claim(self, number: int, epoch: int) -> Lease | None:
        """Take the id of a number; None where somebody has it, or it was used in this epoch."""
        file = self._open(number)
        if file is not None:
            try:
                return self._claim_locked(file, number, epoch)
            except OSError as error:
                os.close(file)
                self._go_without(error)
        if number in self._held or self._used.get(number, _NEVER) >= epoch:
            return None
        self._held.add(number)
        note, let_go = functools.partial(self._count, number), functools.partial(self._held.discard, number)
        lease = Lease(f"{self._prefix}{self._token}.{number}", note, let_go)
        lease.use(epoch)
        return lease

    def _claim_locked(self, file: int, number: int, epoch: int) -> Lease | None:
        """Take the id by the lock on its file, which is closed where it is not free. Raises ``OSError``."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            told = _use_in(file)
            used = _NEVER if told is None else told
        except BlockingIOError:
            used = epoch
        if used >= epoch:
            os.close(file)
            return None
        note, let_go = functools.partial(self._write, file), functools.partial(os.close, file)
        lease = Lease(f"{self._prefix}{_token_in(file)}.{number}", note, let_go)
        lease.use(epoch)
        return lease

    def _open(self, number: int) -> int | None:
        """Open the file of a number, and make its folder again where somebody has removed it; None where none opens."""
        if self._folder is None:
            return None
        path = self._folder / str(number)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except (FileNotFoundError, NotADirectoryError):
            log.warning(
                "%s was removed while its query runs; it is made again, with new transactional ids.",
                self._folder,
            )
        except OSError as error:
            self._go_without(error)
            return None
        try:
            _make(self._root, self._folder)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            self._go_without(error)
            return None

    def _go_without(self, error: OSError) -> None:
        self._folder = None
        log.warning(
            "Transactional ids of this worker are not used again once it ends: %s cannot be locked (%s).",
            self._root,
            error,
        )

    def _count(self, number: int, epoch: int) -> None:
        self._used[number] = max(epoch, self._used.get(number, _NEVER))

    def _write(self, file: int, epoch: int) -> None:
        """Note an epoch in a file, and show now and then that the folder is used: writing to its files does not."""
        os.pwrite(file, f"{epoch:<{_EPOCH_BYTES}}".encode(), 0)
        if self._folder is None or time.monotonic() - self._touched < _TOUCH_S:
            return
        self._touched = time.monotonic()
        with contextlib.suppress(OSError):  # the next claim makes one that was removed
            os.utime(self._folder)


def _new_token() -> str:
    return uuid.uuid4().hex[:_TOKEN_BYTES]


def _use_in(file: int) -> int | None:
    """Return the epoch of the last use that a file tells; None where it tells none."""
    with contextlib.suppress(ValueError):
        return int(os.pread(file, _EPOCH_BYTES, 0))
    return None


def _token_in(file: int) -> str:
    """Return the token of a file that is locked; one that does not tell both, epoch and token, gets a new one.

    A full disk, or somebody's hand, may have left a part of it: of an id whose last use is not known, none is used.
    """
    token = os.pread(file, _TOKEN_BYTES, _EPOCH_BYTES).decode("ascii", "replace")
    if len(token) != _TOKEN_BYTES or not token.isalnum() or _use_in(file) is None:
        token = _new_token()
        os.pwrite(file, f"{_NEVER:<{_EPOCH_BYTES}}{token}".encode(), 0)
    return token


def _make(root: Path, folder: Path) -> None:
    """Make the folder of the locks, or show that it is used. Raises ``OSError``."""
    if fcntl is None:
        raise OSError("no flock here")
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        raise PermissionError(f"{root} is somebody else's")
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    os.utime(folder)
    if is_new:
        _remove_old(root)


def _remove_old(root: Path) -> None:
    """Remove what runs have left whose ids Kafka has forgotten."""
    for folder in root.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _OLD_S and not _is_held(folder):
                shutil.rmtree(folder)


def _is_held(folder: Path) -> bool:
    """Return whether some process has one of the locks in a folder. Raises ``OSError``."""
    for path in folder.iterdir():
        file = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
    return False
