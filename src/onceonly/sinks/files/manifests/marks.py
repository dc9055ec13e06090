"""The marks beside the manifests of a target that say how far its epochs have expired. Any process.

``expired-{N}.mark``: the epochs up to N are no longer among what can be read; a while later their files go.
``removed-{N}.mark``: the files of the epochs up to N are gone, durably, so nobody has to look for them again. The
newest of each counts. An expired mark outlives its manifests: a manifest that another process puts or merges once more
stays out of sight.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from onceonly.sinks.files.store import Files

_MARK = re.compile(r"(expired|removed)-(\d{20})\.mark")
_TRIES = 5
NONE = -1
"""Before the first epoch."""


class Marks(NamedTuple):
    """All marks of one folder, each by its epoch; ascending."""

    expired: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()

    @property
    def expired_to(self) -> int:
        return max(self.expired, default=NONE)

    @property
    def removed_to(self) -> int:
        return max(self.removed, default=NONE)


def marks_among(names: Iterable[str]) -> Marks:
    """Read the marks among the names of a folder. Pure."""
    found: dict[str, list[int]] = {"expired": [], "removed": []}
    for match in filter(None, map(_MARK.fullmatch, names)):
        found[match[1]].append(int(match[2]))
    return Marks(tuple(sorted(found["expired"])), tuple(sorted(found["removed"])))


def mark_name(kind: str, epoch: int) -> str:
    """Name a mark. Pure."""
    return f"{kind}-{epoch:020d}.mark"


def put(store: Files, folder: Path, kind: str, epoch: int) -> None:
    """Put a mark, durably. Idempotent. Its name says everything."""
    place, data = folder / mark_name(kind, epoch), f"{kind} {epoch}\n".encode()
    for _ in range(_TRIES):
        # A query beside clears the folder of what broken-off puts left, and takes a living one's for that.
        with contextlib.suppress(FileNotFoundError):
            store.put_if_absent(place, data)
            return
    store.put_if_absent(place, data)


def lower(store: Files, folder: Path, marks: Marks, epoch: int) -> bool:
    """Let marks that go beyond an epoch end there, as what came after it is taken back; say whether there were any.

    Idempotent. At each moment an epoch whose files are gone is marked as expired.
    """
    for kind, found in (("removed", marks.removed), ("expired", marks.expired)):
        beyond = [each for each in found if each > epoch]
        if beyond and epoch > NONE:
            put(store, folder, kind, epoch)
        for each in beyond:
            store.delete(folder / mark_name(kind, each))
    return max(marks.expired_to, marks.removed_to) > epoch


def clear(store: Files, folder: Path, marks: Marks) -> None:
    """Take away the marks that newer ones have made needless. The newest of each stays."""
    for epoch in marks.expired:
        if epoch <= marks.removed_to and epoch < marks.expired_to:
            store.delete(folder / mark_name("expired", epoch))
    for epoch in marks.removed:
        if epoch < marks.removed_to:
            store.delete(folder / mark_name("removed", epoch))
