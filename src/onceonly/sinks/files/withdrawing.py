"""Taking back what was committed: the newest epochs leave the manifests, then their files go. Operator's process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.ports.standing import TakenBack
from onceonly.sinks.files.committer import another, folders_up_to
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.paths import manifest_folder, real
from onceonly.sinks.files.prepared import Prepared
from onceonly.sinks.files.store import unavailable
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from onceonly.model import Handle
    from onceonly.ports import QueryContext
    from onceonly.sinks.files.store import Files


def withdraw(
    store: Files, at: Path, context: QueryContext, epoch: int, handles: Sequence[Handle], *, only_look: bool
) -> TakenBack:
    """Take back all epochs after one, whose ``handles`` are all that they committed; return which files went.

    Whoever reads the manifests sees one epoch less after the other, the newest first; then the files go, under who
    reads them just now. Idempotent, safe to be killed in. Raises ``ConfigurationError`` where the target is another, or
    cannot be divided there, and nothing is touched; ``UnavailableError``.
    """
    prepared = [Prepared.of(handle) for handle in handles]
    strange = next((each for each in prepared if real(each.target) != real(at)), None)
    if strange is not None:
        raise ConfigurationError(
            f"transaction {strange.transaction} went to {strange.target}, and the sink's path is {at}",
            next_step="give the sink the path that it had, with --option path=…",
        )
    try:
        if lost := another(store, at, prepared):
            raise ConfigurationError(lost, next_step="mount it, then run this again")
        ledger = Ledger(store, manifest_folder(at, context.query, context.sink))
        names = tuple(file.path for each in prepared for file in each.files)
        paths = [at / name for name in names]
        if only_look:
            ledger.divided(epoch)
            _refuse_taken(store, at, ledger, epoch)
            return TakenBack(files=names)
        ledger.withdraw(epoch)
        for path in paths:
            store.delete(path)
        for folder in folders_up_to(at, paths):
            # Somebody may have taken a folder away with what was in it.
            with contextlib.suppress(FileNotFoundError):
                store.sync_folder(folder)
    except OSError as error:
        raise unavailable(f"{error.filename or at} could not be taken back", error) from error
    return TakenBack(files=names)


def _refuse_taken(store: Files, at: Path, ledger: Ledger, epoch: int) -> None:
    """See that the files after an epoch are where readers saw them, as long as the manifests list them.

    What a consumer has taken away is nobody's to take back.
    """
    listed = [at / file.path for each in ledger.manifests() if each.epoch > epoch for file in each.files]
    there = {folder: frozenset(store.names(folder)) for folder in {path.parent for path in listed}}
    gone = [path for path in listed if path.name not in there[path.parent]]
    if gone:
        raise ConfigurationError(
            f"{n(len(gone), 'file is')} not in the target any more that epochs after chk-{epoch} have put there, such "
            f"as {gone[0]}: a consumer has taken what it saw, and would get these rows once more",
            next_step="take a newer savepoint; or bring back what was taken; or see to what was made of it, and say "
            "--output again",
        )
