"""What a manifest says: the files of whole epochs. Pure; no I/O, no Spark, no pyarrow.

A manifest file is one line of header, then a line of JSON for each epoch::

    {"format":"onceonly.files","kind":"manifest","version":1,"length":188,"checksum":"sha256:…"}
    {"epoch":7,"layout":"5f0c…","files":[["day=1/part-7-0-….parquet",4096,120,"91ab…"]]}

So several are merged by putting their lines together. A reader takes a file as a whole or refuses it by name.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec
import xxhash

from onceonly.durable.sealed import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_FORMAT = Format(
    name="onceonly.files",
    version=1,
    restore="put this file back from a backup of the target; the data files themselves are whole",
)


class DataFile(msgspec.Struct, frozen=True, array_like=True):
    """One file: its path below the target, and what is in it. ``checksum`` is xxh3 of its bytes, in hex."""

    path: str
    bytes: int
    rows: int
    checksum: str


class Counted:
    """What has ``files``, and so rows and bytes."""

    __slots__ = ()
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All files of one epoch of one sink of one query. ``layout`` names how they are read."""

    epoch: int
    layout: str
    files: tuple[DataFile, ...]


class _Number(msgspec.Struct, frozen=True):
    """The number alone of a manifest's epoch."""

    epoch: int


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How files are read: ``columns`` are names with Spark's types, partition columns included.

    ``reading`` are more options of Spark's reader; it is not written where there are none.
    """

    format: str
    columns: tuple[tuple[str, str], ...]
    partition_by: tuple[str, ...] = ()
    header: bool = False
    sep: str = ","
    reading: tuple[tuple[str, str], ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def key(self) -> str:
        """The name of this layout: equal for equal layouts."""
        return str(xxhash.xxh3_64(msgspec.json.encode(self)).hexdigest())


def encode_manifests(manifests: Iterable[Manifest]) -> bytes:
    """Return the content of a manifest file. Equal manifests always give equal bytes."""
    return _FORMAT.seal("manifest", b"\n".join(map(msgspec.json.encode, manifests)))


def decode_manifests(data: bytes, *, where: str) -> tuple[Manifest, ...]:
    """Read the content of a manifest file. Raises ``LogError`` that names the file."""
    lines = _FORMAT.unseal(data, kind="manifest", where=where).splitlines()
    return tuple(_FORMAT.decode(line, Manifest, where=where) for line in lines)


def manifests_after(data: bytes, epoch: int, *, where: str) -> Iterator[Manifest]:
    """Read what a manifest file has after an epoch, oldest first, a line at a time: others are not decoded.

    Raises ``LogError`` that names the file.
    """
    lines = _FORMAT.unseal(data, kind="manifest", where=where).splitlines()
    begin = bisect_right(lines, epoch, key=lambda line: _FORMAT.decode(line, _Number, where=where).epoch)
    return (_FORMAT.decode(line, Manifest, where=where) for line in lines[begin:])


def join_manifests(contents: Iterable[tuple[bytes, str]]) -> bytes:
    """Make one manifest file of several, each given with its name, oldest first. Reads the epochs' numbers alone.

    An epoch that two of them hold is there once. Raises ``LogError`` that names a damaged one, or one that holds other
    files for an epoch than one before it.
    """
    lines: dict[int, bytes] = {}
    for data, where in contents:
        for line in _FORMAT.unseal(data, kind="manifest", where=where).splitlines():
            if lines.setdefault(_FORMAT.decode(line, _Number, where=where).epoch, line) != line:
                raise _FORMAT.refuse(
                    f"{where} holds other files for an epoch than another manifest file does"
                )
    return _FORMAT.seal("manifest", b"\n".join(lines[epoch] for epoch in sorted(lines)))


def encode_layout(layout: Layout) -> bytes:
    """Return the content of a layout file."""
    return _FORMAT.seal("layout", msgspec.json.encode(layout))


def decode_layout(data: bytes, *, where: str) -> Layout:
    """Read the content of a layout file. Raises ``LogError`` that names the file."""
    return _FORMAT.read(data, Layout, kind="layout", where=where)
