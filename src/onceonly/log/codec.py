"""What a file of the log holds: a sealed header, then the value as JSON. Pure; no I/O.

A reader takes a file as a whole or refuses it by name: of a newer version, of another kind, torn, damaged, or
with a field that this version does not know. Files of an earlier version are read; what they could not say yet has its
default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from onceonly.durable.sealed import UNREADABLE, Format

T = TypeVar("T")

VERSION = 2
"""2: times for people (``Stamp``) in links, votes, receipts and history, and what an epoch read in its decision
(``Inputs``). 1 is read as ever."""
_FORMAT = Format(
    name="onceonly",
    version=VERSION,
    restore="restore this file from a backup of the checkpoint, or start on a new checkpoint",
)


def encode(kind: str, value: object) -> bytes:
    """Return the file's content. The same value always gives the same bytes."""
    return _FORMAT.seal(kind, msgspec.json.encode(value, enc_hook=_plain, order="deterministic"))


def decode(data: bytes, *, kind: str, into: type[T], where: str) -> T:
    """Return the value of a file's content. ``where`` is the file's full address, for the error.

    Raises ``LogError``; never gives a part of a value.
    """
    body = _FORMAT.unseal(data, kind=kind, where=where)
    try:
        value = msgspec.json.decode(body, type=into)
    except UNREADABLE as error:
        raise _FORMAT.refuse(f"{where} does not hold a valid {kind}: {error}") from None
    if not _holds(msgspec.json.decode(msgspec.json.encode(value)), msgspec.json.decode(body)):
        # Dataclasses drop what they do not know; to go on without knowing what it said is not safe.
        raise _FORMAT.refuse(
            f"{where} has fields that format {VERSION} does not have: something else wrote it"
        )
    return value


def _holds(value: Any, told: Any) -> bool:  # noqa: ANN401  what JSON holds
    """Say whether all that a file told is in the value, which may have more: defaults of newer fields."""
    if value == told:
        return True
    if isinstance(value, dict) and isinstance(told, dict):
        return all(key in value and _holds(value[key], item) for key, item in told.items())
    if isinstance(value, list) and isinstance(told, list):
        return len(value) == len(told) and all(map(_holds, value, told))
    return False


def _plain(value: Any) -> Any:  # noqa: ANN401  msgspec's hook takes anything
    if isinstance(value, Mapping):
        return dict(value)
    message = f"{type(value).__name__} cannot go into the decision log"
    raise TypeError(message)
