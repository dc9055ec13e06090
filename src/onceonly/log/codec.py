"""What a file of the log holds: a sealed header, then the value as JSON. Pure; no I/O.

A reader takes a file as a whole or refuses it by name: of a newer version, of another kind, torn, damaged, or
with a field that this version does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from onceonly.sealed import UNREADABLE, Format

T = TypeVar("T")

VERSION = 1
_FORMAT = Format(
    name="onceonly",
    version=VERSION,
    restore="restore this file from a backup of the checkpoint, or start on a new checkpoint",
)


def encode(kind: str, value: object) -> bytes:
    """Give the file's content. The same value always gives the same bytes."""
    return _FORMAT.seal(kind, msgspec.json.encode(value, enc_hook=_plain, order="deterministic"))


def decode(data: bytes, *, kind: str, into: type[T], where: str) -> T:
    """Give the value of a file's content. ``where`` is the file's full address, for the error.

    Raises ``LogError``; never gives a part of a value.
    """
    body = _FORMAT.unseal(data, kind=kind, where=where)
    try:
        value = msgspec.json.decode(body, type=into)
    except UNREADABLE as error:
        raise _FORMAT.refuse(f"{where} does not hold a valid {kind}: {error}") from None
    if msgspec.json.decode(body) != msgspec.json.decode(msgspec.json.encode(value)):
        # Dataclasses drop what they do not know; to go on without knowing what it said is not safe.
        raise _FORMAT.refuse(
            f"{where} has fields that format {VERSION} does not have: something else wrote it"
        )
    return value


def _plain(value: Any) -> Any:  # noqa: ANN401  msgspec's hook takes anything
    if isinstance(value, Mapping):
        return dict(value)
    message = f"{type(value).__name__} cannot go into the decision log"
    raise TypeError(message)
