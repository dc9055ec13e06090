"""What operators have done by hand while a job was down, or begun to do, in words for its start. Driver; reads only."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING

from onceonly.errors import InDoubtError, OnceonlyError
from onceonly.log.actions import ActionFiles
from onceonly.log.place import log_store
from onceonly.stores.opened import address_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from onceonly.log.actions import Action


def since(checkpoint: str, epoch: int) -> Iterator[Action]:
    """Yield what was done to this epoch, to the one before or a later one, oldest first; nothing if it is not known."""
    with suppress(OnceonlyError):  # for people: the query goes on
        for action in reversed(ActionFiles(log_store(checkpoint)).newest()):
            if action.epoch >= epoch - 1:
                yield action


def in_doubt(error: InDoubtError, checkpoint: str, epoch: int, applications: Collection[str]) -> InDoubtError:
    """Return the error of an epoch in doubt, with the commands that tell more.

    Where an abort against its decision has put no link, with that.

    It was killed, or stopped on its way: what it has aborted, no link says to be given up, and its target alone may not
    prove it. ``applications`` are those of the links.
    """
    aborts = [each for each in since(checkpoint, epoch) if each.command == "abort" and each.against]
    path = shlex.quote(address_of(checkpoint).shown)
    if not aborts or aborts[-1].plan in applications:
        return InDoubtError(
            error.what,
            next_step=f"{error.next_step} If it comes again: onceonly transactions list {path} names what is in doubt, "
            f"and onceonly transactions explain TRANSACTION {path} what to type. Where nobody can tell for good, and "
            "its rows are not in the target: onceonly savepoint create, and savepoint fork --same-targets, which "
            "writes them again",
        )
    return InDoubtError(
        f"{error.what} {aborts[-1].sentence}",
        next_step=f"onceonly transactions abort chk-{aborts[-1].epoch} {path} --against-decision --because TEXT ends "
        "what was begun; or, if it is not that, mend the target, and start the query again",
    )
