"""A store in a folder: local disks and shared mounts that have hard links."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.durable import disk
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.stores.port import PutUnknownError
from onceonly.stores.temporaries import name_of, temporary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PROBE = "probe"
_OLD_S = 3600.0
# These say nothing of what a file system can do; ENOENT: something took the folder, or the probe's file, away.
_PASSING = frozenset(
    {errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOENT, errno.ESTALE}
)
# After these, link(2) has not made the name. Others (EIO, ESTALE, ETIMEDOUT on a shared mount) leave it open.
_DEFINITE = frozenset(
    {
        errno.EACCES, errno.EDQUOT, errno.EMLINK, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOSPC,
        errno.ENOTDIR, errno.ENOTSUP, errno.EPERM, errno.EROFS, errno.EXDEV,
    }
)  # fmt: skip


class LocalStore:
    """Files under ``root``; fulfils ``onceonly.stores.port.RewritableStore``.

    A put is a temporary file in the same folder, written and fsynced, then link(2) to its name, which fails
    where the name is taken, then fsync of the folder. rename(2) overwrites silently, so it only puts the same bytes
    where they stand already, to make them durable.
    """

    abreast = 1

    def __init__(self, root: Path) -> None:
        self.root = root

    def where(self, name: str) -> str:
        return str(self.root / name)

    def prepare(self, folders: Iterable[str]) -> None:
        """Make the folders, durably, and see that the file system can do what a put needs. Idempotent.

        Raises ``ConfigurationError`` for a file system that lacks it, ``UnavailableError``.
        """
        try:
            for folder in (self.root, *(self.root / name for name in folders)):
                disk.make_folder(folder)
            disk.sync_above(self.root)
        except OSError as error:
            raise _unavailable(self.root, "made", error) from error
        self.probe()

    def probe(self) -> None:
        """Try whether a file can be linked once and not twice, and folders synced. Leaves nothing behind."""
        temporary, name = self._temporary(_PROBE), self._temporary(_PROBE)
        try:
            try:
                disk.write_new(temporary, b"")
                os.link(temporary, name)
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, name)
                    raise _unfit(self.root, "links over an existing name")
                disk.sync(self.root)
            except OSError as error:
                if error.errno in _PASSING:
                    raise _unavailable(self.root, "written", error) from error
                raise _unfit(self.root, f"has no hard links or cannot sync a folder ({error})") from error
        finally:
            for path in (temporary, name):
                with contextlib.suppress(OSError):
                    path.unlink()

    def put_if_absent(
        self, name: str, data: bytes, *, before_publish: Callable[[], None] | None = None
    ) -> bool:
        final = self.root / name
        temporary = self._temporary(name)
        try:
            try:
                disk.write_new(temporary, data)
            except OSError as error:
                raise _unavailable(temporary, "written", error) from error
            if before_publish is not None:
                before_publish()
            if not self._link(temporary, final):
                return False
        finally:
            # A name that stays is taken away by drop_leftovers.
            with contextlib.suppress(OSError):
                temporary.unlink()
        try:
            disk.sync(final.parent)
        except OSError as error:  # not of the fsync, which would have ended this process
            message = f"{final.parent} could not be opened to be synced ({error})"
            raise PutUnknownError(message) from error
        return True

    def get(self, name: str) -> bytes | None:
        return self._read(name, -1)

    def get_first(self, name: str, size: int) -> bytes | None:
        return self._read(name, size)

    def _read(self, name: str, size: int) -> bytes | None:
        path = self.root / name
        try:
            with path.open("rb") as file:
                return file.read(size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unavailable(path, "read", error) from error

    def list_names(self, folder: str) -> list[str]:
        try:
            with os.scandir(self.root / folder) as entries:
                return [folder + entry.name for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(self.root / folder, "listed", error) from error

    def list_folders(self, folder: str) -> list[str]:
        try:
            with os.scandir(self.root / folder) as entries:
                return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(self.root / folder, "listed", error) from error

    def tree(self, folder: str) -> list[str]:
        found: list[str] = []
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    if not entry.name.startswith("."):
                        path = folder + entry.name
                        found += self.tree(f"{path}/") if entry.is_dir() else [path]
        except FileNotFoundError:
            return found
        except OSError as error:
            raise _unavailable(self.root / folder, "listed", error) from error
        return found

    def replace(self, name: str, data: bytes) -> None:
        final = self.root / name

        def write(temporary: Path) -> None:
            try:
                disk.write_new(temporary, data)
                temporary.replace(final)
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink()

        try:
            disk.make_folder(final.parent)
            self._over(name, write)
            disk.sync(final.parent)
        except OSError as error:
            raise _unavailable(final, "put", error) from error

    def delete(self, name: str) -> None:
        path = self.root / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable(path, "removed", error) from error

    def sync(self, name: str) -> None:
        path = self.root / name
        try:
            self._over(name, lambda temporary: disk.renew(path, temporary))
        except OSError as error:
            raise _unavailable(path, "written anew", error) from error

    def drop_leftovers(self, dead: Callable[[str], bool]) -> None:
        try:
            for path, name in self._temporaries():
                # A living writer that loses its temporary file here would find its name taken anyway. One that
                # only tries the file system has no name to take: it is left alone until it is old.
                if dead(name) or (_is_old(path) if name == _PROBE else (self.root / name).exists()):
                    with contextlib.suppress(OSError):
                        path.unlink()
        except OSError as error:
            raise _unavailable(Path(error.filename or self.root), "looked at", error) from error

    def _temporaries(self) -> Iterator[tuple[Path, str]]:
        """Yield the temporary files, each with the name that it was to get."""
        for folder in ("", *(f"{entry.name}/" for entry in self.root.iterdir() if entry.is_dir())):
            for path in (self.root / folder).iterdir():
                if name := name_of(path.name):
                    yield path, folder + name

    def _over(self, name: str, write: Callable[[Path], None]) -> None:
        """Write over a name by way of a temporary file.

        A start beside this process clears such files of names that are there away, once; then it is done again.
        """
        try:
            write(self._temporary(name))
        except FileNotFoundError:
            write(self._temporary(name))

    def _temporary(self, name: str) -> Path:
        return self.root / temporary_of(name)

    def _link(self, temporary: Path, final: Path) -> bool:
        try:
            os.link(temporary, final)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno == errno.ENOENT and final.exists():
                return False  # a newer driver took the name and cleared our temporary file away
            if error.errno in _DEFINITE:
                raise _unavailable(final, "put", error) from error
            message = f"link to {final} gave {error}"
            raise PutUnknownError(message) from error
        return True


class UnsyncedStore(LocalStore):
    """The same for what decides nothing: it is replaced whole and not synced.

    So no disk that fails an fsync ends a process for it.
    """

    def replace(self, name: str, data: bytes) -> None:
        final = self.root / name

        def write(temporary: Path) -> None:
            try:
                temporary.write_bytes(data)
                temporary.replace(final)
            finally:
                temporary.unlink(missing_ok=True)

        try:
            final.parent.mkdir(exist_ok=True)
            self._over(name, write)
        except OSError as error:
            raise _unavailable(final, "put", error) from error


def _is_old(path: Path) -> bool:
    """Tell whether a file was written long ago; False where it is gone."""
    try:
        return time.time() - path.stat().st_mtime > _OLD_S
    except FileNotFoundError:
        return False


def _unavailable(path: Path, verb: str, error: OSError) -> UnavailableError:
    name = errno.errorcode.get(error.errno or 0, "?")
    return UnavailableError(
        f"{path} could not be {verb}: {error.strerror} ({name}); nothing was changed",
        next_step="see to this file system (space, permissions, mount) and start the query again",
    )


def _unfit(path: Path, lack: str) -> ConfigurationError:
    return ConfigurationError(
        f"the file system of {path} {lack}, so a decision could not be put there safely",
        next_step="put the checkpoint on a file system with hard links (ext4, xfs, NFS)",
    )
