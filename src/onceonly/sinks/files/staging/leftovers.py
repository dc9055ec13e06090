"""What attempts and decisions leave in the staging folder: listed, and dropped once somebody has looked. Driver.

Listing changes nothing. A sweep spares the transactions of the newest link by their names, so what is *settled* (a
manifest of its epoch stands, which says all that the folder could) is listed under another name: nobody needs it any
more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceonly.errors import LogError, UnavailableError
from onceonly.model import Guarantee
from onceonly.ports import Leftover
from onceonly.sinks.files.checks import read_token
from onceonly.sinks.files.committer import not_mounted
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.paths import manifest_folder, place, staging_folder
from onceonly.sinks.files.prepared import foreign
from onceonly.sinks.files.staging.staged import dropped, epoch_of, state_of
from onceonly.sinks.files.store import reason, unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.model import Handle
    from onceonly.ports import QueryContext
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.store import Store

log = logging.getLogger("onceonly")
SETTLED = "settled-"
DROPPED = "dropped-"
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
        newest = Ledger(store, manifest_folder(options.target, context.query, context.sink)).newest()
        for name in sorted(store.names(root)):
            transaction, state = state_of(name)
            if not state:
                continue
            epoch = epoch_of(transaction)
            is_open, is_decided = state == "prepared", False
            if state == "dropped":
                transaction = DROPPED + transaction
            elif state == "committing" and newest is not None and newest >= epoch:
                transaction = SETTLED + transaction
            elif state == "committing":
                is_open = bool(list(store.files(root / name)))
                is_decided = context.guarantee is not Guarantee.AT_LEAST_ONCE
            # While somebody only asks, a living run may drop it.
            if store.size(root / name) is not None:
                found.append(
                    Leftover(
                        transaction=transaction,
                        data={"staging": str(root / name)},
                        epoch=epoch,
                        is_open=is_open,
                        is_decided=is_decided,
                    )
                )
    except OSError as error:
        raise unavailable(f"the temporary files in {root} could not be listed", error) from error
    return found


def abort(store: Store, options: FilesOptions, handle: Handle, *, root: Path | None) -> None:
    """Drop the folder that a handle or a leftover names, and what is in it; never a final name. Idempotent.

    A folder that was committed meanwhile has another name, and is not touched. ``root`` is the folder of this query's
    transactions, None where nobody has said yet which query it is. Raises ``UnavailableError``, ``LogError`` for a
    folder that is not one of the sink's, ``InDoubtError`` for a handle that is not.
    """
    folder, transaction = own_folder(options, handle, root)
    aside = dropped(folder, transaction)
    try:
        if folder != aside:
            store.rename_folder(folder, aside)
    except OSError as error:
        raise unavailable(f"the temporary files in {folder} could not be removed", error) from error
    _delete(store, aside)


def own_folder(options: FilesOptions, handle: Handle, root: Path | None) -> tuple[Path, str]:
    """Return the folder and the transaction that a handle or a leftover names.

    Raises ``LogError`` where they are not this sink's, ``InDoubtError``.
    """
    if "staging" not in handle.data:
        raise foreign(handle, "it names no folder of temporary files")
    folder = place(handle.data["staging"])
    transaction = handle.transaction.removeprefix(SETTLED).removeprefix(DROPPED)
    is_ours = len(folder.parts) > _LEVELS and folder.parents[_LEVELS - 1] == options.staging
    is_ours = is_ours and root in {None, folder.parent}
    if not (is_ours and ".." not in folder.parts and state_of(folder.name)[0] == transaction):
        raise LogError(
            f"Transaction {handle.transaction} names {folder}, which is no folder of its own below "
            f"{root or options.staging}; nothing was removed.",
            next_step="set the options path and staging back to what they were when it was prepared; where they "
            "never changed, report this",
        )
    return folder, transaction


def _delete(store: Store, aside: Path) -> None:
    # Nobody can write there any more, so this is only about space.
    try:
        store.delete_folder(aside)
    except OSError as error:
        log.warning("%s is left to the next sweep: %s", aside, reason(error))
