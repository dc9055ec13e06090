"""Where the log of a checkpoint is, on whatever store its address means. Any process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceonly.stores.address import Kind
from onceonly.stores.folder import UnsyncedStore
from onceonly.stores.opened import address_of, folder_of, open_store

if TYPE_CHECKING:
    from onceonly.stores.port import RewritableStore

FOLDER: Final = "onceonly"


def home_of(checkpoint: str) -> str:
    """Return the canonical address of a checkpoint: of a folder, with its links resolved.

    The endpoint of a store is no part of it: one bucket has several names in a network, and a server may move. Raises
    ``ConfigurationError``.
    """
    address = address_of(checkpoint)
    if address.kind is Kind.FOLDER:
        return f"file://{Path(address.path).resolve()}"
    return address.text


def elsewhere(checkpoint: str) -> str:
    """Say what a start in another folder makes of a checkpoint that is named by a relative path; else nothing. Pure."""
    first = checkpoint.partition("/")[0]
    if not first or ":" in first:
        return ""
    return (
        f"The checkpoint {checkpoint} is named by a relative path: a start in another working directory finds none, "
        "begins anew, and writes rows once more. Name it by a path that begins with a slash."
    )


def log_store(checkpoint: str) -> RewritableStore:
    """Open the store of a checkpoint's log. Nothing is asked or made yet. Raises ``ConfigurationError``."""
    return open_store(address_of(checkpoint).below(FOLDER))


def notes_store(checkpoint: str) -> RewritableStore:
    """Open the same for what is for people and decides nothing: in a folder, nothing of it is synced.

    So no disk that fails an fsync ends the process for it. Raises ``ConfigurationError``.
    """
    folder = folder_of(address_of(checkpoint))
    return log_store(checkpoint) if folder is None else UnsyncedStore(folder / FOLDER)
