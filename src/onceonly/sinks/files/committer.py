"""Commit and manifest of prepared files, from their durable names. Driver.

Each file is *published*: it gets its final name, never over another. A repeated commit tells by what waits no more what
it did before, so that readers may take away what they see. What tells of it stays until the manifest says the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.model import Guarantee, Handle, Outcome, RetryLater, Unknown
from onceonly.sinks.files.checks import read_token
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.manifests.manifest import Manifest
from onceonly.sinks.files.paths import manifest_folder, real
from onceonly.sinks.files.prepared import Prepared
from onceonly.sinks.files.staging.staged import epoch_of
from onceonly.sinks.files.store import named, unavailable
from onceonly.sinks.files.targets.port import UnsureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from onceonly.ports import QueryContext
    from onceonly.sinks.files.manifests.manifest import DataFile
    from onceonly.sinks.files.store import Files
    from onceonly.sinks.files.targets.port import Target


def commit(target: Target, at: Path, handle: Handle) -> Outcome:
    """Publish every file of a transaction. Any thread, any process; idempotent, repeatable.

    The names need not be durable yet; ``complete`` makes them so once for the whole epoch. Raises
    ``ConfigurationError`` for another target, ``LogError`` for a damaged manifest.
    """
    prepared = Prepared.of(handle)
    if real(prepared.target) != real(at):
        raise ConfigurationError(
            f"Transaction {handle.transaction} was prepared for {prepared.target}, and the sink's path is now "
            f"{at}. Nothing was published.",
            next_step="set path back to the former target until the transaction is resolved",
        )
    try:
        if lost := another(target.files, at, (prepared,)):
            return RetryLater(f"transaction {handle.transaction}: {lost}")
        return target.commit(prepared)
    except UnsureError as unsure:
        if lost := another(target.files, at, (prepared,)):  # it went away while it was looked at
            return RetryLater(f"transaction {handle.transaction}: {lost}")
        return Unknown(f"transaction {handle.transaction}: {unsure}")
    except UnavailableError as error:
        return RetryLater(f"transaction {handle.transaction}: {error.what}")
    except OSError as error:
        # Whether or not a name was made: the next try looks.
        return RetryLater(f"transaction {handle.transaction}: {named(error, at)}")


def complete(target: Target, at: Path, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
    """Make the final names of an epoch durable, then put its manifest. Driver, before its receipt; idempotent.

    Files that a reader has taken away meanwhile are listed all the same. Raises ``UnavailableError``, ``LogError``.
    """
    prepared = [Prepared.of(handle) for handle in handles]
    decided = [file for each in prepared for file in each.files]
    once = context.guarantee is Guarantee.AT_MOST_ONCE
    store = target.files
    try:
        _see(store, at, prepared, epoch)
        # At most once, one try each: what was not published then never will be.
        files = [file for each in prepared for file in target.published(each)] if once else decided
        if not files:
            return
        _sync(store, at, files)
        ledger = Ledger(store, manifest_folder(at, context.query, context.sink))
        ledger.put(
            Manifest(
                epoch=epoch,
                layout=prepared[0].layout,
                files=tuple(sorted(files, key=lambda file: file.path)),
            ),
            # Repeated at most once, it may find less than the first time.
            among=frozenset(decided) if once else frozenset(),
        )
        # Had it gone away before, the manifest would lie below the mount point.
        _see(store, at, prepared, epoch)
    except OSError as error:
        raise _not_durable(at, epoch, error) from error


def make_durable(target: Target, at: Path, handles: Sequence[Handle]) -> None:
    """Make the final names of committed files durable. Driver; idempotent. Raises ``UnavailableError``."""
    prepared = [Prepared.of(handle) for handle in handles]
    epoch = epoch_of(prepared[0].transaction)
    try:
        _sync(target.files, at, [file for each in prepared for file in each.files])
        # Had it gone away before, what was synced would lie below the mount point.
        _see(target.files, at, prepared, epoch)
    except OSError as error:
        raise _not_durable(at, epoch, error) from error


def _sync(store: Files, at: Path, files: Iterable[DataFile]) -> None:
    for folder in folders_up_to(at, (at / file.path for file in files)):
        # A reader may have taken a folder away with what was in it.
        with contextlib.suppress(FileNotFoundError):
            store.sync_folder(folder)


def _not_durable(at: Path, epoch: int, error: OSError) -> UnavailableError:
    return unavailable(f"the names of chk-{epoch} could not be made durable in {error.filename or at}", error)


def of_target(handle: Handle, token: str) -> Handle:
    """Note in a handle the own id of the target that it was prepared for."""
    return replace(handle, data={**handle.data, "token": token})


def not_mounted(target: Path) -> str:
    """Say that a folder is another than it was."""
    return f"{target} is not the folder it was: is it mounted?"


def another(store: Files, target: Path, prepared: Sequence[Prepared]) -> str:
    """Say that the target is not the one that some files were prepared for; empty where it is. Raises ``OSError``."""
    tokens = {each.token for each in prepared if each.token}
    return not_mounted(target) if tokens - {read_token(store, target)} else ""


def _see(store: Files, target: Path, prepared: Sequence[Prepared], epoch: int) -> None:
    """See that the target is the one that the files were prepared for. Raises ``UnavailableError``."""
    if lost := another(store, target, prepared):
        raise UnavailableError(
            f"chk-{epoch} could not be completed: {lost}", next_step="mount it and start the query again"
        )


def folders_up_to(target: Path, files: Iterable[Path]) -> set[Path]:
    """Return the folders of files and those above them, up to the target: somebody may just have made them."""
    found = {target}
    for file in files:
        folder = file.parent
        while folder not in found:
            found.add(folder)
            folder = folder.parent
    return found
