"""Files on HDFS: folders and renames as on a disk, by the name node's word. Any process, without a JVM.

A rename is one step for everybody who looks, and the name node refuses it where the name is taken, so a commit is the
same as on a local disk. What the name node has answered is durable there.
"""

from __future__ import annotations

import errno
import io
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import xxhash

from onceonly.errors import OnceonlyError
from onceonly.sinks.files.paths import ROOM
from onceonly.stores.hdfs import HdfsStore, require_rights
from onceonly.stores.hdfs_answers import MISSING, NO_FOLDER, QUOTAS, TAKEN, RefusedError
from onceonly.stores.opened import told
from onceonly.stores.port import put_once
from onceonly.stores.webhdfs import BrokenOffError, WebHdfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from onceonly.sinks.files.paths import RemotePath, Room
    from onceonly.stores.webhdfs import Sending

_PIECE = 1 << 20
_READ = 8 << 20
_ERRORS = {
    MISSING: errno.ENOENT,
    TAKEN: errno.EEXIST,
    NO_FOLDER: errno.ENOTDIR,
    "PathIsNotDirectoryException": errno.ENOTDIR,
    **dict.fromkeys(QUOTAS, errno.EDQUOT),
}


class HdfsFiles:
    """The files of one HDFS; fulfils ``onceonly.sinks.files.store.Store``. Several threads may use one.

    Errors are ``OSError``, but for what stands in a sentence already: a right or a login that is missing
    (``ConfigurationError``), no name node that answers (``UnavailableError``).
    """

    def __init__(self, web: WebHdfs) -> None:
        self._web = web

    @classmethod
    def of(cls, target: RemotePath) -> HdfsFiles:
        """Make the store of a target. Nothing is asked yet. Raises ``ConfigurationError``."""
        return cls(WebHdfs.of(target.address, told()))

    def make_folder(self, folder: Path) -> None:
        with _told_as_os(folder):
            self._web.ask("PUT", "MKDIRS", _at(folder))

    def make_fenced(self, folder: Path) -> None:
        if self._status(folder.parent) is None:
            raise FileNotFoundError(errno.ENOENT, "it was removed", str(folder.parent))
        self.make_folder(folder)

    def create(self, path: Path) -> BinaryIO:
        with _told_as_os(path):
            sending = self._web.create(_at(path))
        return cast("BinaryIO", io.BufferedWriter(_Body(sending, path), _PIECE))

    def finish(self, file: BinaryIO) -> None:
        file.close()

    def publish(self, temporary: Path, final: Path) -> bool:
        with _told_as_os(temporary):
            return self._web.rename(_at(temporary), _at(final))

    def copy(self, path: Path, copy: Path) -> None:
        # There is no folder of another file system in HDFS, so no rename asks for a copy.
        raise OSError(errno.EXDEV, "it is in another encryption zone", str(path), None, str(copy))

    def size(self, path: Path) -> int | None:
        status = self._status(path)
        return None if status is None else int(status["length"])

    def room(self, target: Path) -> Room:  # noqa: ARG002  dfs.namenode.fs-limits.max-component-length
        return ROOM

    def require_rights(self, places: Sequence[Path], *, user: int | None, who: str) -> str:  # noqa: ARG002  HDFS has its own
        return require_rights(self._web, list(map(_at, places)), of=_at(places[-1]))

    def age(self, path: Path) -> float:
        return self.idle(path) or 0.0

    def idle(self, path: Path) -> float | None:
        with _told_as_os(path):
            return self._web.idle(_at(path))

    def renew(self, path: Path) -> None:
        now = str(int(1000 * time.time()))  # the name node takes a time, and has none of its own to give
        with suppress(FileNotFoundError), _told_as_os(path):
            self._web.ask("PUT", "SETTIMES", _at(path), modificationtime=now)

    def links(self, path: Path) -> int:
        return 0 if self._status(path) is None else 1

    def same(self, one: Path, other: Path) -> bool:  # noqa: ARG002  there are no links
        return False

    def checksum(self, path: Path) -> str:
        digest = xxhash.xxh3_64()
        size = self.size(path)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "it is not there", str(path))
        with _told_as_os(path):
            for offset in range(0, size, _READ):
                digest.update(self._web.read(_at(path), offset=str(offset), length=str(_READ)))
        return str(digest.hexdigest())

    def read(self, path: Path) -> bytes | None:
        with suppress(FileNotFoundError), _told_as_os(path):
            return self._web.read(_at(path))
        return None

    def put_if_absent(self, path: Path, data: bytes) -> bool:
        folder = cast("RemotePath", path.parent)
        return put_once(HdfsStore(self._web, folder.address), path.name, data) == data

    def sync_folder(self, folder: Path) -> None:
        # What another has renamed is seen just before it is in the name node's log; a later entry is answered after it.
        status = self._status(folder)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, "it was removed", str(folder))
        with _told_as_os(folder):
            self._web.ask("PUT", "SETTIMES", _at(folder), modificationtime=str(status["modificationTime"]))

    def names(self, folder: Path) -> list[str]:
        return [str(each["pathSuffix"]) for each in self._entries(folder)]

    def files(self, folder: Path) -> Iterator[Path]:
        for each in self._entries(folder):
            path = folder / each["pathSuffix"]
            if each["type"] == "DIRECTORY":
                yield from self.files(path)
            else:
                yield path

    def delete(self, path: Path) -> None:
        self._remove(path, recursive="false")

    def rename_folder(self, folder: Path, new: Path) -> None:
        with suppress(FileNotFoundError):
            if not self.publish(folder, new):
                raise FileExistsError(errno.EEXIST, "the name is taken", str(new))

    def delete_folder(self, folder: Path) -> None:
        self._remove(folder, recursive="true")

    def _remove(self, path: Path, *, recursive: str) -> None:
        with suppress(FileNotFoundError), _told_as_os(path):
            self._web.ask("DELETE", "DELETE", _at(path), recursive=recursive)

    def _status(self, path: Path) -> dict[str, Any] | None:
        with _told_as_os(path):
            return self._web.status(_at(path))

    def _entries(self, folder: Path) -> list[dict[str, Any]]:
        try:
            with _told_as_os(folder):
                found = self._web.ask("GET", "LISTSTATUS", _at(folder))["FileStatuses"]["FileStatus"]
        except FileNotFoundError:
            return []
        if [each["pathSuffix"] for each in found] == [""]:
            raise NotADirectoryError(errno.ENOTDIR, "it is a file", str(folder))
        return list(found)


