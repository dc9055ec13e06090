"""One process at a time, where the file system has locks: the kernel takes them away from the dead.

Where it has none, two writers still cannot write the same segment; the lock only says it sooner, and by name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from typing import TYPE_CHECKING, Self

from onceonly.errors import ConfigurationError, UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 10.0
"""How long a start waits for the process of the run before, which Spark has just ended."""
_POLL_S = 0.05
_BUSY = frozenset({errno.EACCES, errno.EAGAIN})
_WORDS_MAX = 200


class Hold:
    """The sign that this process writes, or reads, a journal. Dropped by ``close``, and when the process ends."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path | None, *, refusal: str, next_step: str, wait_s: float = WAIT_S) -> Self:
        """Take the lock; without a ``path`` there is none.

        Raises ``ConfigurationError`` where another holds it, ``UnavailableError`` where its file cannot be opened.
        """
        if path is None:
            return cls(None)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnavailableError(
                f"the lock {path} could not be opened: {os.strerror(error.errno or 0)}",
                next_step="see to this folder (permissions, space, mount) and start again",
            ) from error
        try:
            _await(descriptor, wait_s, refusal, next_step)
        except BaseException:  # an interrupt, too: it may have the lock by now
            os.close(descriptor)
            raise
        with contextlib.suppress(OSError):  # the words are for people
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{socket.gethostname()} process {os.getpid()}".encode(), 0)
        return cls(descriptor)

    def close(self) -> None:
        """Let it go. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def holder_of(path: Path) -> str:
    """Say who holds a lock, for people; empty where nobody does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return "" if _locked(descriptor) else _holder(descriptor)
    finally:
        os.close(descriptor)


def _await(descriptor: int, wait_s: float, refusal: str, next_step: str) -> None:
    deadline = time.monotonic() + wait_s
    while not _locked(descriptor):
        if time.monotonic() > deadline:
            raise ConfigurationError(f"{refusal} ({_holder(descriptor)})", next_step=next_step)
        time.sleep(_POLL_S)


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, _WORDS_MAX, 0).decode(errors="replace") or "another process"


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # No locks here: the numbers of segments keep writers apart.
        return error.errno not in _BUSY
    return True
