"""What a manifest says: the files of whole epochs. Pure; no I/O, no Spark, no pyarrow.

A manifest file is one line of header, then a line of JSON for each epoch::

    {"format":"onceonly.files","kind":"manifest","version":1,"length":188,"checksum":"sha256:…"}
    {"epoch":7,"layout":"5f0c…","files":[["day=1/part-7-0-….parquet",4096,120,"91ab…"]]}

So several are merged by putting their lines together. A reader takes a file as a whole or refuses it by name.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeVar

import msgspec
import xxhash

from onceonly.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Iterable

S = TypeVar("S", bound=msgspec.Struct)

FORMAT = "onceonly.files"
VERSION = 1
# msgspec lets a wrong byte inside a string through to Python.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
_RESTORE = "restore this file from a backup of the target; the data files themselves are whole"


class DataFile(msgspec.Struct, frozen=True, array_like=True):
    """One file: its path below the target, and what is in it. ``checksum`` is xxh3 of its bytes, in hex."""

    path: str
    bytes: int
    rows: int
    checksum: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All files of one epoch of one sink of one query. ``layout`` names how they are read."""

    epoch: int
    layout: str
    files: tuple[DataFile, ...]


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How files are read: ``columns`` are names with Spark's types, partition columns included."""

    format: str
    columns: tuple[tuple[str, str], ...]
    partition_by: tuple[str, ...] = ()
    header: bool = False
    sep: str = ","

    @property
    def key(self) -> str:
        """The name of this layout: equal for equal layouts."""
        return str(xxhash.xxh3_64(msgspec.json.encode(self)).hexdigest())


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


def encode_manifests(manifests: Iterable[Manifest]) -> bytes:
    """Give the content of a manifest file. Equal manifests always give equal bytes."""
    return seal("manifest", b"\n".join(map(msgspec.json.encode, manifests)))


def decode_manifests(data: bytes, *, where: str) -> tuple[Manifest, ...]:
    """Read the content of a manifest file. Raises ``LogError`` that names the file."""
    lines = unseal(data, "manifest", where=where).splitlines()
    return tuple(_value(line, Manifest, where) for line in lines)


def encode_layout(layout: Layout) -> bytes:
    """Give the content of a layout file."""
    return seal("layout", msgspec.json.encode(layout))


def decode_layout(data: bytes, *, where: str) -> Layout:
    """Read the content of a layout file. Raises ``LogError`` that names the file."""
    return _value(unseal(data, "layout", where=where), Layout, where)


def seal(kind: str, body: bytes) -> bytes:
    """Put a header with version, length and checksum before a body."""
    header = _Header(format=FORMAT, kind=kind, version=VERSION, length=len(body), checksum=_checksum(body))
    return msgspec.json.encode(header) + b"\n" + body


def unseal(data: bytes, kind: str, *, where: str) -> bytes:
    """Give the body back. Raises ``LogError`` for what is torn, damaged, foreign or of a newer version."""
    line, newline, body = data.partition(b"\n")
    if not newline:
        raise LogError(f"{where} is empty or torn: damaged on its way to or on the disk", next_step=_RESTORE)
    known = _value(line, _Version, where)
    if known.format != FORMAT:
        raise LogError(f"{where} was not written by the file sink of onceonly", next_step=_RESTORE)
    if known.version > VERSION:
        raise LogError(
            f"{where} has format {known.version}, written by a newer onceonly; this one reads up to {VERSION}",
            next_step="upgrade onceonly to the version that wrote the target",
        )
    header = _value(line, _Header, where)
    if header.kind != kind:
        raise LogError(
            f"{where} holds a {header.kind!r} where a {kind!r} belongs: it was moved by hand",
            next_step=_RESTORE,
        )
    if (header.length, header.checksum) != (len(body), _checksum(body)):
        raise LogError(f"{where} is torn, damaged or was changed by hand", next_step=_RESTORE)
    return body


def _value(data: bytes, kind: type[S], where: str) -> S:
    try:
        return msgspec.json.decode(data, type=kind)
    except _UNREADABLE as error:
        raise LogError(f"{where} is damaged: {error}", next_step=_RESTORE) from None


def _checksum(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()
