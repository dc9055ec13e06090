"""Commit and manifest of prepared files, from their durable names. Driver.

Each file is *published*: moved from the transaction's folder to its final name, never over another. A repeated commit
tells by what is missing in the folder what it did before, so that readers may take away what they see. The folder
stays until the manifest says the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onceonly.errors import ConfigurationError, InDoubtError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Outcome, RetryLater, Unknown
from onceonly.sinks.files.checks import read_token
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.manifests.manifest import DataFile, Manifest
from onceonly.sinks.files.paths import HIDDEN, manifest_folder
from onceonly.sinks.files.staging.placing import (
    UnsureError,
    begin,
    publish,
    published,
    see_without_folder,
    unpublished,
)
from onceonly.sinks.files.staging.staged import staged_name
from onceonly.sinks.files.store import named, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.ports import QueryContext
    from onceonly.sinks.files.store import Store

_VERSION = 2
_LINKED = 1
"""The version whose staged files had their final paths in the folder, and were linked: read for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a handle's data says. ``staging`` is the folder of the transaction's temporary names.

    ``linked`` is for a handle of the version that gave final names by links: see ``placing``.
    """

    transaction: str
    target: Path
    staging: Path
    layout: str
    files: tuple[DataFile, ...]
    token: str = ""
    """The target's own id; empty where its writer did not say it."""
    linked: bool = False

    @property
    def manifests(self) -> Path:
        """The folder of the manifests of its query and sink, which have the same names there."""
        root = self.staging.parent
        return self.target / HIDDEN / "epochs" / root.parent.name / root.name

    def name_of(self, file: DataFile) -> str:
        """Return a file's name in the transaction's folder."""
        return file.path if self.linked else staged_name(file.path)

    def handle(self) -> Handle:
        return Handle(
            transaction=self.transaction,
            data={
                "version": _VERSION,
                "target": str(self.target),
                "staging": str(self.staging),
                "layout": self.layout,
                "files": msgspec.json.encode(self.files).decode(),
                "token": self.token,
            },
        )

    @classmethod
    def of(cls, handle: Handle) -> Prepared:
        """Read a handle; raises ``InDoubtError`` for one that this version cannot have written."""
        data = handle.data
        try:
            if data["version"] not in {_VERSION, _LINKED}:
                raise foreign(handle, f"format {data['version']}")
            return cls(
                transaction=handle.transaction,
                target=Path(str(data["target"])),
                staging=Path(str(data["staging"])),
                layout=str(data["layout"]),
                files=msgspec.json.decode(str(data["files"]), type=tuple[DataFile, ...]),
                token=str(data.get("token", "")),
                linked=data["version"] == _LINKED,
            )
        except (KeyError, ValueError) as error:
            raise foreign(handle, str(error)) from error


def foreign(handle: Handle, why: str) -> InDoubtError:
    """Make the error for a handle that this version of the file sink cannot have written."""
    return InDoubtError(
        f"The handle of transaction {handle.transaction} is not one of the file sink: {why}.",
        next_step="use the version of onceonly that wrote it",
    )


def commit(store: Store, target: Path, handle: Handle) -> Outcome:
    """Publish every file of a transaction. Any thread, any process; idempotent, repeatable.

    The names need not be durable yet: a loss of power gives the temporary ones back. ``complete`` makes them so once
    for the whole epoch. Raises ``ConfigurationError`` for another target, ``LogError`` for a damaged manifest.
    """
    prepared = Prepared.of(handle)
    if prepared.target.resolve() != target.resolve():
        raise ConfigurationError(
            f"Transaction {handle.transaction} was prepared for {prepared.target}, and the sink's path is now "
            f"{target}. Nothing was published.",
            next_step="set path back to the former target until the transaction is resolved",
        )
    try:
        if lost := another(store, target, (prepared,)):
            return RetryLater(f"transaction {handle.transaction}: {lost}")
        folder = begin(store, prepared)
        if folder is None:
            see_without_folder(store, prepared)
            return AlreadyCommitted()
        missing = unpublished(store, prepared, folder)
        for file, place in missing.items():
            publish(store, prepared, folder, file, place)
    except UnsureError as unsure:
        if lost := another(store, target, (prepared,)):  # it went away while it was looked at
            return RetryLater(f"transaction {handle.transaction}: {lost}")
        return Unknown(f"transaction {handle.transaction}: {unsure}")
    except UnavailableError as error:
        return RetryLater(f"transaction {handle.transaction}: {error.what}")
    except OSError as error:
        # Whether or not a name was made: the next try looks.
        return RetryLater(f"transaction {handle.transaction}: {named(error, target)}")
    return Committed() if missing else AlreadyCommitted()


def complete(
    store: Store, target: Path, context: QueryContext, epoch: int, handles: Sequence[Handle]
) -> None:
    """Make the final names of an epoch durable, then put its manifest. Driver, before its receipt; idempotent.

    Files that a reader has taken away meanwhile are listed all the same. Raises ``UnavailableError``, ``LogError``.
    """
    prepared = [Prepared.of(handle) for handle in handles]
    decided = [file for each in prepared for file in each.files]
    once = context.guarantee is Guarantee.AT_MOST_ONCE
    try:
        _see(store, target, prepared, epoch)
        # At most once, one try each: what was not published then never will be.
        files = [file for each in prepared for file in published(store, each)] if once else decided
        if not files:
            return
        for folder in folders_up_to(target, (target / file.path for file in files)):
            # A reader may have taken a folder away with what was in it.
            with contextlib.suppress(FileNotFoundError):
                store.sync_folder(folder)
        ledger = Ledger(store, manifest_folder(target, context.query, context.sink))
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
        _see(store, target, prepared, epoch)
    except OSError as error:
        raise unavailable(
            f"the names of chk-{epoch} could not be made durable in {error.filename or target}", error
        ) from error


def of_target(handle: Handle, token: str) -> Handle:
    """Note in a handle the own id of the target that it was prepared for."""
    return replace(handle, data={**handle.data, "token": token})


def not_mounted(target: Path) -> str:
    """Say that a folder is another than it was."""
    return f"{target} is not the folder it was: is it mounted?"


def another(store: Store, target: Path, prepared: Sequence[Prepared]) -> str:
    """Say that the target is not the one that some files were prepared for; empty where it is. Raises ``OSError``."""
    tokens = {each.token for each in prepared if each.token}
    return not_mounted(target) if tokens - {read_token(store, target)} else ""


def _see(store: Store, target: Path, prepared: Sequence[Prepared], epoch: int) -> None:
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
