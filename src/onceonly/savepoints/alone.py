"""Who makes a checkpoint at a place: one command at a time, as what one has finished may run when another goes on.

In a folder a lock of the kernel's tells, which takes it away from the dead. On a store, and where a file system has no
locks, it is a claim that is put if absent, ``making.1.json``; who goes on for a maker that is gone puts the next
number. The highest counts, and its maker looks once more before what could not be taken back. It is safe to remove one
by hand: its maker stops then.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from onceonly import events
from onceonly.durable.machine import boot
from onceonly.durable.sealed import UNREADABLE, decoder
from onceonly.errors import ConfigurationError
from onceonly.log.heartbeat import lives
from onceonly.model import Stamp, seconds_of
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceonly.stores.port import Store

_BUSY: Final = frozenset({errno.EACCES, errno.EAGAIN})
_NEXT: Final = "wait until it has ended, and look what came of it"


def _room() -> str:
    """Return what process ids of this process' neighbours count in: a boot, and a namespace; empty if nobody tells."""
    life = boot()
    try:
        return life and f"{life} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Who makes a checkpoint, and since when; ``room`` says what its process id counts in."""

    stamp: Stamp = field(default_factory=events.stamp)
    room: str = field(default_factory=_room)
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended: only of a process of this very room."""
        return bool(self.room) and self.room == _room() and not lives(self.stamp.pid)

    @property
    def told(self) -> str:
        age_s = max(0.0, seconds_of(events.stamp()) - seconds_of(self.stamp))
        return f"process {self.stamp.pid} on {self.stamp.host}, which began {age_s:.0f} s ago"


@contextlib.contextmanager
def alone(store: Store, folder: Path | None, mark: str, to: str) -> Iterator[Callable[[], None]]:
    """Be the only one who makes a checkpoint at a place; yield what sees that this is so still, and raises.

    ``mark`` is a file that is there until one is finished. Raises ``ConfigurationError`` where another one is at it, or
    has just finished.
    """
    with contextlib.ExitStack() as stack:
        if folder is not None and _lock(stack, folder / mark, to):
            yield lambda: None
            return
        name, own = _claim(store, to)

        def require() -> None:
            if store.get(name) != own or store.get(_name(_number(name) + 1)) is not None:
                raise ConfigurationError(
                    f"another process has begun to make a checkpoint at {to}, or somebody has removed "
                    f"{store.where(name)}: this one has stopped",
                    next_step=_NEXT,
                )

        try:
            yield require
        except BaseException:  # an interrupt, too, has ended it
            with contextlib.suppress(Exception):
                if store.get(name) == own:
                    store.delete(name)
            raise


def clear(store: Store) -> None:
    """Take away the claims at a place, once its mark is gone. Idempotent."""
    for name in _standing(store):
        store.delete(name)


def _lock(stack: contextlib.ExitStack, mark: Path, to: str) -> bool:
    """Lock the mark; say whether there are locks here. Raises ``ConfigurationError``."""
    try:
        descriptor = os.open(mark, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ConfigurationError(
            f"{to} is no empty place: another process has made a checkpoint there at this moment",
            next_step="name a place that is empty, or not there yet",
        ) from None
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            raise ConfigurationError(
                f"another process is making a checkpoint at {to} at this moment", next_step=_NEXT
            ) from None
        return False
    return True


def _claim(store: Store, to: str) -> tuple[str, bytes]:
    """Put a claim; return its name and what it holds. Raises ``ConfigurationError`` where another one counts."""
    own = msgspec.json.encode(Maker())
    standing = _standing(store)
    found = store.get(standing[-1]) if standing else None
    name = _name(len(standing) + 1)
    if found is None or ((maker := _read(found)) is not None and maker.is_gone):
        found = put_once(store, name, own)
        if found == own:
            return name, own
    maker = _read(found or b"")
    raise ConfigurationError(
        f"another process is making a checkpoint at {to} at this moment{f': {maker.told}' if maker else ''}",
        next_step=f"{_NEXT}; if it was killed, remove {store.where(standing[-1] if standing else name)}, and run this "
        "again",
    )


def _standing(store: Store) -> list[str]:
    return list(takewhile(lambda name: store.get(name) is not None, map(_name, count(1))))


def _read(data: bytes) -> Maker | None:
    try:
        return decoder(Maker).decode(data)
    except UNREADABLE:
        return None


def _name(number: int) -> str:
    return f"making.{number}.json"


def _number(name: str) -> int:
    return int(name.split(".")[1])
