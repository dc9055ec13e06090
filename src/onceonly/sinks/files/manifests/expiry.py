"""Old epochs: taken out of the manifests, and their files deleted a while later. Driver, or an operator's command.

In a durable order, each step repeatable: a mark says up to which epoch all have *expired*, and readers by the manifests
no longer see them. Once that mark is as old as the grace time, which is for readers that had listed the files before,
the files go, then a second mark says so, then the manifests that hold nothing else go. A crash leaves files that the
next call removes, never a manifest that shows a file which is gone by our doing.

Epochs expire from the oldest on, whole. How old one is, its files say: the time since they were last written or
renamed, by the clock of the file system or of the store, not by this machine's, which may be wrong or be set. This is a
margin for people; nothing of exactly-once depends on it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from onceonly.errors import LogError, OnceonlyError, UnavailableError
from onceonly.sinks.files.manifests import marks
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.manifests.manifest import Counted
from onceonly.sinks.files.store import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly.sinks.files.manifests.ledger import Part
    from onceonly.sinks.files.manifests.manifest import DataFile, Manifest
    from onceonly.sinks.files.manifests.marks import Marks
    from onceonly.sinks.files.store import Files

log = logging.getLogger("onceonly")
KEPT = 2
"""How many of the newest manifest files never expire: the newest epoch tells that an older checkpoint was restored, and
the one before may be read by who has just listed it."""
GRACE_S = 3600.0
"""How long files stay once their epochs are out of the manifests. An hour: longer than most queries read."""
_FILES_MAX = 10_000
"""How many files are removed beside a query's epoch; the rest goes after the next one."""
_SECONDS_MAX = 1.0
"""How long it may take there, to the end of an old epoch."""
_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Old(Counted):
    """One epoch that expires, waits, or loses its files. ``age_s`` is None where it has expired before."""

    epoch: int
    files: tuple[DataFile, ...]
    age_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What there is to do in one folder of manifests.

    ``expiring`` leave the manifests now, ``waiting`` have left them and keep their files for now, the files of
    ``removing`` go. ``next_s`` is when the oldest epoch that stays will be old enough, None where nothing says so.
    """

    expiring: tuple[Old, ...]
    waiting: tuple[Old, ...]
    removing: tuple[Old, ...]
    next_s: float | None = None


def due(
    store: Files, target: Path, folder: Path, *, older_s: float, grace_s: float, before: int | None = None
) -> Due:
    """See what is to be done; changes nothing. ``before`` is an epoch that, with all after it, must stay.

    Raises ``UnavailableError``, ``LogError``.
    """
    try:
        ledger = Ledger(store, folder)
        known = ledger.marks()
        ripe = max(
            (
                each
                for each in known.expired
                if _idle(store, folder / marks.mark_name("expired", each)) >= grace_s
            ),
            default=marks.NONE,
        )
        expiring: list[Old] = []
        waiting: list[Old] = []
        removing: list[Old] = []
        next_s = None
        for part, manifest in _oldest(ledger, known):
            if manifest.epoch <= known.expired_to:
                (removing if manifest.epoch <= ripe else waiting).append(_old(manifest))
                continue
            if before is not None and manifest.epoch >= before:
                break
            age = _age(store, target, folder / part.name, manifest)
            if age < older_s:
                next_s = older_s - age
                break
            expiring.append(_old(manifest, age))
        # Without a grace time, what expires now goes at once.
        if grace_s <= 0:
            removing += expiring
        return Due(expiring=tuple(expiring), waiting=tuple(waiting), removing=tuple(removing), next_s=next_s)
    except OSError as error:
        raise unavailable(f"what is old in {folder} could not be looked up", error) from error


def carry_out(
    store: Files,
    target: Path,
    folder: Path,
    found: Due,
    *,
    files_max: int | None = None,
    seconds_max: float | None = None,
) -> Due:
    """Do what is due, in the durable order; return what was done. Idempotent, also beside others who do the same.

    ``files_max`` and ``seconds_max`` bound how many files are removed: whole epochs until there are so many, or so much
    time is over. A file that somebody took away is no error; one with another length than was listed is somebody
    else's, and stays.
    """
    began = time.monotonic()
    try:
        if found.expiring:
            marks.put(store, folder, "expired", found.expiring[-1].epoch)
        removed: list[Old] = []
        count = 0
        folders: set[Path] = set()
        for old in found.removing:
            if files_max is not None and count >= files_max:
                break
            if seconds_max is not None and removed and time.monotonic() - began > seconds_max:
                break
            for file in old.files:
                place = _place(target, file, folder)
                if store.size(place) == file.bytes:
                    store.delete(place)
                folders.add(place.parent)
                count += 1
            removed.append(old)
        for each in sorted(folders):
            # Gone with what was in it: a reader's doing.
            with contextlib.suppress(FileNotFoundError):
                store.sync_folder(each)
        ledger = Ledger(store, folder)
        if removed:
            marks.put(store, folder, "removed", removed[-1].epoch)
        known = ledger.marks()
        ledger.drop(known.removed_to)
        marks.clear(store, folder, known)
        return Due(expiring=found.expiring, waiting=found.waiting, removing=tuple(removed))
    except OSError as error:
        raise unavailable(
            f"old epochs in {folder} could not be removed ({error.filename or target}); the next call goes on",
            error,
        ) from error


class Retention:
    """The setting of a sink: expires what is older, now and then, after an epoch is complete. Driver, one a sink."""

    def __init__(self, store: Files, target: Path, *, older_s: float, grace_s: float = GRACE_S) -> None:
        self._store = store
        self._target = target
        self._older_s = older_s
        self._grace_s = grace_s
        self._next = 0.0

    def look(self, folder: Path, epoch: int) -> None:
        """Do what is due now that ``epoch`` is complete, whose files stay. Never raises: the next call goes on."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PAUSE_S
        try:
            found = due(
                self._store, self._target, folder, older_s=self._older_s, grace_s=self._grace_s, before=epoch
            )
            done = carry_out(
                self._store, self._target, folder, found, files_max=_FILES_MAX, seconds_max=_SECONDS_MAX
            )
        except OnceonlyError as error:
            log.warning(
                "Old epochs of %s were not removed, and the next try goes on: %s", self._target, error
            )
            return
        if len(done.removing) < len(found.removing):
            self._next = now  # else a query with many files would be ahead for ever
        elif not (found.waiting or found.expiring or found.removing) and found.next_s is not None:
            # Until then there is nothing to be read.
            self._next = now + max(found.next_s, _PAUSE_S)


