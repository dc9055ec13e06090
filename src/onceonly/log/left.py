"""The end of a query where it was, once it is restored from a savepoint elsewhere; and what a start is told there."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from onceonly.errors import CheckpointMovedError
from onceonly.log import identity
from onceonly.model import LinkKind
from onceonly.stores.address import parse
from onceonly.stores.opened import folder_of

if TYPE_CHECKING:
    from onceonly.log.decision_log import FileDecisionLog
    from onceonly.log.identity import Identity
    from onceonly.model import Link
    from onceonly.stores.port import Store

RESTORED: Final = "restored from a savepoint elsewhere"
"""The reason of the claim."""


def is_end(link: Link) -> bool:
    """Say whether a link ends a query where it was, as it was restored elsewhere."""
    return link.kind is LinkKind.ABORT and link.reason == RESTORED


def was_restored(log: FileDecisionLog) -> bool:
    """Say whether a query was restored elsewhere, and nobody has gone on here since."""
    newest = log.newest()
    chain = log.chain(newest) if newest is not None else ()
    return bool(chain) and is_end(chain[-1])


def ends_open(home: str) -> str:
    """Say what ends what a query has open that no link names, once it was restored to ``home``."""
    return (
        f"the query was restored from a savepoint to {home}: under the same id it is that job's, which ends it, by its "
        "next start at the latest; under another one, its time-out does"
    )


def require_home(
    found: Identity, log: FileDecisionLog, store: Store, *, query: str, address: str, path: str
) -> None:
    """See that a log is at home at an address, which people write as ``path``.

    Raises as ``identity.compare``, whose command would be refused where the query was restored elsewhere: then
    ``CheckpointMovedError`` says where the job goes on.
    """
    try:
        identity.compare(found, store, query=query, address=address)
    except CheckpointMovedError as error:
        if not was_restored(log):
            raise
        raise went_on(found, path) from error


def went_on(found: Identity, path: str) -> CheckpointMovedError:
    """Make the error of a place whose query was restored elsewhere."""
    folder = folder_of(parse(found.address))
    more = ""
    if folder is not None and not folder.is_dir():
        more = (
            "; nothing is there on this machine: if that checkpoint was moved on, start it where it went; if it is "
            f"gone for good, see to what it wrote, then: onceonly checkpoints accept-move --force {shlex.quote(path)}"
        )
    elif folder is not None and not (folder / "metadata").exists():
        more = (
            "; what is there is not whole, as the restore was broken off: first type it again as it was typed"
        )
    return CheckpointMovedError(
        f"{path} is where query {found.query} was before it was restored from a savepoint to {found.address}: the job "
        "goes on there, and there is nothing to do here",
        next_step=f"start the job at {found.address}{more}",
    )