class _Body(io.RawIOBase):
    """The bytes of a new file on their way. What was refused, or broke off, fails every further call."""

    def __init__(self, sending: Sending, path: Path) -> None:
        self._sending = sending
        self._path = path
        self._failed = False

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401  any buffer
        """Send all of it."""
        piece = bytes(data)
        if piece:
            self._do(lambda: self._sending.send(piece))
        return len(piece)

    def close(self) -> None:
        """End the file, unless it failed before."""
        if self.closed:
            return
        try:
            if not self._failed:
                self._do(self._sending.end)
        finally:
            self._sending.close()
            super().close()

    def _do(self, call: Callable[[], None]) -> None:
        if self._failed:
            raise OSError(errno.EIO, "it broke off before", str(self._path))
        try:
            with _told_as_os(self._path):
                call()
        except (OSError, OnceonlyError):
            self._failed = True
            raise


def _at(path: Path) -> str:
    """Return the path by which a name node knows a place: what follows scheme and name node."""
    return "/" + "/".join(path.parts[2:])


@contextmanager
def _told_as_os(path: Path) -> Iterator[None]:
    """Turn a name node's word into an error of the operating system's."""
    try:
        yield
    except RefusedError as error:
        raise OSError(_ERRORS.get(error.name, errno.EIO), str(error), str(path)) from error
    except BrokenOffError as error:
        raise OSError(errno.EIO, f"no answer tells whether it was done ({error})", str(path)) from error
