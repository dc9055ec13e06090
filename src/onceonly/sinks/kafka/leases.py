"""Which process has which transactional id: a lock that ends with its process, on a file that tells its last use.

Kafka keeps each id for days, and Spark ends a worker that has been idle for a minute. So ids belong to the machine, not
to a worker: whoever needs one takes the first that nobody has and that was not used in this epoch. By protocol every
handle of an earlier epoch is resolved then. Ids are those of one run: what an older run lists can never be a newer
one's.

A process that sleeps keeps its locks, and what a dead one has sent is at its broker. After a restart of the machine, or
in another container, other ids are drawn: the file may not be what was written last.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from pathlib import Path

from onceonly import durable
from onceonly.errors import ConfigurationError

try:
    import fcntl
except ImportError:  # pragma: no cover  not on Windows, where no executor of Spark's Python runs
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("onceonly")

IDS_MAX = 10_000
"""Transactional ids of one run on one machine. Kafka keeps each for days; a need for more is a leak."""

REST_EPOCHS = 100
"""So long an id is not tried again whose last transaction did not come to its end."""

_NEVER = -1
_OLD_S = 7 * 86_400.0
_NAME = "machine"


class Lease:
    """One transactional id, of this process alone until it is given back. Any thread."""

    def __init__(self, transactional_id: str, file: int | None, used: dict[int, int], number: int) -> None:
        self.transactional_id = transactional_id
        self._file = file
        self._used = used
        self._number = number
        self._epoch = _NEVER

    def use(self, epoch: int) -> None:
        """Note the epoch whose transaction it carries, before it carries it."""
        self._epoch = epoch
        if self._file is not None:
            os.pwrite(self._file, f"{epoch:<20}".encode(), 0)
        else:
            self._used[self._number] = max(epoch, self._used.get(self._number, _NEVER))

    def rest(self) -> None:
        """Keep it from being taken for ``REST_EPOCHS``: something is wrong with it, which may pass."""
        self.use(self._epoch + REST_EPOCHS)

    def give_back(self) -> None:
        """Let others take it, in a later epoch. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class Leases:
    """The ids of one run of a query's sink on this machine. Executor; thread-safe, and so between processes.

    ``prefix`` is what they begin with, up to the run. Where no file can be locked, they belong to this process.
    """

    def __init__(self, prefix: str, root: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._used: dict[int, int] = {}
        folder = (
            root or Path(tempfile.gettempdir()) / f"onceonly-{os.getuid() if hasattr(os, 'getuid') else ''}"
        )
        self._folder: Path | None = (
            folder / hashlib.sha256((prefix + durable.boot()).encode()).hexdigest()[:32]
        )
        token = uuid.uuid4().hex[:12]
        try:
            token = _machine(folder, self._folder, token)
        except OSError as error:
            self._folder = None
            log.warning(
                "Transactional ids of this worker are not used again once it ends: %s cannot be locked (%s).",
                folder,
                error,
            )
        self._prefix = f"{prefix}{token}."

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
        name = f"{self._prefix}{number}"
        if self._folder is None:
            if self._used.get(number, _NEVER) >= epoch:
                return None
            lease = Lease(name, None, self._used, number)
            lease.use(epoch)
            return lease
        file = os.open(self._folder / str(number), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            used = int(os.pread(file, 20, 0) or _NEVER)
        except BlockingIOError:
            used = epoch
        if used >= epoch:
            os.close(file)
            return None
        lease = Lease(name, file, self._used, number)
        lease.use(epoch)
        return lease


def _machine(root: Path, folder: Path, token: str) -> str:
    """Make the folder of the locks; give the token that all processes which share it have. Raises ``OSError``."""
    if fcntl is None:
        raise OSError("no flock here")
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        raise PermissionError(f"{root} is somebody else's")
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    own = folder / f".{token}"
    own.write_text(token, encoding="ascii")
    with contextlib.suppress(FileExistsError):
        os.link(own, folder / _NAME)
    own.unlink()
    os.utime(folder)
    if is_new:
        _remove_old(root)
    return (folder / _NAME).read_text(encoding="ascii")


def _remove_old(root: Path) -> None:
    """Remove what runs have left whose ids Kafka has forgotten."""
    for folder in root.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _OLD_S:
                shutil.rmtree(folder)
