"""The folders of attempts among the target's data files: noted, looked at, dropped. A file system.

An empty file in ``_open`` notes an attempt that may not be committed. It is gone, durably, before the epoch's receipt
stands: one of an older epoch than the newest in the target's log tells of an attempt that never will be. Tables' own
readers, and a vacuum, pass over names that begin with an underscore.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from onceonly.durable import disk
from onceonly.durable.addresses import local_folder
from onceonly.errors import UnavailableError
from onceonly.families.loaded.load import epoch_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from onceonly.families.loaded.load import Load

_OPEN = "_open"
_DROPPED = ".dropped-"
_SEE_TO_IT = "see to this file system (space, permissions, mount) and start the query again"


def is_whole(home: Path, load: Load) -> bool:
    """Say whether all files of a load are there as they were written. Raises ``UnavailableError``."""
    folder = home / load.folder
    try:
        return folder.is_dir() and all(
            (folder / file.path).stat().st_size == file.bytes for file in load.files
        )
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unavailable(folder, error) from error


def resolved(names: Iterable[str]) -> set[Path]:
    """Return the files that are on a file system, without links in their paths. ``names`` are paths or URIs."""
    return {
        local_folder(name, what="a data file").resolve() for name in names if name.startswith(("/", "file:"))
    }


def mark(home: Path, app: str, name: str) -> None:
    """Note that an attempt is open, durably. Executor, once its folder is there. Raises ``OSError``."""
    folder = home / app / _OPEN
    disk.make_folder(folder)
    (folder / name).touch(exist_ok=False)
    disk.sync(folder)


def unmark(home: Path, app: str, names: Iterable[str]) -> None:
    """Note that attempts are open no more. Driver, idempotent. Raises ``UnavailableError``."""
    for name in names:
        try:
            (home / app / _OPEN / name).unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable(home / app / _OPEN, error) from error


def sync_marks(home: Path, app: str) -> None:
    """Make it durable which attempts are open. Driver. Raises ``UnavailableError``."""
    folder = home / app / _OPEN
    try:
        if folder.is_dir():
            disk.sync(folder)
    except OSError as error:
        raise _unavailable(folder, error) from error


def marked(home: Path, app: str) -> list[str]:
    """List the attempts that are noted as open. Driver. Raises ``UnavailableError`` rather than give a part."""
    folder = home / app / _OPEN
    try:
        return sorted(each.name for each in folder.iterdir() if epoch_of(each.name) is not None)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unavailable(folder, error) from error


def drop(folder: Path) -> None:
    """Take away an attempt's folder with its files. Idempotent. Raises ``UnavailableError``.

    It gets another name first: from then on its writer finds no place for a file, and none that it could vote for.
    """
    aside = folder.with_name(f"{_DROPPED}{folder.name}")
    try:
        folder.rename(aside)
    except FileNotFoundError:
        pass  # dropped before, perhaps not to the end
    except OSError as error:
        raise _unavailable(folder, error) from error
    try:
        shutil.rmtree(aside)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unavailable(aside, error) from error


def _unavailable(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(f"{path}: {error.strerror or error}", next_step=_SEE_TO_IT)