def _oldest(ledger: Ledger, known: Marks) -> Iterator[tuple[Part, Manifest]]:
    """Yield the manifests that have files, oldest first, but for the newest manifest files that have not expired."""
    parts = ledger.standing()
    spared = {part for part in parts[-KEPT:] if part.last > known.expired_to}
    seen = marks.NONE
    for part in parts:
        if part in spared:
            return
        several = ledger.after(part, known.removed_to)
        if several is None:
            raise UnavailableError(
                f"{part.name} was merged while it was read", next_step="try again: nothing was changed"
            )
        for manifest in several:
            # Two merged files may overlap.
            if manifest.epoch > seen:
                seen = manifest.epoch
                yield part, manifest


def _old(manifest: Manifest, age_s: float | None = None) -> Old:
    return Old(epoch=manifest.epoch, files=manifest.files, age_s=age_s)


def _age(store: Files, target: Path, listing: Path, manifest: Manifest) -> float:
    """Return the age of an epoch's youngest file; of its manifest where readers took them all."""
    ages = [store.idle(target / file.path) for file in manifest.files]
    there = [age for age in ages if age is not None]
    return min(there) if there else _idle(store, listing)


def _idle(store: Files, path: Path) -> float:
    """Return the seconds since something happened to a file; 0, which spares it, where it is gone."""
    return store.idle(path) or 0.0


def _place(target: Path, file: DataFile, folder: Path) -> Path:
    path = PurePosixPath(file.path)
    if path.is_absolute() or ".." in path.parts:
        raise LogError(
            f"a manifest in {folder} names {file.path}, which is no file of the target; it was not removed",
            next_step="restore the manifests of this target from a backup",
        )
    return target / path
