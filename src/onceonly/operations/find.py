"""Finding checkpoints: at an address, or in the folders below it; each opened for reading, or one sentence why not."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.checkpoint.batches import BatchCheckpoint, is_batch
from onceonly.checkpoint.files import files_of
from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.errors import CheckpointMovedError, ConfigurationError, LogError, OnceonlyError
from onceonly.guards import known
from onceonly.log import identity, left
from onceonly.log.opening import look
from onceonly.log.place import log_store
from onceonly.log.presence import present
from onceonly.operations.search import AT_ONCE, DEPTH_MAX, Problem, search
from onceonly.stores.address import Kind
from onceonly.stores.opened import address_of, folder_of, open_store

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from onceonly.checkpoint.reading import QueryCheckpoint
    from onceonly.guards.known import Known
    from onceonly.log import FileDecisionLog
    from onceonly.stores.address import Address
    from onceonly.stores.port import RewritableStore


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
    """A query's checkpoint with our log in it. Its properties read anew at each use.

    ``path`` is what people call it, ``location`` its address in full, and ``store`` where its log is.
    """

    path: str
    location: str
    query: str
    home: str
    log: FileDecisionLog
    store: RewritableStore
    told: QueryCheckpoint
    """What is known of the query beside its log: of a stream, by Spark."""

    @property
    def epochs(self) -> range:
        """The epochs that the log knows. After its one epoch a batch has but claims, of runs that found it done."""
        known = self.log.epochs()
        return known[:1] if is_batch(self.query) else known

    @property
    def address(self) -> str:
        return identity.address(self.location)

    @property
    def folder(self) -> Path | None:
        """The folder of a checkpoint in a file system, None elsewhere."""
        return self.told.files.folder

    @property
    def moved(self) -> CheckpointMovedError | None:
        """The error that a run would stop with here, because the checkpoint is at home elsewhere; else as below."""
        try:
            self.require_home()
        except CheckpointMovedError as error:
            return error
        return None

    @property
    def was_restored(self) -> bool:
        """Whether its query was restored from a savepoint elsewhere, and nobody has gone on here since."""
        return left.was_restored(self.log)

    def require_home(self) -> None:
        """See that the log that was opened is there, and at home. Asks the store each time.

        Raises ``CheckpointMovedError``, as a run would here; ``LogError`` where the log is gone, or another one has
        taken its place.
        """
        found = identity.read(self.store)
        if found is None or found.log != self.log.token:
            now = "nothing is" if found is None else f"another one, of query {found.query}, is"
            raise LogError(
                f"the decision log of query {self.query} that was opened at {self.path} is gone, and {now} in its "
                "place: what was seen of it before says nothing of now",
                next_step="ask who removed the checkpoint; to see what is there now, run the command again",
            )
        left.require_home(found, self.log, self.store, query=self.query, address=self.address, path=self.path)

    @property
    def sources(self) -> Known | None:
        """What the newest start found out of the query's sources; None where nothing, or it cannot be read."""
        try:
            return known.read(self.told.files)
        except OnceonlyError:
            return None

    @property
    def run(self) -> Run:
        try:
            who = present(self.location)
        except OnceonlyError as error:
            return Run(alive=None, who=error.what)
        return Run(alive=who is not None, who=who or "")


@dataclass(frozen=True, slots=True)
class Found:
    """What an address leads to, in the order of names."""

    checkpoints: tuple[Checkpoint, ...]
    problems: tuple[Problem, ...]

    @property
    def at_once(self) -> int:
        """How many of them are best read at the same time: one in a file system, several where each waits long."""
        return 1 if all(each.folder is not None for each in self.checkpoints) else AT_ONCE


