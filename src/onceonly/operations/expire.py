"""Expiring old epochs of file sinks by hand: where they are, and what of them is due. Any process, beside a run."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.operations import records
from onceonly.operations.find import find
from onceonly.operations.given import Given
from onceonly.operations.sinks import links, uses
from onceonly.sinks.files.checks import read_token
from onceonly.sinks.files.manifests import expiry
from onceonly.sinks.files.manifests.reading import has_written, manifest_folders
from onceonly.sinks.files.paths import HIDDEN, manifest_folder, target_path
from onceonly.sinks.files.store import store_of, unavailable
from onceonly.stores.opened import address_of
from onceonly.words import n

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.operations.find import Checkpoint
    from onceonly.operations.records import Book, Entry

_FILES = "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The manifests of one sink of one query in a target. ``before`` is an epoch that the log still needs.

    ``book`` is where it is recorded what was expired.
    """

    target: Path
    folder: Path
    query: str
    sink: str
    book: Book
    before: int | None = None


def places(location: str) -> list[Place]:
    """Find what an address leads to: a target with all that wrote to it, or checkpoints with their own file sinks.

    Raises ``ConfigurationError`` where it leads to neither, ``LogError`` and ``UnavailableError`` for what cannot be
    read.
    """
    # A checkpoint may be where no files can be put.
    with contextlib.suppress(ConfigurationError):
        target = target_path(location)
        store = store_of(target)
        if has_written(store, target):
            book = records.inside(address_of(location, what="the target").below(HIDDEN))
            return [
                Place(target=target, folder=folder, query=query, sink=sink, book=book)
                for folder, query, sink in manifest_folders(store, target)
            ]
    found = find(location)
    for problem in found.problems:
        if not problem.foreign:
            raise problem.error
    several = [place for checkpoint in found.checkpoints for place in _of(checkpoint)]
    if not several:
        raise ConfigurationError(
            f"no query with a checkpoint in {location} has a file sink",
            next_step="name the checkpointLocation of a query that writes files, or the folder that it writes to",
        )
    return several


def look(place: Place, *, older_s: float, grace_s: float) -> expiry.Due:
    """See what is due; changes nothing."""
    store = store_of(place.target)
    return expiry.due(
        store, place.target, place.folder, older_s=older_s, grace_s=grace_s, before=place.before
    )


def carry_out(place: Place, found: expiry.Due, *, because: str = "") -> tuple[expiry.Due, Entry | None]:
    """Do it; return what was done, and its record, where anything was to do. Killed anywhere, it is called again."""
    if not (found.expiring or found.removing):
        return expiry.carry_out(store_of(place.target), place.target, place.folder, found), None
    before = (
        f"{n(len(found.expiring), 'epoch was')} due to leave the manifests of {place.target}, and the files of "
        f"{n(len(found.removing), 'epoch')} to be deleted"
    )
    with records.kept(place.book, command="files expire", because=because, before=before) as entry:
        done = expiry.carry_out(store_of(place.target), place.target, place.folder, found)
        files = sum(len(old.files) for old in done.removing)
        entry.after = (
            f"{n(len(done.expiring), 'epoch')} left the manifests of {place.sink}, {n(files, 'file')} deleted"
        )
    return done, entry


def _of(checkpoint: Checkpoint) -> list[Place]:
    checkpoint.require_home()
    noted = links(checkpoint)
    before = _unsettled(checkpoint)
    book = records.of_checkpoint(checkpoint)
    several = []
    for name, use in sorted(uses(checkpoint, Given()).items()):
        if use.sink != _FILES or "path" not in use.options:
            continue
        target = target_path(use.options["path"])
        tokens = [link.settings[name].get("token") for link in noted if name in link.settings]
        _refuse_other_target(target, tokens[0] if tokens else None)
        folder = manifest_folder(target, checkpoint.query, name)
        several.append(
            Place(target=target, folder=folder, query=checkpoint.query, sink=name, book=book, before=before)
        )
    return several


def _refuse_other_target(target: Path, token: str | int | None) -> None:
    try:
        found = read_token(store_of(target), target)
    except OSError as error:
        raise unavailable(f"{target} could not be read", error) from error
    if token is not None and found != token:
        raise ConfigurationError(
            f"{target} is not the folder that the query wrote to; nothing was removed",
            next_step="mount it, or name the folder itself instead of the checkpoint",
        )


def _unsettled(checkpoint: Checkpoint) -> int | None:
    """Return the oldest epoch that is decided and not known to be committed: its files are still to come."""
    oldest = None
    for epoch in reversed(checkpoint.log.epochs()):
        if not checkpoint.log.chain(epoch) or checkpoint.log.receipt(epoch) is not None:
            # A log goes on only when an epoch is settled.
            break
        oldest = epoch
    return oldest


def as_json(place: Place, done: expiry.Due) -> dict[str, object]:
    """Return the keys that a machine reads."""
    return {
        "target": str(place.target),
        "query": place.query,
        "sink": place.sink,
        "epochs": [
            {
                "epoch": old.epoch,
                "step": step,
                "files": len(old.files),
                "rows": old.rows,
                "bytes": old.bytes,
                "age_s": old.age_s,
            }
            for step, old in steps(done)
        ],
    }


def steps(done: expiry.Due) -> list[tuple[str, expiry.Old]]:
    """Return each epoch with its last step, oldest first: ``removed``, ``waiting`` or ``expired``."""
    found: dict[int, tuple[str, expiry.Old]] = {}
    for step, several in (("expired", done.expiring), ("waiting", done.waiting), ("removed", done.removing)):
        for old in several:
            before = found.get(old.epoch)
            found[old.epoch] = (step, before[1] if before else old)
    return [found[epoch] for epoch in sorted(found)]
