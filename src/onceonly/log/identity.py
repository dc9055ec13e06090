"""Whose log this is, and where: so that a copied or moved checkpoint is noticed before it is used.

``identity.json`` never changes. A move that was accepted is a further file, ``identity.1.json``, ``identity.2.json``
and so on: the last of them counts.
"""

from __future__ import annotations

import shlex
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import CheckpointMovedError, LogError
from onceonly.log import files, place
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from onceonly.stores.port import Store

FOLDER = place.FOLDER
NAME = "identity.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What ``identity.json`` holds. ``log`` is drawn once; ``address`` is where the log is at home."""

    query: str
    log: str
    address: str


def address(checkpoint: str) -> str:
    """Return the canonical address: of a folder, with its links resolved, as a ``file:`` address. Driver."""
    return place.home_of(checkpoint)


def identity_token(checkpoint: str) -> str | None:
    """Return the log's uuid, None where there is no log. Driver and executor, any number of times; one read.

    An executor that gets another answer than the driver does not share the checkpoint. Raises ``LogError``
    where the file is damaged, ``UnavailableError`` where it cannot be read.
    """
    identity = read(place.log_store(checkpoint))
    return identity.log if identity is not None else None


def read(store: Store) -> Identity | None:
    """Read the identity as the last accepted move left it, None where there is none. One read a move, and two."""
    moves = trail(store)
    return moves[-1] if moves else None


def trail(store: Store) -> list[Identity]:
    """Read where the log was made and where it has moved since, oldest first. Raises ``LogError``."""

    def one(move: int) -> Identity | None:
        return files.read(store, _name(move), kind="identity", into=Identity)

    found: list[Identity] = []
    while True:
        moves = range(len(found), len(found) + 1) if found else range(2)  # most logs have never moved
        for identity in background.spread("onceonly-read", one, moves, threads_max=store.abreast):
            if identity is None:
                return found
            if found and (identity.query, identity.log) != (found[0].query, found[0].log):
                raise LogError(
                    f"{store.where(_name(len(found)))} is of another log than {NAME} beside it: a file was copied by "
                    "hand",
                    next_step=files.PUT_BACK,
                )
            found.append(identity)


def record_move(store: Store, address: str, *, former: str | None = None) -> Identity:
    """Make ``address`` the log's home; return the identity that then stands. Idempotent.

    Operator's process. Another one that does the same at the same moment is no harm; one that records another
    address is found by ``compare`` afterwards. With ``former``, nothing is recorded where the log is at home elsewhere
    than there. Raises ``UnavailableError``, ``LogError``.
    """
    moves = trail(store)
    if not moves:
        raise LogError(
            f"there is no decision log at {store.where(NAME)}, so there is nothing that could have moved",
            next_step="name the folder of the query's checkpoint, the one that holds `onceonly`",
        )
    if moves[-1].address != address and former in {None, moves[-1].address}:
        put_once(store, _name(len(moves)), files.encode("identity", replace(moves[-1], address=address)))
    return trail(store)[-1]


def _name(move: int) -> str:
    return f"identity.{move}.json" if move else NAME


def create(store: Store, *, query: str, address: str) -> Identity:
    """Put an identity, and return the one that stands: another process may have been faster."""
    identity = Identity(query=query, log=uuid.uuid4().hex, address=address)
    data = files.encode("identity", identity)
    if put_once(store, NAME, data) == data:
        return identity
    standing = read(store)
    if standing is None:
        raise LogError(
            f"{store.where(NAME)} vanished right after it was written: something removes files there",
            next_step="find out what cleans this folder, and start the query again",
        )
    return standing


def whose(checkpoint: str, query: str) -> str:
    """Say what to do where Spark's file in a checkpoint names another query than the log, which is that of ``query``.

    Pure. Two jobs may share the folder; or the file was lost, as where a backup is put back by its folders alone, and
    then Spark gives the query a new id, whose epochs the log does not know.
    """
    path = f"{checkpoint.removeprefix('file://')}/metadata"
    return (
        "give each query a checkpoint of its own; but if no other job works here, Spark has lost its file, and given "
        f'the query a new id: end the job, write {{"id":"{query}"}} into {path}, and start it again'
    )


def compare(identity: Identity, store: Store, *, query: str, address: str) -> None:
    """Raise where the log is another query's, or at home elsewhere."""
    if identity.query != query:
        raise LogError(
            f"{store.where(NAME)} belongs to the query {identity.query}, not to {query}",
            next_step=whose(address, identity.query),
        )
    if identity.address != address:
        raise CheckpointMovedError(
            f"the checkpoint of query {query} is at home at {identity.address} and is now at {address}: copied "
            "or moved, so two queries might believe they own the same transactions",
            next_step="if it was moved on purpose and no copy is in use, run: onceonly checkpoints accept-move "
            f"{shlex.quote(address.removeprefix('file://'))}; else put it back, or start on a new checkpoint",
        )
