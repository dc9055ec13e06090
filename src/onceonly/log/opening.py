"""Opening a log: everything that is checked before the first record."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import ConfigurationError, LogError
from onceonly.log import files, identity, left
from onceonly.log.decision_log import FileDecisionLog
from onceonly.log.place import log_store
from onceonly.log.survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.log.survey import Survey
    from onceonly.stores.port import RewritableStore, Store

# The protocol looks at an epoch and at the one before.
_KEEP_MIN = 2


def open_log(
    checkpoint: str,
    *,
    query: str,
    keep: int = 100,
    create: bool,
    aside: bool = False,
    before_made: Callable[[], None] = lambda: None,
) -> FileDecisionLog:
    """Open the decision log of a query, in the folder ``onceonly`` of its checkpoint.

    Driver, planner (``create=True``) and commit process (``create=False``), once a process; idempotent.
    ``query`` is the query's id, ``keep`` the number of newest epochs whose details stay. With ``create`` the
    log is made if there is none, after ``before_made``, the store is tried, every detail is read, and what broken-off
    puts left is cleared away; with ``aside`` it is folded beside the epochs. Raises ``ConfigurationError``,
    ``CheckpointMovedError``, ``LogError`` (naming the file) or ``UnavailableError``.
    """
    if keep < _KEEP_MIN:
        raise ConfigurationError(
            f"the decision log cannot keep the details of only {keep} epochs",
            next_step=f"keep at least {_KEEP_MIN}",
        )
    address = identity.address(checkpoint)
    store = log_store(checkpoint)
    try_it = _trying(store) if create else lambda: None
    found, held = _look(store)
    is_new = found is None
    if found is None:
        if create:
            before_made()
            try_it()
        found = _missing(store, held, query=query, address=address, create=create)
    log = FileDecisionLog(store, query=query, keep=keep, aside=aside, token=found.log)
    log.learn(held)
    left.require_home(found, log, store, query=query, address=address, path=checkpoint)
    if create:
        log.verify(held)
        if not is_new:
            try_it()
        _clear(store)
    return log


def begin_log(checkpoint: str, *, query: str) -> FileDecisionLog:
    """Open the log of a folder, whatever query it is of; where there is none, make that of ``query``.

    Planner process, for a query whose id nobody else keeps; idempotent. Of two that make it at once, both get the log
    of the first. It is only to be read. Raises as ``open_log``.
    """
    store = log_store(checkpoint)
    found, held = _look(store)
    if found is None:
        store.prepare(files.FOLDERS)
        found = _missing(store, held, query=query, address=identity.address(checkpoint), create=True)
    return _to_read(store, found, held)


def look(checkpoint: str) -> tuple[FileDecisionLog, identity.Identity]:
    """Open a log for tools: nothing is made, tried or cleared away, and a move is for the caller to see.

    Any process. Raises ``LogError`` (naming the file; ``what`` says so where there is no log), ``UnavailableError``.
    """
    store = log_store(checkpoint)
    found, held = _look(store)
    if found is None:
        found = _missing(store, held, query="", address="", create=False)
    return _to_read(store, found, held), found


def query_of(checkpoint: str) -> str:
    """Return the id of the query whose log a folder holds. Any process; one round of reads.

    Raises ``LogError`` (also where there is no log), ``UnavailableError``.
    """
    store = log_store(checkpoint)
    found = identity.read(store)
    if found is None:
        found = _missing(store, survey(store), query="", address="", create=False)
    return found.query


def owners(checkpoint: str) -> tuple[str, ...]:
    """Name the applications that put the links of a log, oldest first, neighbours once. Driver; only looks.

    Raises ``LogError`` (also where there is no log), ``UnavailableError``.
    """
    return look(checkpoint)[0].owners()


def accept_move(checkpoint: str) -> identity.Identity:
    """Make the place where a checkpoint is now its home. Operator's process; idempotent.

    The caller has made sure that no run is alive and that the former place is no more. Raises ``LogError``
    where there is no log, or something else is at home here; ``UnavailableError``.
    """
    store = log_store(checkpoint)
    address = identity.address(checkpoint)
    standing = identity.record_move(store, address)
    identity.compare(standing, store, query=standing.query, address=address)
    return standing


def _look(store: Store) -> tuple[identity.Identity | None, Survey]:
    return background.at_once(store.abreast, lambda: identity.read(store), lambda: survey(store))


def _to_read(store: Store, found: identity.Identity, held: Survey) -> FileDecisionLog:
    log = FileDecisionLog(store, query=found.query, keep=sys.maxsize, token=found.log)
    log.learn(held)
    return log


def _trying(store: RewritableStore) -> Callable[[], None]:
    """Give what sees that a store is fit; a distant one is being tried from now on, while its log is read."""
    if store.abreast == 1:
        return lambda: store.prepare(files.FOLDERS)
    return background.begin("onceonly-try", store.prepare, files.FOLDERS).result


def _clear(store: Store) -> None:
    """Take away what broken-off puts left: from a distant store beside the epochs, as nobody waits for it."""
    if store.abreast == 1:
        store.drop_leftovers(lambda _name: False)
    else:
        background.begin("onceonly-clear", store.drop_leftovers, lambda _name: False)


def _missing(store: Store, held: Survey, *, query: str, address: str, create: bool) -> identity.Identity:
    """Make the identity, but only in a log that is empty."""
    if held.newest is None and create:
        return identity.create(store, query=query, address=address)
    # Read again: another process may have made it, and put a link, since the first look.
    found = identity.read(store)
    if found is not None:
        return found
    if held.newest is not None:
        there = files.link(min(held.chains), 0) if held.chains else files.segment(*held.segments[0])
        raise LogError(
            f"{store.where(identity.NAME)} is missing, though there is {there}: removed by hand, or the "
            "checkpoint was restored in part",
            next_step=files.PUT_BACK,
        )
    raise LogError(
        f"there is no decision log at {store.where('').rstrip('/')}: the planner makes it before the first epoch",
        next_step="start the query again; if this stays, the checkpoint is not shared by its processes",
    )
