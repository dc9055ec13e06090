"""Spark's files of one checkpoint, read and written through the store that they are on.

Small, whole, and read anew at each call. On stores of objects and on HDFS a file is durable when it is there, and to
restore one is to put it over the other; in a folder there is more to do, which ``FolderFiles`` does.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

from onceonly.durable import disk
from onceonly.errors import LogError, UnavailableError
from onceonly.stores.folder import LocalStore
from onceonly.stores.opened import address_of, folder_of, open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceonly.stores.port import RewritableStore


class CheckpointFiles:
    """The files of a checkpoint by their names in it: ``offsets/7``. Driver, planner or commit process."""

    folder: Path | None = None
    """Where they are, if that is a file system: there, Spark's files have to be synced, and a power loss tears them."""

    def __init__(self, store: RewritableStore) -> None:
        self._store = store

    @property
    def abreast(self) -> int:
        """How many requests to make at the same time: 1 where each is over sooner than a thread is woken."""
        return self._store.abreast

    def where(self, name: str) -> str:
        """Return the full address, for people."""
        return self._store.where(name)

    def text(self, name: str) -> str | None:
        """Read a file, None where there is none. Raises ``UnavailableError``, ``LogError`` for what is no text."""
        data = self._store.get(name)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise LogError(
                f"{self.where(name)} does not hold text: damaged",
                next_step="put this file of Spark's back from a backup of this checkpoint, or start on a new one",
            ) from error

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder (``offsets``), without hidden ones. Raises ``UnavailableError``."""
        return [name.rpartition("/")[2] for name in self._store.list_names(f"{folder}/")]

    def folders(self, folder: str = "") -> list[str]:
        """Return the names of the folders in a folder, or in the checkpoint. Raises ``UnavailableError``."""
        return self._store.list_folders(f"{folder}/" if folder else "")

    def numbers(self, folder: str) -> list[int]:
        """Return the numbers that are names of files in a folder: epochs, versions. Raises ``UnavailableError``."""
        return [int(name) for name in self.names(folder) if name.isdecimal()]

    def write(self, name: str, text: str) -> None:
        """Write a file durably, over what is there. Raises ``UnavailableError``."""
        self._store.replace(name, text.encode())

    def take(self, name: str, is_it: Callable[[str], bool]) -> bool:
        """Take a file away, if ``is_it`` says so of its text; say whether it is gone by us.

        Whoever writes over it between the look and this removal finds his own file gone when he decides, and reads
        anew. Raises ``UnavailableError``.
        """
        text = self.text(name)
        if text is None or not is_it(text):
            return False
        self._store.delete(name)
        return True


class FolderFiles(CheckpointFiles):
    """Files in a folder, beside which Hadoop may keep checksums."""

    folder: Path

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalStore(folder))
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        try:
            # Spark refuses a file whose checksum is another file's; one without is taken.
            self._remove_checksum(self.folder / name)
        except OSError as error:
            raise _unavailable(error, self.folder / name) from error
        super().write(name, text)

    def take(self, name: str, is_it: Callable[[str], bool]) -> bool:
        path = self.folder / name
        taken = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        try:
            # What is looked at cannot be written over by a rename any more.
            path.rename(taken)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unavailable(error, path) from error
        try:
            gone = is_it(taken.read_text(encoding="utf-8", errors="replace"))
            if gone:
                self._remove_checksum(path)
            else:
                with contextlib.suppress(FileExistsError):
                    path.hardlink_to(taken)
            taken.unlink()
            disk.sync(path.parent)
        except OSError as error:
            raise _unavailable(error, path) from error
        return gone

    def _remove_checksum(self, path: Path) -> None:
        checksum = path.with_name(f".{path.name}.crc")
        if checksum.exists():
            checksum.unlink(missing_ok=True)
            disk.sync(path.parent)


def files_of(checkpoint: str) -> CheckpointFiles:
    """Return the files of a checkpoint by its address. Nothing is read yet. Raises ``ConfigurationError``."""
    address = address_of(checkpoint)
    folder = folder_of(address)
    return FolderFiles(folder) if folder is not None else CheckpointFiles(open_store(address))


def _unavailable(error: OSError, path: Path) -> UnavailableError:
    return UnavailableError(
        f"{error.filename or path} cannot be written: {error}",
        next_step="see to the checkpoint's file system and start the query again",
    )
