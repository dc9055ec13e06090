"""The few things that the sink asks of a file system: the port, and local disks and shared mounts.

A file is written under a temporary name and *published*: moved to its final one, once, never over another.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import xxhash

from onceonly.durable import disk
from onceonly.durable.access import require_writable
from onceonly.errors import UnavailableError, WriteFailedError
from onceonly.sinks.files.paths import ROOM, RemotePath, Room
from onceonly.sinks.files.staging.moving import move
from onceonly.stores.address import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceonly.sinks.files.objects import ObjectFiles

_CHUNK = 1 << 20
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
ROOM_STEP = (
    "make room on this file system, or raise the quota (on HDFS hdfs dfsadmin -setQuota, -setSpaceQuota)"
)
FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Files(Protocol):
    """Small files by path, whole: the books of a sink. Each call may be repeated.

    Errors are ``OSError``, which the callers classify, or stand in a sentence already (``OnceonlyError``).
    """

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, durably."""
        ...

    def read(self, path: Path) -> bytes | None:
        """Return the content, None where nothing has this name."""
        ...

    def put_if_absent(self, path: Path, data: bytes) -> bool:
        """Put a small file, whole and durable, unless its name is taken; say whether it was free."""
        ...

    def size(self, path: Path) -> int | None:
        """Return the length in bytes, None where nothing has this name."""
        ...

    def idle(self, path: Path) -> float | None:
        """Return the seconds since a file was written, renamed or changed; None where nothing has this name."""
        ...

    def renew(self, path: Path) -> None:
        """Let a file look as if it was written now, with the content that it has. Nothing where it is gone."""
        ...

    def names(self, folder: Path) -> list[str]:
        """List the names in a folder, unordered; none where it is missing."""
        ...

    def delete(self, path: Path) -> None:
        """Remove a file. Idempotent."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        ...

    def room(self, target: Path) -> Room:
        """Return how long names may be in a target."""
        ...

    def require_rights(self, places: Sequence[Path], *, user: int | None, who: str) -> str:
        """See that files may be made in a target and in folders of a query's own; return why that cannot be seen.

        ``user`` is the job's on this machine. Only looks. Raises ``ConfigurationError``.
        """
        ...


class Store(Files, Protocol):
    """Files that are written under one name and moved to another one."""

    def make_fenced(self, folder: Path) -> None:
        """Make a folder whose parent must be there: fails where the parent was dropped."""
        ...

    def create(self, path: Path) -> BinaryIO:
        """Open a new file for writing; fails where the folder was dropped or the name is taken."""
        ...

    def finish(self, file: BinaryIO) -> None:
        """Flush, make the content durable, and close."""
        ...

    def publish(self, temporary: Path, final: Path) -> bool:
        """Move a whole file to its final name, unless it is taken; say whether it was free. Not yet durable.

        One step: whoever looks, and a loss of power, finds it under one of the two names. Raises EXDEV across file
        systems.
        """
        ...

    def copy(self, path: Path, copy: Path) -> None:
        """Make a copy under a new name; its content is durable, its name is not."""
        ...

    def age(self, path: Path) -> float:
        """Return the seconds since a file was written; 0 where nothing has this name."""
        ...

    def links(self, path: Path) -> int:
        """Count the names of a file, hard links; 0 where nothing has this name."""
        ...

    def same(self, one: Path, other: Path) -> bool:
        """Tell whether two names are of one file."""
        ...

    def checksum(self, path: Path) -> str:
        """Read the whole file and return its xxh3 as 16 hex digits."""
        ...

    def files(self, folder: Path) -> Iterator[Path]:
        """Return all files below a folder; none where it is missing."""
        ...

    def rename_folder(self, folder: Path, new: Path) -> None:
        """Give a folder another name at once, so that nobody who knows the former finds it. Idempotent."""
        ...

    def delete_folder(self, folder: Path) -> None:
        """Remove a folder and what is in it. Idempotent."""
        ...


_WAITED_S = 1.0
_clocks: dict[int, float] = {}
"""By file system: what the clock of its files showed more than this process's own count of seconds."""


