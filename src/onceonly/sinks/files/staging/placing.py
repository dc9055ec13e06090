"""Telling what became of each file of a decided transaction, and moving those that wait. Driver; any process.

The evidence is in the transaction's folder (``staged``), where no reader comes: once the folder is named *committing*,
a file that is not in it has its final name, whatever a reader has done with that since. Each step is one rename, so a
crash, or another driver at the same work, leaves a file on one side of it.

A final folder on another file system (a mount of its own) needs a copy, and that is three steps: copy under a hidden
name, durable; rename the staged file so that it names this copy; move the copy. Then the copy's absence tells.

Handles of version 1 were committed by links: their staged file stays while its final name is there. What a reader took
away of those before this version came cannot always be told, and counts as not published, as it did then.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
from typing import TYPE_CHECKING

from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.staging.staged import (
    committing,
    copied_name,
    copy_name,
    epoch_of,
    staged_name,
    token_of,
)
from onceonly.sinks.files.targets.port import UnsureError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from onceonly.sinks.files.manifests.manifest import DataFile
    from onceonly.sinks.files.prepared import Prepared
    from onceonly.sinks.files.store import Store

_TOKEN_BYTES = 6


def begin(store: Store, prepared: Prepared) -> Path | None:
    """Return the folder under its committing name; None where it has neither name. Idempotent.

    What cannot be finished is not begun: raises ``UnsureError``, and the folder keeps its name.
    """
    there, folder = prepared.staging, committing(prepared.staging)
    if store.size(there) is None:
        # Somebody began before. What is published then is told by the folder, and not read again.
        return folder if store.size(folder) is not None else None
    unfit = unpublishable(store, prepared)
    if unfit:
        raise UnsureError(unfit)
    if unfit is not None:
        store.rename_folder(there, folder)
    # Else somebody began between the two looks.
    return folder if store.size(folder) is not None else None


def unpublishable(store: Store, prepared: Prepared) -> str | None:
    """Say what keeps a transaction that waits from being begun: a temporary file is gone, or is not whole.

    Empty where nothing does; None where its folder does not have its first name any more. Only looks.
    """
    there = prepared.staging
    names = _names(store, there, prepared)
    found = ""
    for file in prepared.files:
        name = prepared.name_of(file)
        if name in names:
            found = found or _damage(store, there / name, file)
        elif not _has_content(store, prepared.target / file.path, file):
            found = (
                found
                or f"neither {prepared.target / file.path} nor its temporary file {there / name} is there"
            )
    return found if store.size(there) is not None else None


def see_without_folder(store: Store, prepared: Prepared) -> None:
    """See that a transaction whose folder is gone is committed. Raises ``UnsureError`` where nothing says so."""
    missing = [file for file in prepared.files if not _has_content(store, prepared.target / file.path, file)]
    if missing and not (_listed(store, prepared) >= set(missing)):
        raise UnsureError(
            f"neither {prepared.target / missing[0].path} nor its temporary file in {prepared.staging} is there, "
            "and no manifest lists it"
        )


def unpublished(store: Store, prepared: Prepared, folder: Path) -> dict[DataFile, Path]:
    """Return the files that are still to be moved, each with the place where it waits.

    Raises ``UnsureError`` where one can never be published.
    """
    names = _names(store, folder, prepared)
    if store.size(folder) is None:
        # What was read of it may be a part. Whoever took it away has settled it, or was wrong to.
        raise OSError(errno.EAGAIN, "it was removed while it was read", str(folder))
    tokens = _tokens(names)
    waiting = {}
    for file in prepared.files:
        staged, final = folder / prepared.name_of(file), prepared.target / file.path
        place = staged if prepared.name_of(file) in names else None
        if place is None and (token := tokens.get(staged_name(file.path))) is not None:
            place = final.with_name(copy_name(final.name, token))
            if store.size(place) is None:
                _clear_copies(store, final)
                continue
        if place is not None and _waits(store, prepared, place, file):
            waiting[file] = place
    return waiting


def publish(store: Store, prepared: Prepared, folder: Path, file: DataFile, place: Path) -> None:
    """Move a file to its final name from the place where it waits. Raises ``OSError``, ``UnsureError``."""
    final = prepared.target / file.path
    store.make_folder(final.parent)
    try:
        try:
            free = store.publish(place, final)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            free = _publish_copy(store, folder, place, final)
    except FileNotFoundError:
        if file in unpublished(store, prepared, folder):
            raise  # its new folder was removed meanwhile
        return  # another driver has moved it
    if not free and file in unpublished(store, prepared, folder):
        raise OSError(errno.EAGAIN, "the name was taken and is free again", str(final))


def published(store: Store, prepared: Prepared) -> list[DataFile]:
    """List the files of a transaction that have, or had, their final names; for what is tried once."""
    folder = committing(prepared.staging)
    stands = store.size(folder) is not None and not prepared.linked
    names = _names(store, folder, prepared)
    tokens = _tokens(names)
    found = []
    for file in prepared.files:
        name, final = prepared.name_of(file), prepared.target / file.path
        waits = name in names
        if not waits and (token := tokens.get(staged_name(file.path))) is not None:
            waits = store.size(final.with_name(copy_name(final.name, token))) is not None
        there = store.size(final) is not None
        if _has_content(store, final, file) if there else (stands and not waits):
            found.append(file)
    return found


def _waits(store: Store, prepared: Prepared, place: Path, file: DataFile) -> bool:
    """Tell whether what is in its place is still to be moved."""
    final = prepared.target / file.path
    if store.size(final) is None:
        if prepared.linked and store.links(place) > 1:
            # Moved away on this file system since it was linked.
            store.delete(place)
            return False
        if damage := _damage(store, place, file):
            raise UnsureError(damage)
        return True
    if not (store.same(place, final) or _has_content(store, final, file)):
        raise UnsureError(f"{final} has other content than was prepared: something else wrote it")
    # Linked by the former version, or brought back by somebody. The name that tells goes once the other is durable.
    store.sync_folder(final.parent)
    store.delete(place)
    return False


def _publish_copy(store: Store, folder: Path, staged: Path, final: Path) -> bool:
    token = secrets.token_hex(_TOKEN_BYTES)
    copy = final.with_name(copy_name(final.name, token))
    mark = folder / copied_name(staged_name(final.name), token)
    try:
        store.copy(staged, copy)
        store.sync_folder(copy.parent)
        store.publish(staged, mark)
        store.sync_folder(folder)
    except OSError:
        # Where a name tells of this copy, the next try goes on with it.
        if store.size(mark) is None:
            store.delete(copy)
        raise
    free = store.publish(copy, final)
    if free:
        _clear_copies(store, final)
    return free


def _tokens(names: Iterable[str]) -> dict[str, str]:
    """Return the tokens of the copies that files were renamed for, by the names that these had."""
    return dict(filter(None, map(token_of, names)))


def _clear_copies(store: Store, final: Path) -> None:
    """Take away what broken-off copies of a published file left beside it; best effort."""
    begin, end = copy_name(final.name, "|").split("|")
    with contextlib.suppress(OSError):
        for name in store.names(final.parent):
            if name.startswith(begin) and name.endswith(end):
                store.delete(final.parent / name)


def _names(store: Store, folder: Path, prepared: Prepared) -> set[str]:
    """List a transaction's folder. What is missing is asked for by its name, and then the folder is listed once more.

    A listing may show neither name of a file that another driver renames meanwhile, and be old on a shared mount.
    """
    names = _listing(store, folder)
    tokens = _tokens(names)
    missing = [
        name
        for file in prepared.files
        if (name := prepared.name_of(file)) not in names and staged_name(file.path) not in tokens
    ]
    if missing:
        names.update(name for name in missing if store.size(folder / name) is not None)
        names |= _listing(store, folder)
    return names


def _listing(store: Store, folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in store.files(folder)}


def _damage(store: Store, staged: Path, file: DataFile) -> str:
    size = store.size(staged)
    if size in {None, file.bytes}:
        return ""  # gone meanwhile is told apart later
    return f"{staged} has {size} bytes where {file.bytes} were prepared: it is damaged"


def _has_content(store: Store, path: Path, file: DataFile) -> bool:
    try:
        return store.size(path) == file.bytes and store.checksum(path) == file.checksum
    except FileNotFoundError:
        return False


def _listed(store: Store, prepared: Prepared) -> frozenset[DataFile]:
    epoch = epoch_of(prepared.transaction)
    return Ledger(store, prepared.manifests).listed(epoch) or frozenset()
