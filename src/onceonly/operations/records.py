"""The records of commands that tidy up: who dropped or expired what, when and why. They never stand in its way.

In ``upkeep/`` of the log of the checkpoint that it concerns; where that is not known or has no such log any more,
beside what was changed. Not synced: a disk that fails costs the record, and nothing else.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from onceonly import background, events
from onceonly.errors import OnceonlyError
from onceonly.log import identity
from onceonly.log.actions import UPKEEP, Action, ActionFiles, user
from onceonly.log.place import FOLDER, notes_store
from onceonly.operations.find import open_checkpoint
from onceonly.stores.address import Kind, parse
from onceonly.stores.folder import UnsyncedStore
from onceonly.stores.opened import folder_of, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceonly.operations.find import Checkpoint
    from onceonly.savepoints.place import Standing
    from onceonly.stores.address import Address
    from onceonly.stores.port import RewritableStore

BESIDE: Final = "onceonly-records"
"""The folder beside what was changed, where no log can hold the record."""
_WAIT_S: Final = 10.0
NO_EPOCH: Final = -1
"""The epoch of a record that concerns none that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """Where a record goes: a store, what people call it, and the newest epoch of its log."""

    store: Callable[[], RewritableStore]
    where: str
    epoch: int = NO_EPOCH


class Entry:
    """One record that is being written. ``after`` says how it ended, empty where it was broken off.

    ``told`` says where it stands, or why it does not.
    """

    def __init__(self) -> None:
        self.after = ""
        self.told: list[str] = []


def of_checkpoint(checkpoint: Checkpoint) -> Book:
    """Return the book of a checkpoint. Raises ``UnavailableError``."""
    newest = checkpoint.log.newest()
    return Book(
        store=lambda: notes_store(checkpoint.location),
        where=f"{checkpoint.path}/{FOLDER}/{UPKEEP}",
        epoch=NO_EPOCH if newest is None else newest,
    )


def beside(address: Address) -> Book:
    """Return the book beside what may be gone afterwards."""
    above = replace(address, path=address.path.rpartition("/")[0])
    return inside(above.below(BESIDE))


def inside(address: Address) -> Book:
    """Return the book in a folder that has no log."""
    return Book(store=lambda: _open(address), where=f"{address.shown}/{UPKEEP}")


def of_savepoint(found: Standing) -> Book:
    """Return the book of the checkpoint that a savepoint was made of; beside it, where that log is not there."""
    made = found.savepoint
    if made is not None and not _is_strange(parse(made.home), found.address):
        home = made.home
        asked = background.begin("onceonly-record", lambda: _of_log(home, made.log))
        wait([asked], _WAIT_S)
        with contextlib.suppress(OnceonlyError, OSError):
            book = asked.result() if asked.done() else None
            if book is not None:
                return replace(book, epoch=made.epoch)
    book = beside(found.address)
    return book if made is None else replace(book, epoch=made.epoch)


@contextlib.contextmanager
def kept(book: Book, *, command: str, because: str, before: str) -> Iterator[Entry]:
    """Keep a record of what is done inside: put before it, and again with how it ended. Raises what that raises."""
    entry = Entry()
    action = Action(
        command=command, epoch=book.epoch, who=user(), stamp=events.stamp(), because=because, before=before
    )
    problem = _put(book, action)
    try:
        yield entry
    except OnceonlyError as error:
        entry.after = f"stopped: {error.what}"
        raise
    finally:
        # One that did not answer is not waited for again.
        problem = problem or _put(book, replace(action, after=entry.after))
        entry.told.append(
            f"no whole record of it could be left in {book.where}: {problem}"
            if problem
            else f"it is recorded in {book.where}"
        )


def _put(book: Book, action: Action) -> str:
    """Put a record; say why it could not be, empty where it was."""
    asked = background.begin("onceonly-record", lambda: ActionFiles(book.store(), UPKEEP).put(action))
    wait([asked], _WAIT_S)
    try:
        if not asked.done():
            return f"no answer within {_WAIT_S:g} s"
        asked.result()
    except OnceonlyError as error:
        return error.what
    except Exception as error:  # noqa: BLE001  whatever it is, the act goes on
        return f"{type(error).__name__}: {error}"
    return ""


def _of_log(home: str, log: str) -> Book | None:
    """Return the book of a checkpoint, None where another log stands there."""
    checkpoint = open_checkpoint(home)
    found = identity.read(checkpoint.store)
    if found is None or found.log != log:
        return None
    return of_checkpoint(checkpoint)


def _is_strange(home: Address, here: Address) -> bool:
    """Say whether a login would go to a host because a file names it: that of Azure is a part of the address."""
    return home.kind is Kind.AZURE and home.host != here.host


def _open(address: Address) -> RewritableStore:
    folder = folder_of(address)
    return open_store(address) if folder is None else UnsyncedStore(folder)
