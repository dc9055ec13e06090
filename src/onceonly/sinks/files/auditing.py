"""Whether a target of files holds what was committed to it, by its manifests and the files themselves. Only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.ports.standing import Held
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.manifests.reading import manifest_folders
from onceonly.sinks.files.prepared import Prepared
from onceonly.sinks.files.staging.staged import epoch_of
from onceonly.sinks.files.store import unavailable
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from onceonly.model import Handle
    from onceonly.sinks.files.manifests.manifest import DataFile
    from onceonly.sinks.files.store import Files, Store
    from onceonly.sinks.files.targets.port import Target

_HIDDEN = ("_", ".")
_LONG = "a bucket tells of a file no more than how long it is"


def held(target: Target, at: Path, handles: Sequence[Handle]) -> Held | None:
    """Compare the files of one epoch with what was written; None once the epoch has expired.

    Raises ``UnavailableError``, ``LogError`` for a damaged manifest.
    """
    prepared = [Prepared.of(handle) for handle in handles]
    if not prepared:
        return None
    ledger, epoch = Ledger(target.files, prepared[0].manifests), epoch_of(prepared[0].transaction)
    if epoch <= ledger.marks().expired_to:
        return None
    listed = ledger.listed(epoch) or frozenset()
    wrong: list[str] = []
    rows = 0
    try:
        for file in (file for each in prepared for file in each.files):
            what = _wrong(target.files, at, file) or ("" if file in listed else "no manifest lists it")
            wrong += [f"{at / file.path}: {what}"] if what else []
            rows += 0 if what else file.rows
    except OSError as error:
        raise unavailable(f"{at} could not be read", error) from error
    strangers = sorted(file.path for file in listed - {file for each in prepared for file in each.files})
    wrong += [f"{at / path}: the manifest lists it, and no decision names it" for path in strangers]
    unread = "" if hasattr(target.files, "checksum") else _LONG
    return Held(rows=rows, wrong=tuple(wrong), unread=unread)


def held_in_all(store: Store, at: Path) -> Held:
    """Count the rows of all manifests, and name the files that readers who do not know of manifests see beside them.

    Raises ``UnavailableError``, ``LogError``.
    """
    rows = 0
    known: set[str] = set()
    for folder, _, _ in manifest_folders(store, at):
        for manifest in Ledger(store, folder).manifests():
            rows += sum(file.rows for file in manifest.files)
            known |= {file.path for file in manifest.files}
    try:
        visible = {str(path.relative_to(at)) for path in _visible(store, at)}
    except OSError as error:
        raise unavailable(f"{at} could not be listed", error) from error
    return Held(
        rows=rows, wrong=tuple(f"{at / path}: no manifest lists it" for path in sorted(visible - known))
    )


def _visible(store: Store, at: Path) -> Iterator[Path]:
    for path in store.files(at):
        if not any(part.startswith(_HIDDEN) for part in path.relative_to(at).parts):
            yield path


def _wrong(store: Files, at: Path, file: DataFile) -> str:
    size = store.size(at / file.path)
    if size is None:
        return f"it is gone, with {n(file.rows, 'row')}"
    if size != file.bytes:
        return f"it has {size} bytes, and {file.bytes} were written"
    checksum = getattr(store, "checksum", None)  # a bucket tells none of an object
    if checksum is not None and checksum(at / file.path) != file.checksum:
        return "it has other content than was written"
    return ""
