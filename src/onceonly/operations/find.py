"""Finding checkpoints: in a folder, or in the folders below it; each opened for reading, or one sentence why not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.errors import (
    CheckpointMovedError,
    ConfigurationError,
    LogError,
    OnceonlyError,
    UnavailableError,
)
from onceonly.log import LocalStore, checkpoint_path, identity
from onceonly.log.opening import look
from onceonly.log.presence import present

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.log import FileDecisionLog

DEPTH_MAX = 5
FOLDERS_MAX = 20_000
# What Spark's MicroBatchExecution and its predecessors put into a checkpoint.
_SPARK = ("offsets", "commits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Whether a run works on the checkpoint: ``alive`` is None where it cannot be told, and ``who`` says why."""

    alive: bool | None
    who: str = ""

    @property
    def word(self) -> str:
        return {True: "alive", False: "down", None: "unknown"}[self.alive]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A query's checkpoint with our log in it. Its properties read anew at each use."""

    path: Path
    query: str
    home: str
    log: FileDecisionLog
    spark: SparkCheckpoint

    @property
    def address(self) -> str:
        return identity.address(str(self.path))

    @property
    def moved(self) -> CheckpointMovedError | None:
        """The error that a run would stop with here, because the checkpoint is at home elsewhere."""
        found = identity.Identity(query=self.query, log="", address=self.home)
        try:
            identity.compare(
                found, LocalStore(self.path / identity.FOLDER), query=self.query, address=self.address
            )
        except CheckpointMovedError as error:
            return error
        return None

    @property
    def run(self) -> Run:
        try:
            who = present(str(self.path))
        except UnavailableError as error:
            return Run(alive=None, who=error.what)
        return Run(alive=who is not None, who=who or "")


@dataclass(frozen=True, slots=True)
class Problem:
    """A folder that is, or looks like, a checkpoint and cannot be shown.

    ``foreign`` says that there is nothing wrong with it: it is Spark's alone, and not for us.
    """

    path: Path
    error: OnceonlyError
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a path leads to, in the order of names."""

    checkpoints: tuple[Checkpoint, ...]
    problems: tuple[Problem, ...]


def find(location: str) -> Found:
    """Find the checkpoints at a location, or below it. Any process; reads only.

    Raises ``ConfigurationError`` where there is no such folder, or no checkpoint in reach of it.
    """
    root = checkpoint_path(location)
    if root.name == identity.FOLDER and (root / identity.NAME).exists():
        root = root.parent
    if not root.is_dir():
        raise ConfigurationError(
            f"there is no folder {root}", next_step="name a checkpointLocation, or a folder above several"
        )
    checkpoints: list[Checkpoint] = []
    problems: list[Problem] = []
    for found in _candidates(root):
        if isinstance(found, Problem):
            problems.append(found)
            continue
        try:
            checkpoints.append(open_checkpoint(found))
        except OnceonlyError as error:
            problems.append(Problem(found, error))
    if not checkpoints and not problems:
        raise ConfigurationError(
            f"there is no checkpoint in {root}, nor in the {DEPTH_MAX} levels of folders below it",
            next_step="name the folder that the query has as its checkpointLocation",
        )
    return Found(tuple(checkpoints), tuple(problems))


def open_checkpoint(path: Path) -> Checkpoint:
    """Open the log of one checkpoint for reading. Raises ``LogError``, ``UnavailableError``."""
    log, found = look(str(path))
    spark = SparkCheckpoint.at(str(path))
    try:
        owner = spark.query()
    except ConfigurationError:
        owner = found.query  # Spark's file is gone; the log still tells what was decided
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(
            f"{path / 'metadata'} cannot be read: {error}", next_step="see to the permissions of this file"
        ) from error
    if owner != found.query:
        raise LogError(
            f"{path} is the checkpoint of query {owner}, but its decision log belongs to query {found.query}",
            next_step="give each query a checkpoint of its own",
        )
    return Checkpoint(path=path, query=found.query, home=found.address, log=log, spark=spark)


def _candidates(root: Path) -> Iterator[Path | Problem]:
    """Walk the folders, breadth first; nothing is looked for inside a checkpoint."""
    level, seen = [root], 0
    for _ in range(DEPTH_MAX + 1):
        below: list[Path] = []
        for folder in level:
            seen += 1
            if seen > FOLDERS_MAX:
                yield Problem(root, _too_many(root))
                return
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                yield Problem(folder, _unreadable(folder, error))
                continue
            names = {entry.name for entry in entries}
            if identity.FOLDER in names and (_is_log(folder / identity.FOLDER) or names.intersection(_SPARK)):
                yield folder
            elif "metadata" in names and names.intersection(_SPARK):
                yield Problem(folder, _foreign(folder), foreign=True)
            else:
                below += [Path(entry.path) for entry in entries if _is_worth_a_look(entry)]
        level = below


def _is_log(folder: Path) -> bool:
    """Say whether a folder called ``onceonly`` looks like a log, and not, say, like a project."""
    try:
        names = set(os.listdir(folder))  # noqa: PTH208  names are all that is wanted
    except OSError:
        return folder.is_dir()
    return bool(names & {identity.NAME, "links", "receipts", "history"})


def _is_worth_a_look(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and not entry.name.startswith((".", "_"))


def _foreign(folder: Path) -> LogError:
    return LogError(
        f"{folder} is a checkpoint of Spark's in which onceonly has no decision log: another sink writes there",
        next_step="nothing, if so it should be; onceonly.adopt=true takes a query over from another sink",
    )


def _unreadable(folder: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{folder} cannot be read: {error.strerror}", next_step="see to the permissions of this folder"
    )


def _too_many(root: Path) -> ConfigurationError:
    return ConfigurationError(
        f"below {root} there are more than {FOLDERS_MAX} folders; the rest was not looked at",
        next_step="name a folder nearer to the checkpoints",
    )
