"""What is staged in a folder that no checkpoint holds, of whichever query: of lost checkpoints, too. Only looks."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly.model import Guarantee
from onceonly.ports import QueryContext
from onceonly.ports.standing import Hanging
from onceonly.stores.opened import folder_of, open_store
from onceonly.words import time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onceonly.ports import Leftover
    from onceonly.stores.address import Address

BLOCKS = "nothing: what is staged holds no lock in the target"


def staged(home: Address, recover: Callable[[QueryContext], Iterable[Leftover]]) -> list[Hanging]:
    """List what is staged below an address and not applied; ``recover`` lists that of one query's sink. Any process.

    Raises ``UnavailableError`` rather than give a part; what this user may not list is told as such.
    """
    found: list[Hanging] = []
    store = open_store(home)
    for query in sorted(store.list_folders("")):
        try:
            for sink in sorted(store.list_folders(f"{query}/")):
                context = QueryContext(query=query, sink=sink, guarantee=Guarantee.EXACTLY_ONCE)
                found += [_told(home, context, each) for each in recover(context) if each.is_open]
        except UnavailableError as error:
            if not isinstance(error.__cause__, PermissionError):
                raise
            found.append(Hanging.unlisted(query, home.below(query).shown))
    return found


def _told(home: Address, context: QueryContext, found: Leftover) -> Hanging:
    address, since = home.below(f"{context.query}/{context.sink}/{found.transaction}"), ""
    local = folder_of(address)
    if local is not None and local.exists():
        since = f" since {time_of(int(1000 * local.stat().st_mtime))}"
    remove = (
        f"rm {shlex.quote(str(local))}*" if local is not None else f"deleting {address.shown} and its parts"
    )
    return Hanging(
        transaction=found.transaction,
        query=context.query,
        sink=context.sink,
        told=f"chk-{found.epoch} of the sink {context.sink}, staged and perhaps decided: it waits in {address.shown}"
        f"{since}, and the books of this target do not have it; a sink with another target may have it there",
        blocks=BLOCKS,
        if_lost=f"{remove} does; its rows are gone then",
    )
