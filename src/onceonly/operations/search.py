"""Looking for checkpoints below an address, breadth first; nothing is looked for inside of one. Reads only.

Nor in a savepoint, which holds the files of one and is none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import ConfigurationError, LogError, OnceonlyError, UnavailableError
from onceonly.log import files, identity
from onceonly.savepoints.manifest import BEGUN, FILES, NAME
from onceonly.stores.address import Address, Kind
from onceonly.stores.opened import folder_of, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onceonly.stores.port import RewritableStore

DEPTH_MAX = 5
FOLDERS_MAX = 20_000
"""How many folders of a file system are looked at."""
FOLDERS_MAX_OF_STORE = 1_000
"""How many folders of another store: each is a request."""
AT_ONCE = 16
"""How many of them are asked for at the same time."""
# What Spark's MicroBatchExecution and its predecessors put into a checkpoint.
_SPARK = ("offsets", "commits")
_OF_SAVEPOINTS = (NAME, BEGUN)


@dataclass(frozen=True, slots=True)
class Problem:
    """A folder that is, or looks like, a checkpoint and cannot be shown.

    ``foreign`` says that there is nothing wrong with it: it is Spark's alone, and not for us.
    """

    path: str
    error: OnceonlyError
    foreign: bool = False


def search(root: Address) -> Iterator[Address | Problem]:
    """Yield the checkpoints at an address or below it, in the order of their names. Any process."""
    folder = folder_of(root)
    return _in_folder(folder) if folder is not None else _on_store(root)


def _in_folder(root: Path) -> Iterator[Address | Problem]:
    level, seen = [root], 0
    for _ in range(DEPTH_MAX + 1):
        below: list[Path] = []
        for folder in level:
            seen += 1
            if seen > FOLDERS_MAX:
                yield _too_many(str(root), FOLDERS_MAX)
                return
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                yield _unreadable(str(folder), error)
                continue
            names = {entry.name for entry in entries}
            if identity.FOLDER in names and (_is_log(folder / identity.FOLDER) or names.intersection(_SPARK)):
                yield Address(kind=Kind.FOLDER, path=str(folder))
            elif "metadata" in names and names.intersection(_SPARK):
                yield _foreign(str(folder), noted=_has_noted(folder))
            elif names.isdisjoint(_OF_SAVEPOINTS):
                below += [
                    Path(entry.path)
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and _is_worth_a_look(entry.name)
                ]
        level = below


def _is_log(folder: Path) -> bool:
    """Say whether a folder called ``onceonly`` looks like a log, and not, say, like a project."""
    try:
        names = set(os.listdir(folder))  # noqa: PTH208  names are all that is wanted
    except OSError:
        return folder.is_dir()
    return bool(names & {identity.NAME, "links", "receipts", "history"})


def _on_store(root: Address) -> Iterator[Address | Problem]:
    level, left = [root], FOLDERS_MAX_OF_STORE
    for _ in range(DEPTH_MAX + 1):
        below: list[Address] = []
        for found in background.spread("onceonly-find", _look, level[:left], threads_max=AT_ONCE):
            if isinstance(found, list):
                below += found
            else:
                yield found
        left -= len(level)
        if left < 0:
            yield _too_many(root.shown, FOLDERS_MAX_OF_STORE)
            return
        level = below


def _look(place: Address) -> Address | Problem | list[Address]:
    """Say what one folder of a store is: a checkpoint, or folders that are worth a look. One request, seldom more."""
    try:
        store = open_store(place)
        names = store.list_folders("")
        is_sparks = not set(names).isdisjoint(_SPARK)
        if identity.FOLDER in names and (is_sparks or _has_log(store)):
            return place
        if is_sparks and store.get("metadata") is not None:
            noted = (name.rpartition("/")[2] for name in store.list_names("commits/"))
            return _foreign(place.shown, noted=_is_noted(noted))
        if FILES.rstrip("/") in names and any(store.get(each) is not None for each in _OF_SAVEPOINTS):
            return []
    except OnceonlyError as error:
        return Problem(place.shown, error)
    return [place.below(name) for name in sorted(names) if _is_worth_a_look(name)]


def _has_log(store: RewritableStore) -> bool:
    folders = {f"{name}/" for name in store.list_folders(f"{identity.FOLDER}/")}
    return (
        not folders.isdisjoint(files.FOLDERS) or store.get(f"{identity.FOLDER}/{identity.NAME}") is not None
    )


def _is_worth_a_look(name: str) -> bool:
    return bool(name) and not name.startswith((".", "_"))


def _is_noted(names: Iterable[str]) -> bool:
    return any(name.isdecimal() for name in names)


def _has_noted(folder: Path) -> bool:
    """Say whether Spark has noted an epoch there; it makes the folder for them at the start already."""
    try:
        return _is_noted(os.listdir(folder / "commits"))  # noqa: PTH208  only names
    except OSError:
        return False


def _foreign(path: str, *, noted: bool) -> Problem:
    what = f"{path} is a checkpoint of Spark's in which onceonly has no decision log"
    if noted:
        error = LogError(
            f"{what}: another sink writes there",
            next_step="nothing, if so it should be; onceonly.adopt=true takes a query over from another sink",
        )
    else:
        error = LogError(
            f"{what} yet, and Spark has noted no epoch: its query is starting, or another sink writes there",
            next_step="look again when the query has begun its first epoch",
        )
    return Problem(path, error, foreign=True)


def _unreadable(path: str, error: OSError) -> Problem:
    return Problem(
        path,
        UnavailableError(
            f"{path} cannot be read: {error.strerror}", next_step="see to the permissions of this folder"
        ),
    )


def _too_many(path: str, limit: int) -> Problem:
    return Problem(
        path,
        ConfigurationError(
            f"below {path} there are more than {limit} folders; the rest was not looked at",
            next_step="name a folder nearer to the checkpoints",
        ),
    )
