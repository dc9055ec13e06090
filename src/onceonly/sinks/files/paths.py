"""Names: places, partition folders as Hive and Spark write them, data files, and the hidden folder. Pure.

Spark's rules are those of ``ExternalCatalogUtils.escapePathName`` (Spark 4.2), with one addition: NUL, which
Spark's own writer cannot write, becomes ``%00``, and Spark reads it back.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.stores.address import Kind, parse
from onceonly.stores.opened import address_of, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.stores.address import Address

HIDDEN = "_onceonly"
"""The folder of the sink in a target. Spark passes over names that begin with an underscore."""
SPARK_METADATA = "_spark_metadata"
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
FILE_BYTES_MAX = 120
"""No name of a data file is longer."""
_ESCAPED = re.compile(r'[\x00-\x1f"#%\'*/:=?\\\x7f{\[\]^]')
_SHOWN = 60
_WHAT = "the file sink's path"
_SCHEME = re.compile(r"[a-z][a-z0-9]*")


class Room(NamedTuple):
    """How many bytes a target has for names: one of a folder, and all of a partition together."""

    name: int = 255
    """NAME_MAX of Linux's file systems, but for some that encrypt names, which take fewer."""
    folders: int = 2500
    """PATH_MAX of Linux, 4096, less the target's own path, the data file and the hidden folder."""


ROOM: Final = Room()


def escape(text: str) -> str:
    """Write a name so that it is one safe part of a path. ``unescape`` gives it back."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape(text: str) -> str:
    """Undo ``escape``."""
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), text)


def folder_of(columns: Sequence[str], values: Iterable[str | None], *, who: str, room: Room = ROOM) -> str:
    """Return the partition folder of some values, ``col=value/col=value``.

    As in Spark, null and the empty text both go to ``__HIVE_DEFAULT_PARTITION__``. Raises
    ``RecordRefusedError`` for values that no folder names can keep: they have the ``room`` of their target.
    """
    parts = [_part(column, value, who, room.name) for column, value in zip(columns, values, strict=True)]
    folder = "/".join(parts)
    if len(folder.encode()) > room.folders:
        raise RecordRefusedError(
            f"{who}: the partition folder {shorten(folder)!r} is longer than {room.folders} bytes",
            next_step="partition by fewer or shorter columns; the rows stay in the source",
        )
    return folder


def _part(column: str, value: str | None, who: str, name_bytes_max: int) -> str:
    if value == NULL_FOLDER:
        raise RecordRefusedError(
            f"{who}: the value {value!r} of the partition column {column} stands for null in a folder name",
            next_step="change the value before it is written; the rows stay in the source",
        )
    value = value or NULL_FOLDER
    part = f"{escape(column)}={escape(value)}"
    if len(part.encode()) > name_bytes_max:
        raise RecordRefusedError(
            f"{who}: the value {shorten(value)!r} of the partition column {column}, {len(value)} characters, "
            f"makes a folder name of {len(part.encode())} bytes, and {name_bytes_max} is the most",
            next_step="partition by something shorter (a prefix, a hash); the rows stay in the source",
        )
    return part


def shorten(text: str) -> str:
    """Cut a text for an error."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


class RemotePath(PosixPath):
    """A place off file systems, as its address: ``hdfs://namenode/out/day=1``. It only names; a store opens it."""

    __slots__ = ()

    def __str__(self) -> str:
        # A path has each slash once.
        text = super().__str__()
        scheme, colon, rest = text.partition(":/")
        return f"{scheme}://{rest}" if colon and _SCHEME.fullmatch(scheme) else text

    @property
    def address(self) -> Address:
        """The address of the same place."""
        return parse(str(self))

    @property
    def bucket(self) -> Address:
        """The address of the bucket, or of the whole file system, that it is in."""
        return replace(self.address, path="")


def target_path(text: str) -> Path:
    """Read the folder of an option, as Hadoop reads it. Raises ``ConfigurationError`` for where no files can be put."""
    address = address_of(text, what=_WHAT)
    if address.kind is Kind.FOLDER:
        return Path(address.path)
    if address.kind is Kind.HDFS and not address.container:
        default = parse(told().file_system)
        address = replace(address, container=default.container if default.kind is Kind.HDFS else "")
    if address.kind not in {Kind.HDFS, Kind.S3} or not address.container:
        raise ConfigurationError(
            f"{_WHAT} {address.location} is on {address.kind.system}, where files cannot be put yet"
            if address.container
            else f"{_WHAT} {address.location} names no name node",
            next_step="name a folder as s3a://bucket/folder, hdfs://namenode/folder, or one that all machines share as "
            "/folder",
        )
    return RemotePath(address.location)


def place(text: object) -> Path:
    """Read a place that was written down by its text."""
    written = str(text)
    scheme, colon, _ = written.partition("://")
    return RemotePath(written) if colon and _SCHEME.fullmatch(scheme) else Path(written)


def real(path: Path) -> Path:
    """Return the same for every way to write one place: links resolved, an address in its canonical form."""
    return RemotePath(path.address.text) if isinstance(path, RemotePath) else path.resolve()


def staging_folder(root: Path, query: str, sink: str) -> Path:
    """Return the folder of a query's temporary files for one sink."""
    return root / escape(query) / escape(sink)


def manifest_folder(target: Path, query: str, sink: str) -> Path:
    """Return the folder of a query's manifests for one sink."""
    return target / HIDDEN / "epochs" / escape(query) / escape(sink)