def find(location: str) -> Found:
    """Find the checkpoints at a location, or below it. Any process; reads only.

    Raises ``ConfigurationError`` where there is no such folder, or no checkpoint in reach of it.
    """
    root = _root(address_of(location))
    folder = folder_of(root)
    if folder is not None and not folder.is_dir():
        what = f"{folder} is a file, and no folder" if folder.exists() else f"there is no folder {folder}"
        raise ConfigurationError(what, next_step="name a checkpointLocation, or a folder above several")
    checkpoints: list[Checkpoint] = []
    problems: list[Problem] = []
    candidates = list(search(root))
    at_once = 1 if folder is not None else AT_ONCE
    for found in background.spread("onceonly-find", _opened, candidates, threads_max=at_once):
        if isinstance(found, Problem):
            problems.append(found)
        else:
            checkpoints.append(found)
    if not checkpoints and not problems:
        around = _around(folder) if folder is not None else None
        raise ConfigurationError(
            f"there is no checkpoint in {root.shown}, nor in the {DEPTH_MAX} levels of folders below it"
            + (f"; it is in the checkpoint {around} itself" if around is not None else ""),
            next_step=f"name {around}" if around is not None
            else "name the folder that the query has as its checkpointLocation",
        )  # fmt: skip
    return Found(tuple(checkpoints), tuple(problems))


def newcomers(location: str, known: Collection[str]) -> tuple[Checkpoint, ...]:
    """Open the checkpoints at a location, or below it, whose locations are not known. Any process; reads only.

    What is being made, or cannot be opened, is left out. Raises ``OnceonlyError`` where nothing can be listed.
    """
    found = [each for each in search(_root(address_of(location))) if not isinstance(each, Problem)]
    new = [each for each in found if address_of(each.location).location not in known]
    opened = map(_opened, new)
    return tuple(each for each in opened if not isinstance(each, Problem))


def the_one(location: str | Path) -> Checkpoint:
    """Find the one checkpoint at a location, or below it. Any process; reads only.

    Raises ``ConfigurationError`` where there is none or are several, and what is wrong with one that cannot be opened.
    """
    return single(find(str(location)), location)


def single(found: Found, location: str | Path) -> Checkpoint:
    """Return the one checkpoint that an address leads to. Raises as ``the_one``."""
    if len(found.checkpoints) == 1:
        return found.checkpoints[0]
    if not found.checkpoints:
        raise found.problems[0].error
    raise ConfigurationError(
        f"{location} leads to {len(found.checkpoints)} checkpoints, and this is for one",
        next_step=f"name the checkpointLocation of one query, such as {found.checkpoints[0].path}",
    )


def open_checkpoint(location: str | Path) -> Checkpoint:
    """Open the log of one checkpoint for reading. Raises ``LogError``, ``UnavailableError``, ``ConfigurationError``."""
    place = address_of(str(location))
    # A plain path means another place where Hadoop's default file system is another one.
    path, full = place.shown, place.location
    log, found = look(full)
    told: QueryCheckpoint = SparkCheckpoint(path, files_of(full))
    if is_batch(found.query):
        told = BatchCheckpoint.at(full, full.rpartition("/")[2])
    try:
        owner = told.query()
    except ConfigurationError:
        owner = found.query  # Spark's file is gone; the log still tells what was decided
    if owner != found.query:
        raise LogError(
            f"{path} is the checkpoint of query {owner}, but its decision log belongs to query {found.query}",
            next_step=identity.whose(path, found.query),
        )
    return Checkpoint(
        path=path,
        location=full,
        query=found.query,
        home=found.address,
        log=log,
        store=log_store(full),
        told=told,
    )


def _opened(found: Address | Problem) -> Checkpoint | Problem:
    if isinstance(found, Problem):
        return found
    try:
        return open_checkpoint(found.location)
    except OnceonlyError as error:
        return Problem(found.shown, error)


def _root(place: Address) -> Address:
    """Return the checkpoint of a log that was named itself, and else what was named."""
    above, _, last = place.path.rpartition("/")
    if last != identity.FOLDER or not _is_log(place):
        return place
    return replace(place, path=above or ("/" if place.kind is Kind.FOLDER else ""))


def _around(folder: Path) -> Path | None:
    """Return the checkpoint that a folder is in, such as its ``offsets``; None where it is in none that can be seen."""
    logs = ((each, each / identity.FOLDER / identity.NAME) for each in folder.absolute().parents)
    return next((each for each, log in logs if os.path.exists(log)), None)  # noqa: PTH110  Path's raises PermissionError


def _is_log(place: Address) -> bool:
    folder = folder_of(place)
    if folder is not None:
        return (folder / identity.NAME).exists()
    return open_store(place).get(identity.NAME) is not None
