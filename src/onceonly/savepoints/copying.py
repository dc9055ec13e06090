"""Copying files from one place to another, whatever stores they are on, each with its size and checksum.

In one file system a copy is a link: neither Spark nor onceonly ever writes into a file that has its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

from onceonly import background, failpoints
from onceonly.durable import disk
from onceonly.errors import UnavailableError
from onceonly.savepoints.manifest import File
from onceonly.stores.opened import folder_of, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from onceonly.stores.address import Address

    Told: TypeAlias = Callable[[int, int, int], None]

# Each holds one file in memory, and a file of state may have 64 MB.
_AT_ONCE = 8
_PIECE = 1 << 20


def unheard(_done: int, _all: int, _bytes: int) -> None:
    """Tell nobody how far a copy has come: so many files of so many, and their bytes."""


def digest(data: bytes) -> str:
    """Return the checksum of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Copier:
    """Copies from one place into another. One thread for each call; the files several at a time on distant stores."""

    def __init__(self, source: Address, target: Address) -> None:
        self.source, self.target = open_store(source), open_store(target)
        self._folders = folder_of(source), folder_of(target)
        self.abreast = min(_AT_ONCE, max(self.source.abreast, self.target.abreast))

    def copy_all(
        self, names: Sequence[str], *, own: Mapping[str, bytes], told: Told
    ) -> tuple[list[File], list[str]]:
        """Copy files, or put their ``own`` bytes; give what was copied, and what is not there. Durable when it returns.

        Raises ``UnavailableError``.
        """
        done: list[File] = []

        def one(name: str) -> File | None:
            failpoints.hit("savepoint.before_copy")
            data = own.get(name)
            found = self.copy(name) if data is None else self.put(name, data)
            failpoints.hit("savepoint.after_copy")
            if found is not None:
                done.append(found)
                told(len(done), len(names), sum(each.bytes for each in done))
            return found

        found = background.spread("onceonly-copy", one, names, threads_max=self.abreast)
        self._sync({name.rpartition("/")[0] for name in names})
        copied = [each for each in found if each is not None]
        return copied, [name for name, each in zip(names, found, strict=True) if each is None]

    def copy(self, name: str) -> File | None:
        """Copy one file; None where it is not there. In a folder its name is not durable yet."""
        here, there = self._folders
        if here is not None and there is not None:
            try:
                linked = _link(here / name, there / name)
            except FileNotFoundError:
                return None
            if linked is not None:
                return File(name=name, bytes=linked[0], checksum=linked[1])
        if (
            type(self.source) is type(self.target)
            and (take := getattr(self.target, "take", None)) is not None
        ):
            data = take(self.source, name)
            return None if data is None else File(name=name, bytes=len(data), checksum=digest(data))
        data = self.source.get(name)
        return None if data is None else self.put(name, data)

    def put(self, name: str, data: bytes) -> File:
        """Put bytes, over what a copy that was broken off has left."""
        there = self._folders[1]
        if there is None:
            self.target.replace(name, data)
        else:
            try:
                _fresh(there / name)
                disk.write_new(there / name, data)
            except OSError as error:
                raise _unwritten(there / name, error) from error
        return File(name=name, bytes=len(data), checksum=digest(data))

    def _sync(self, folders: set[str]) -> None:
        there = self._folders[1]
        if there is None:
            return
        for folder in sorted(folders):
            with contextlib.suppress(FileNotFoundError):
                disk.sync(there / folder)


def _link(source: Path, target: Path) -> tuple[int, str] | None:
    """Link a file; give size and checksum, None where the two places cannot be linked. Raises ``FileNotFoundError``."""
    try:
        _fresh(target)
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        return None
    try:
        disk.sync(target)
        checksum, size = hashlib.sha256(), 0
        with target.open("rb") as file:
            while piece := file.read(_PIECE):
                checksum.update(piece)
                size += len(piece)
    except OSError as error:
        raise _unwritten(target, error) from error
    return size, f"sha256:{checksum.hexdigest()}"


def _fresh(path: Path) -> None:
    disk.make_folder(path.parent)
    path.unlink(missing_ok=True)


def _unwritten(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{path} could not be written: {error.strerror}",
        next_step="see to this file system (space, permissions) and run this again",
    )
