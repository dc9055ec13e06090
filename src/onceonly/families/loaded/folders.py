"""Data files in a file system that driver and executors share. The folder of an attempt is its fence.

A sweep moves it away at once, and then a paused attempt finds no place for another file, and none that it could vote
for. What is committed stays where it was written.
"""

from __future__ import annotations

import contextlib
import errno
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from onceonly.durable import disk
from onceonly.durable.access import require_writable
from onceonly.durable.addresses import local_folder
from onceonly.errors import UnavailableError
from onceonly.families.loaded.load import OPEN, epoch_of, folder_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.families.loaded.load import DataFile, Load

OPEN_MAX = 32
_DROPPED = ".dropped-"
_SEE_TO_IT = "see to this file system (space, permissions, mount) and start the query again"


class FolderHome:
    """A folder; fulfils ``onceonly.families.loaded.places.Home``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def text(self) -> str:
        return str(self.folder)

    @property
    def identity(self) -> str:
        return str(self.folder.resolve())

    def prepare(self) -> None:
        """Ask nothing: what is missing is told by the first file."""

    def require_rights(self, app: str, *, user: int | None, who: str) -> str:
        return require_writable((self.folder / app, self.folder / app / OPEN), user=user, who=who)

    def begin(self, app: str, name: str) -> FolderStage:
        return FolderStage(self, app, name)

    def whole(self, loads: Sequence[Load]) -> set[str]:
        there = {load.name for load in loads if self._is_there(load)}
        return there - self.gone(loads)

    def _is_there(self, load: Load) -> bool:
        folder = self.folder / load.folder
        try:
            return folder.is_dir()
        except OSError as error:
            raise _unavailable(folder, error) from error

    def gone(self, loads: Sequence[Load]) -> set[str]:
        return {load.name for load in loads if not all(map(partial(self._is_as_long, load), load.files))}

    def _is_as_long(self, load: Load, file: DataFile) -> bool:
        place = self.folder / load.folder / file.path
        try:
            return place.stat().st_size == file.bytes
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _unavailable(place, error) from error

    def sizes(self, folder: str, paths: Sequence[str]) -> list[int | None]:
        places = [self.folder / folder / path for path in paths]
        return [place.stat().st_size if place.exists() else None for place in places]

    def open(self, path: str) -> BinaryIO:
        return (self.folder / path).open("rb")

    def known(self, names: Iterable[str]) -> set[str]:
        return {
            str(local_folder(name, what="a data file").resolve())
            for name in names
            if name.startswith(("/", "file:"))
        }

    def called(self, path: str) -> str:
        return str((self.folder / path).resolve())

    def mark(self, app: str, name: str) -> None:
        """Note that an attempt is open, durably. Executor, once its folder is there. Raises ``OSError``."""
        folder = self.folder / app / OPEN
        disk.make_folder(folder)
        (folder / name).touch(exist_ok=False)
        disk.sync(folder)

    def unmark(self, app: str, names: Iterable[str]) -> None:
        for name in names:
            try:
                (self.folder / app / OPEN / name).unlink(missing_ok=True)
            except OSError as error:
                raise _unavailable(self.folder / app / OPEN, error) from error

    def sync_marks(self, app: str) -> None:
        folder = self.folder / app / OPEN
        try:
            if folder.is_dir():
                disk.sync(folder)
        except OSError as error:
            raise _unavailable(folder, error) from error

    def marked(self, app: str) -> list[str]:
        folder = self.folder / app / OPEN
        try:
            return sorted(each.name for each in folder.iterdir() if epoch_of(each.name) is not None)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(folder, error) from error

    def below(self, folder: str) -> list[str]:
        place = self.folder / folder
        try:
            return sorted(each.name for each in place.iterdir() if each.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(place, error) from error

    def by_hand(self, app: str, name: str) -> tuple[float | None, str]:
        mark = self.folder / app / OPEN / name
        paths = [shlex.quote(str(path)) for path in (self.folder / folder_of(app, name), mark)]
        return mark.stat().st_mtime if mark.exists() else None, f"rm -rf {' '.join(paths)}"

    def drop(self, folder: str) -> None:
        """Take away an attempt's folder with its files.

        It gets another name first: from then on its writer finds no place for a file, and none that it could vote for.
        """
        place = self.folder / folder
        aside = place.with_name(f"{_DROPPED}{place.name}")
        try:
            place.rename(aside)
        except FileNotFoundError:
            pass  # dropped before, perhaps not to the end
        except OSError as error:
            raise _unavailable(place, error) from error
        try:
            shutil.rmtree(aside)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _unavailable(aside, error) from error


class FolderStage:
    """The folder of one attempt; fulfils ``onceonly.families.loaded.places.Stage``."""

    open_max = OPEN_MAX

    def __init__(self, home: FolderHome, app: str, name: str) -> None:
        self._home, self._app, self._name = home, app, name
        self.folder = home.folder / folder_of(app, name)
        self._folders: set[Path] = {self.folder}
        disk.make_folder(self.folder.parent)
        self.folder.mkdir()
        home.mark(app, name)

    @property
    def where(self) -> str:
        return str(self.folder)

    def stands(self) -> bool:
        return self.folder.is_dir()

    def is_shared(self) -> bool:
        return self.folder.parent.is_dir()

    def create(self, path: str) -> BinaryIO:
        folder = self.folder
        *parts, name = path.split("/")
        for part in parts:
            folder /= part
            # One by one below the attempt's own, which must not come back once it was swept.
            folder.mkdir(exist_ok=True)
            self._folders.add(folder)
        return (folder / name).open("xb")

    def finish(self, file: BinaryIO) -> None:
        file.flush()
        disk.fsync(file.fileno(), Path(file.name), fresh=True)
        file.close()

    def drop_file(self, file: BinaryIO) -> None:
        with contextlib.suppress(OSError):
            file.close()

    def seal(self, files: Sequence[DataFile]) -> bool:
        for folder in (*self._folders, self.folder.parent):
            disk.sync(folder)
        for file in files:
            place = self.folder / file.path
            if place.stat().st_size != file.bytes:
                raise OSError(errno.EIO, "it is not as long as it was written", str(place))
        return self.stands()

    def drop(self) -> None:
        self._home.drop(folder_of(self._app, self._name))
        self._home.unmark(self._app, [self._name])


def _unavailable(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(f"{path}: {error.strerror or error}", next_step=_SEE_TO_IT)
