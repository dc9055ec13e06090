"""Whose log this is, and where: so that a copied or moved checkpoint is noticed before it is used."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import CheckpointMovedError, ConfigurationError, LogError
from onceonly.log import codec
from onceonly.log.local import LocalStore
from onceonly.log.store import put_once

if TYPE_CHECKING:
    from onceonly.log.store import Store

FOLDER = "onceonly"
NAME = "identity.json"
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What ``identity.json`` holds. ``log`` is drawn once; ``address`` is where the log was made."""

    query: str
    log: str
    address: str


def checkpoint_path(checkpoint: str) -> Path:
    """Give the folder of a ``checkpointLocation``: a path, ``file:/x`` or ``file:///x``. Anywhere; pure.

    Percent signs are taken as they are, because Hadoop's ``Path``, by which Spark makes the folder, does not
    decode them either. Raises ``ConfigurationError`` for any other scheme.
    """
    match = _SCHEME.fullmatch(checkpoint)
    # As in Hadoop, a colon after the first slash is part of a name.
    if match is None or "/" in match["scheme"]:
        path = checkpoint
    elif match["scheme"].lower() != "file":
        raise ConfigurationError(
            f"the checkpoint {checkpoint} is on {match['scheme'].lower()}:, where the decision log cannot live "
            "yet: object stores and HDFS come later",
            next_step="put checkpointLocation on a local disk, or on a mount that all machines share",
        )
    else:
        path = _without_authority(match["rest"], checkpoint)
    if not path:
        raise ConfigurationError(
            "checkpointLocation is empty", next_step="set it to the folder of the query's checkpoint"
        )
    return Path(path).absolute()


def _without_authority(rest: str, checkpoint: str) -> str:
    authority, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    path = slash + path
    if authority not in {"", "localhost"} or not path.startswith("/"):
        raise ConfigurationError(
            f"the checkpoint {checkpoint} is not an absolute path of this machine",
            next_step="write it as /path or file:///path",
        )
    return path


def address(checkpoint: str) -> str:
    """Give the canonical address: links resolved, as a ``file:`` address. Driver."""
    return "file://" + str(checkpoint_path(checkpoint).resolve())


def identity_token(checkpoint: str) -> str | None:
    """Give the log's uuid, None where there is no log. Driver and executor, any number of times; one read.

    An executor that gets another answer than the driver does not share the checkpoint. Raises ``LogError``
    where the file is damaged, ``UnavailableError`` where it cannot be read.
    """
    identity = read(LocalStore(checkpoint_path(checkpoint) / FOLDER))
    return identity.log if identity is not None else None


def read(store: Store) -> Identity | None:
    """Read the identity, None where there is none."""
    data = store.get(NAME)
    if data is None:
        return None
    return codec.decode(data, kind="identity", into=Identity, where=store.where(NAME))


def create(store: Store, *, query: str, address: str) -> Identity:
    """Put an identity, and give the one that stands: another process may have been faster."""
    identity = Identity(query=query, log=uuid.uuid4().hex, address=address)
    put_once(store, NAME, codec.encode("identity", identity))
    standing = read(store)
    if standing is None:
        raise LogError(
            f"{store.where(NAME)} vanished right after it was written: something removes files there",
            next_step="find out what cleans this folder, and start the query again",
        )
    return standing


def compare(identity: Identity, store: Store, *, query: str, address: str) -> None:
    """Raise where the log is another query's, or was made elsewhere."""
    if identity.query != query:
        raise LogError(
            f"{store.where(NAME)} belongs to the query {identity.query}, not to {query}",
            next_step="give each query a checkpoint of its own",
        )
    if identity.address != address:
        raise CheckpointMovedError(
            f"the checkpoint of query {query} was made at {identity.address} and is now at {address}: copied "
            "or moved, so two queries might believe they own the same transactions",
            next_step="start on a new checkpoint, or put this one back where it was made",
        )