class LocalStore:
    """A disk or a shared mount with hard links; fulfils ``Store``. Any process, any thread."""

    def make_folder(self, folder: Path) -> None:
        disk.make_folder(folder, self.sync_folder)

    def make_fenced(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)

    def create(self, path: Path) -> BinaryIO:
        return path.open("xb")

    def finish(self, file: BinaryIO) -> None:
        file.flush()
        disk.fsync(file.fileno(), Path(file.name), fresh=True)
        file.close()

    def publish(self, temporary: Path, final: Path) -> bool:
        if self.age(temporary) > _WAITED_S:
            # Readers who look for what is new by the time of writing have been here since it was written.
            with contextlib.suppress(OSError):
                os.utime(temporary)
        return move(temporary, final)

    def copy(self, path: Path, copy: Path) -> None:
        with path.open("rb") as source, copy.open("xb") as target:
            shutil.copyfileobj(source, target, _CHUNK)
            target.flush()
            disk.fsync(target.fileno(), copy, fresh=True)

    def size(self, path: Path) -> int | None:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def room(self, target: Path) -> Room:
        return Room(name=min(os.pathconf(target, "PC_NAME_MAX"), ROOM.name))

    def require_rights(self, places: Sequence[Path], *, user: int | None, who: str) -> str:
        return require_writable(places, user=user, who=who)

    def age(self, path: Path) -> float:
        try:
            return time.time() - path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def idle(self, path: Path) -> float | None:
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        # A rename is seen by the second only.
        return max(0.0, _now(path.parent, found.st_dev) - max(found.st_mtime, found.st_ctime))

    def renew(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)

    def links(self, path: Path) -> int:
        try:
            return path.stat().st_nlink
        except FileNotFoundError:
            return 0

    def same(self, one: Path, other: Path) -> bool:
        try:
            return one.samefile(other)
        except FileNotFoundError:
            return False

    def checksum(self, path: Path) -> str:
        digest = xxhash.xxh3_64()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        return str(digest.hexdigest())

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def put_if_absent(self, path: Path, data: bytes) -> bool:
        temporary = hidden(path, ".tmp")
        try:
            disk.write_new(temporary, data)
            try:
                os.link(temporary, path)
            except FileExistsError:
                # Its writer may have died before the name was durable.
                self.sync_folder(path.parent)
                return False
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        self.sync_folder(path.parent)
        return True

    def sync_folder(self, folder: Path) -> None:
        disk.sync(folder)

    def names(self, folder: Path) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(folder)]
        except FileNotFoundError:
            return []

    def files(self, folder: Path) -> Iterator[Path]:
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from self.files(folder / entry.name)
            else:
                yield folder / entry.name

    def delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def rename_folder(self, folder: Path, new: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            folder.rename(new)

    def delete_folder(self, folder: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


def store_of(target: Path) -> Store | ObjectFiles:
    """Open the store of a target. Any process; nothing is asked yet. Raises ``ConfigurationError``, ``SetupError``."""
    if not isinstance(target, RemotePath):
        return LocalStore()
    if target.address.kind is Kind.HDFS:
        from onceonly.sinks.files.hdfs import HdfsFiles

        return HdfsFiles.of(target)
    from onceonly.sinks.files.objects import ObjectFiles

    return ObjectFiles.of(target)


def _now(folder: Path, device: int) -> float:
    """Return the time by the clock that stamps a file system's files, or this machine's, whichever shows less.

    They differ on a shared mount, and this machine's may be set while it runs: what is told here goes on as time does.
    """
    if device not in _clocks:
        found = time.time()
        with contextlib.suppress(OSError):  # who may not write asks this machine's alone
            trial = hidden(folder / "clock", ".tmp")
            try:
                with trial.open("xb") as file:
                    found = os.fstat(file.fileno()).st_mtime
            finally:
                trial.unlink(missing_ok=True)
        _clocks[device] = found - time.monotonic()
    return min(time.time(), time.monotonic() + _clocks[device])


def hidden(path: Path, ending: str) -> Path:
    """Return a new name beside a path that readers pass over. It may be longer than the name by 22 bytes."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}{ending}")


def reason(error: OSError) -> str:
    """Say an error of the operating system in words."""
    name = errno.errorcode.get(error.errno or 0, "?")
    return f"{error.strerror or error} ({name})"


def named(error: OSError, path: Path) -> str:
    """Say an error with the file that it is about, else ``path``; where it is forbidden, also to whom."""
    place = error.filename or path
    if error.errno not in FORBIDDEN:
        return f"{place}: {reason(error)}"
    folder = Path(place).parent
    owner = f"{folder} belongs to an unknown user"
    for found in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            owner = f"{found} belongs to user {found.stat().st_uid}"
            break
    to = f", to be {error.filename2}" if error.filename2 else ""
    return (
        f"{place}{to}: {reason(error)}; {owner}, and this process is user {os.geteuid()} (who moves a file needs "
        "write permission to its folder and to the new one; with the sticky bit only its owner may)"
    )


def unavailable(what: str, error: OSError) -> UnavailableError:
    """Make the error for a file system that does not do what it must, now. Nothing is lost by it."""
    step = f"{ROOM_STEP}," if error.errno in FULL else "see to this file system (space, permissions, mount)"
    return UnavailableError(
        f"{what}: {reason(error)}; what is decided stays decided, and nothing is lost",
        next_step=f"{step} and start the query again",
    )


def write_failed(who: str, path: Path, error: OSError) -> WriteFailedError:
    """Make the error for an attempt that could not write or prepare its rows. Executor."""
    if error.errno in FULL:
        return WriteFailedError(
            f"{who}: no space for {path}: {reason(error)}{_free(path)}; nothing of this try is visible",
            next_step=f"{ROOM_STEP}, and start the query again; it writes these rows anew",
        )
    if isinstance(error, FileNotFoundError):
        return WriteFailedError(
            f"{who}: its temporary files were removed ({path}): this attempt was given up by the driver",
            next_step="nothing, Spark runs the slot again where it is still needed; if the folder was removed "
            "by hand, leave `_onceonly` alone while a query runs",
        )
    return WriteFailedError(
        f"{who}: {path} could not be written: {reason(error)}; nothing of this try is visible",
        next_step="see to this file system (permissions, mount) and start the query again",
    )


def _free(path: Path) -> str:
    if isinstance(path, RemotePath):
        return ""  # its own sentence tells of the quota
    try:
        return f", {shutil.disk_usage(path.parent).free} bytes free"
    except OSError:
        return ""
