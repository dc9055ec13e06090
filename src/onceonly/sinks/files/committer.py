"""Commit and manifest of prepared files, from their durable names. Driver.

Each file is *published*: its final name is linked to it, never over another. The temporary name stays until the
epoch's receipt, so that a repeated commit can tell by it what it did before.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onceonly.errors import ConfigurationError, InDoubtError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Outcome, RetryLater, Unknown
from onceonly.sinks.files.checks import read_token
from onceonly.sinks.files.ledger import Ledger
from onceonly.sinks.files.manifest import DataFile, Manifest
from onceonly.sinks.files.paths import manifest_folder
from onceonly.sinks.files.store import named, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.ports import QueryContext
    from onceonly.sinks.files.store import Store

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a handle's data says. ``staging`` is the folder of the transaction's temporary names."""

    transaction: str
    target: Path
    staging: Path
    layout: str
    files: tuple[DataFile, ...]
    token: str = ""
    """The target's own id; empty where its writer did not say it."""

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
            if data["version"] != _VERSION:
                raise foreign(handle, f"format {data['version']}")
            return cls(
                transaction=handle.transaction,
                target=Path(str(data["target"])),
                staging=Path(str(data["staging"])),
                layout=str(data["layout"]),
                files=msgspec.json.decode(str(data["files"]), type=tuple[DataFile, ...]),
                token=str(data.get("token", "")),
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

    The names need not be durable yet: the temporary ones are, and nobody drops these before he has synced the
    final ones. ``complete`` does so once for the whole epoch. Raises ``ConfigurationError`` for another target.
    """
    prepared = Prepared.of(handle)
    if prepared.target.resolve() != target.resolve():
        raise ConfigurationError(
            f"Transaction {handle.transaction} was prepared for {prepared.target}, and the sink's path is now "
            f"{target}. Nothing was published.",
            next_step="set path back to the former target until the transaction is resolved",
        )
    try:
        if lost := _lost(store, target, (prepared,)):
            return RetryLater(f"transaction {handle.transaction}: {lost}")
        # Before the first is published: what cannot be finished is better not begun.
        missing = [file for file in prepared.files if not _published(store, prepared, file)]
        for file in missing:
            _publish(store, prepared, file)
    except _UnsureError as unsure:
        return Unknown(f"transaction {handle.transaction}: {unsure}")
    except OSError as error:
        # Whether or not a name was made: the next try looks.
        return RetryLater(f"transaction {handle.transaction}: {named(error, target)}")
    return Committed() if missing else AlreadyCommitted()


def complete(
    store: Store, target: Path, context: QueryContext, epoch: int, handles: Sequence[Handle]
) -> None:
    """Make the final names of an epoch durable, then put its manifest. Driver, before its receipt; idempotent.

    Raises ``UnavailableError``, ``LogError``.
    """
    prepared = [Prepared.of(handle) for handle in handles]
    decided = [file for each in prepared for file in each.files]
    once = context.guarantee is Guarantee.AT_MOST_ONCE
    try:
        if lost := _lost(store, target, prepared):
            raise UnavailableError(
                f"chk-{epoch} could not be completed: {lost}", next_step="mount it and start the query again"
            )
        # At most once, one try each: what was not published then never will be.
        files = (
            [file for each in prepared for file in each.files if _is_there(store, each, file)]
            if once
            else decided
        )
        if not files:
            return
        for folder in folders_up_to(target, (target / file.path for file in files)):
            store.sync_folder(folder)
    except OSError as error:
        raise unavailable(
            f"the names of chk-{epoch} could not be made durable in {error.filename or target}", error
        ) from error
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


def of_target(handle: Handle, token: str) -> Handle:
    """Note in a handle the own id of the target that it was prepared for."""
    return replace(handle, data={**handle.data, "token": token})


def not_mounted(target: Path) -> str:
    """Say that a folder is another than it was."""
    return f"{target} is not the folder it was: is it mounted?"


def _lost(store: Store, target: Path, prepared: Sequence[Prepared]) -> str:
    """Say that the target is not the one that some files were prepared for; empty where it is."""
    tokens = {each.token for each in prepared if each.token}
    return not_mounted(target) if tokens - {read_token(store, target)} else ""


def _is_there(store: Store, prepared: Prepared, file: DataFile) -> bool:
    final = prepared.target / file.path
    if store.size(final) != file.bytes:
        return False
    try:
        return store.same(prepared.staging / file.path, final) or store.checksum(final) == file.checksum
    except FileNotFoundError:
        return False


def folders_up_to(target: Path, files: Iterable[Path]) -> set[Path]:
    """Give the folders of files and those above them, up to the target: somebody may just have made them."""
    found = {target}
    for file in files:
        folder = file.parent
        while folder not in found:
            found.add(folder)
            folder = folder.parent
    return found


class _UnsureError(Exception):
    """What is found is neither published nor prepared."""


def _published(store: Store, prepared: Prepared, file: DataFile) -> bool:
    """Tell whether a file has its final name. Raises ``_UnsureError`` where it can never get it."""
    final, temporary = prepared.target / file.path, prepared.staging / file.path
    size = store.size(final)
    if size is not None:
        if store.same(temporary, final):
            return True
        if size == file.bytes and store.checksum(final) == file.checksum:
            return True
        raise _UnsureError(f"{final} has other content than was prepared: something else wrote it")
    size = store.size(temporary)
    if size is None:
        raise _UnsureError(f"neither {final} nor its temporary file {temporary} is there")
    if size != file.bytes:
        raise _UnsureError(f"{temporary} has {size} bytes where {file.bytes} were prepared: it is damaged")
    return False


def _publish(store: Store, prepared: Prepared, file: DataFile) -> None:
    final = prepared.target / file.path
    store.make_folder(final.parent)
    if not store.publish(prepared.staging / file.path, final) and not _published(store, prepared, file):
        raise OSError(errno.EAGAIN, "the name was taken and is free again", str(final))
