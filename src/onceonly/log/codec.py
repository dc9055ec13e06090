"""What a file of the log holds: one line of header, then the value as JSON. Pure; no I/O.

::

    {"format":"onceonly","kind":"link","version":1,"length":812,"checksum":"sha256:…"}
    {"epoch":7,"index":0,"kind":"GLOBAL_COMMIT",…}

A reader takes a file as a whole or refuses it by name: of a newer version, of another kind, torn, damaged, or
with a field that this version does not know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from onceonly.errors import LogError

T = TypeVar("T")

FORMAT = "onceonly"
VERSION = 1
# msgspec lets a wrong byte inside a string through to Python.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
_RESTORE = "restore this file from a backup of the checkpoint, or start on a new checkpoint"


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    kind: str
    version: int
    length: int
    checksum: str


class _Version(msgspec.Struct, frozen=True):
    """What every version's header has."""

    format: str
    version: int


def encode(kind: str, value: object) -> bytes:
    """Give the file's content. The same value always gives the same bytes."""
    body = msgspec.json.encode(value, enc_hook=_plain, order="deterministic")
    header = _Header(format=FORMAT, kind=kind, version=VERSION, length=len(body), checksum=_checksum(body))
    return msgspec.json.encode(header) + b"\n" + body


def decode(data: bytes, *, kind: str, into: type[T], where: str) -> T:
    """Give the value of a file's content. ``where`` is the file's full address, for the error.

    Raises ``LogError``; never gives a part of a value.
    """
    line, newline, body = data.partition(b"\n")
    if not newline:
        raise LogError(f"{where} is empty or torn: damaged on its way to or on the disk", next_step=_RESTORE)
    _check_version(line, where)
    try:
        header = msgspec.json.decode(line, type=_Header)
    except _UNREADABLE as error:
        raise LogError(f"{where} has a damaged header: {error}", next_step=_RESTORE) from None
    if header.kind != kind:
        raise LogError(
            f"{where} holds a {header.kind!r} where a {kind!r} belongs: a file was moved by hand",
            next_step=_RESTORE,
        )
    if header.length != len(body):
        raise LogError(
            f"{where} is torn: {len(body)} bytes where its header says {header.length}", next_step=_RESTORE
        )
    if header.checksum != _checksum(body):
        raise LogError(f"{where} is damaged or was changed by hand: its checksum differs", next_step=_RESTORE)
    try:
        value = msgspec.json.decode(body, type=into)
    except _UNREADABLE as error:
        raise LogError(f"{where} does not hold a valid {kind}: {error}", next_step=_RESTORE) from None
    if msgspec.json.decode(body) != msgspec.json.decode(msgspec.json.encode(value)):
        # Dataclasses drop what they do not know; to go on without knowing what it said is not safe.
        raise LogError(
            f"{where} has fields that format {VERSION} does not have: something else wrote it",
            next_step=_RESTORE,
        )
    return value


def _check_version(line: bytes, where: str) -> None:
    try:
        header = msgspec.json.decode(line, type=_Version)
    except _UNREADABLE as error:
        raise LogError(f"{where} has a damaged header: {error}", next_step=_RESTORE) from None
    if header.format != FORMAT:
        raise LogError(f"{where} was not written by onceonly", next_step=_RESTORE)
    if header.version > VERSION:
        raise LogError(
            f"{where} has format {header.version}, written by a newer onceonly; this one reads up to {VERSION}",
            next_step="upgrade onceonly on driver and executors to the version that wrote the checkpoint",
        )
    if header.version < 1:
        raise LogError(f"{where} has format {header.version}, which never was", next_step=_RESTORE)


def _checksum(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()


def _plain(value: Any) -> Any:  # noqa: ANN401  msgspec's hook takes anything
    if isinstance(value, Mapping):
        return dict(value)
    message = f"{type(value).__name__} cannot go into the decision log"
    raise TypeError(message)
