"""What attempts and decisions leave under temporary names: listed, and dropped once somebody has looked. Driver.

Listing changes nothing. A sweep spares the transactions of the newest link by their names, so what is *published*
(each file has its final name) is listed under another name: its temporary names may go at once, as nobody needs
them any more.
"""

from __future__ import annotations

import contextlib
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import LogError, UnavailableError
from onceonly.ports import Leftover
from onceonly.sinks.files.checks import read_token
from onceonly.sinks.files.committer import folders_up_to, foreign, not_mounted
from onceonly.sinks.files.paths import staging_folder
from onceonly.sinks.files.store import COPYING, reason, unavailable

if TYPE_CHECKING:
    from onceonly.model import Handle
    from onceonly.ports import QueryContext
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.store import Store

log = logging.getLogger("onceonly")
PUBLISHED = "published-"
DROPPED = "dropped-"
_TRANSACTION = re.compile(r"\d+-\d+-[0-9a-f]{32}")
_ASIDE = re.compile(r"\.(\d+-\d+-[0-9a-f]{32})\.dropped")
_LEVELS = 3
"""A transaction's folder is {staging}/{query}/{sink}/{transaction}."""


def recover(store: Store, options: FilesOptions, context: QueryContext) -> list[Leftover]:
    """List this query's transactions that have temporary names. Changes nothing, so anybody may ask at any time.

    Raises ``UnavailableError`` rather than give a part of the list.
    """
    root = staging_folder(options.staging, context.query, context.sink)
    found = []
    try:
        if read_token(store, options.target) is None:
            # It was made before the first transaction, so the list would not be whole.
            raise UnavailableError(
                not_mounted(options.target), next_step="mount it and start the query, or ask, again"
            )
        for name in sorted(store.names(root)):
            if match := _ASIDE.fullmatch(name):
                transaction = DROPPED + match[1]
            elif not _TRANSACTION.fullmatch(name):
                continue
            else:
                pairs = _Pairs(store, options.target, root / name)
                if not pairs.are_there:
                    continue
                transaction = PUBLISHED + name if pairs.published() else name
            epoch = int(name.lstrip(".").partition("-")[0])
            found.append(
                Leftover(
                    transaction=transaction,
                    data={"staging": str(root / name)},
                    epoch=epoch,
                    is_open=transaction == name,
                )
            )
    except OSError as error:
        raise unavailable(f"the temporary files in {root} could not be listed", error) from error
    return found


def abort(
    store: Store, options: FilesOptions, handle: Handle, *, durable: set[str], root: Path | None
) -> None:
    """Drop a transaction's temporary names; never a final one. Idempotent.

    ``root`` is the folder of this query's transactions, None where nobody has said yet which query it is;
    ``durable`` are the transactions whose final names this process has made durable. Raises ``UnavailableError``,
    ``LogError`` for a folder that is not one of the sink's, ``InDoubtError`` for a handle that is not.
    """
    if "staging" not in handle.data:
        raise foreign(handle, "it names no folder of temporary files")
    folder = Path(str(handle.data["staging"]))
    transaction = handle.transaction.removeprefix(PUBLISHED).removeprefix(DROPPED)
    aside = folder.with_name(f".{transaction}.dropped")
    is_ours = len(folder.parts) > _LEVELS and folder.parents[_LEVELS - 1] == options.staging
    is_ours = is_ours and root in {None, folder.parent}
    if not (
        is_ours
        and ".." not in folder.parts
        and _TRANSACTION.fullmatch(transaction)
        and folder.name in {transaction, aside.name}
    ):
        raise LogError(
            f"Transaction {handle.transaction} names {folder}, which is no folder of its own below "
            f"{root or options.staging}; nothing was removed.",
            next_step="set the options path and staging back to what they were when it was prepared; where they "
            "never changed, report this",
        )
    try:
        if folder != aside:
            pairs = _Pairs(store, options.target, folder)
            if handle.transaction.startswith(PUBLISHED):
                # The list may be old: what has got another file since is not published.
                if not pairs.published():
                    return
                pairs.clear_copies()
            if transaction not in durable:
                # Whoever gave the final names may have died before these were durable.
                for final_folder in pairs.final_folders():
                    store.sync_folder(final_folder)
            store.rename_folder(folder, aside)
    except OSError as error:
        raise unavailable(f"the temporary files in {folder} could not be removed", error) from error
    durable.discard(transaction)
    _delete(store, aside)


def _delete(store: Store, aside: Path) -> None:
    # Nobody can write there any more, so this is only about space.
    try:
        store.delete_folder(aside)
    except OSError as error:
        log.warning("%s is left to the next sweep: %s", aside, reason(error))


class _Pairs:
    """The files of a transaction that are found in its folder, each with its final name."""

    def __init__(self, store: Store, target: Path, folder: Path) -> None:
        self._store = store
        self._target = target
        self._pairs = [(path, target / path.relative_to(folder)) for path in store.files(folder)]
        self._copied: list[Path] = []
        # While somebody only asks, a living run may drop it.
        self.are_there = bool(self._pairs) or store.size(folder) is not None

    def published(self) -> bool:
        # One without files may be about to write its first.
        return bool(self._pairs) and all(self._is_published(*pair) for pair in self._pairs)

    def final_folders(self) -> set[Path]:
        """Give the folders of the final names that are there, and those above them."""
        finals = [final for _, final in self._pairs if self._store.size(final) is not None]
        return folders_up_to(self._target, finals) if finals else set()

    def clear_copies(self) -> None:
        """Take away what broken-off copies left beside the final names; best effort."""
        for final in self._copied:
            with contextlib.suppress(OSError):
                for name in self._store.names(final.parent):
                    if name.startswith(f".{final.name}.") and name.endswith(COPYING):
                        self._store.delete(final.parent / name)

    def _is_published(self, temporary: Path, final: Path) -> bool:
        store = self._store
        if store.same(temporary, final):
            return True
        size = store.size(final)
        if size is None or size != store.size(temporary):
            return False
        self._copied.append(final)
        try:
            return store.checksum(temporary) == store.checksum(final)
        except FileNotFoundError:
            return False
