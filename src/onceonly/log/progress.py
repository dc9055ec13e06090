"""What Spark reports of each epoch, ten of them in a file, for people, best effort.

``onceonly/progress/{first:020d}-{last:020d}.json`` in a folder; ``stored_progress`` has those on other stores. Unlike
the log's other files these decide nothing: they are not synced, are replaced with each report, and only about the
newest hundred reports stay.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping  # noqa: TC003  the codec reads the annotations at run time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.errors import LogError
from onceonly.log import files
from onceonly.log.identity import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

PROGRESS = "progress"
KEEP = 100
BLOCK = 10
_NAME = re.compile(r"\d{20}-(\d{20})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """One source: its class, and its offsets as JSON texts. Nothing of its options.

    ``latest`` is how far the source itself was then, empty where it does not say.
    """

    name: str
    start: str = ""
    end: str = ""
    rows: int = 0
    latest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReport:
    """One stateful operator; ``custom`` are the state store's own figures."""

    name: str
    rows_total: int = 0
    rows_updated: int = 0
    memory_bytes: int = 0
    custom: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One try at an epoch, as Spark saw it. ``timestamp`` is Spark's text, ``duration_ms`` by its own names."""

    epoch: int
    run: str = ""
    timestamp: str = ""
    rows: int = 0
    duration_ms: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[SourceReport, ...] = ()
    operators: tuple[OperatorReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The newest report of each epoch of one file, in order."""

    reports: tuple[Progress, ...]


class ProgressFiles:
    """The files of one checkpoint. Driver, one thread; and tools, which only read."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / FOLDER / PROGRESS
        self._last = -1
        self._reports: dict[int, Progress] = {}

    def put(self, progress: Progress) -> None:
        """Write, or write again, and drop what is too old. Raises ``OSError``; leaves no half file behind.

        Another run that writes at the same time may take reports of the same ten epochs away.
        """
        self._folder.mkdir(exist_ok=True)
        final = self._path(progress.epoch)
        if _last(progress.epoch) != self._last:
            self._turn_to(progress.epoch)
        self._reports[progress.epoch] = progress
        reports = tuple(self._reports[epoch] for epoch in sorted(self._reports))
        temporary = self._folder / f".{final.name}.{os.getpid()}.tmp"
        try:
            temporary.write_bytes(files.encode("reports", Block(reports=reports)))
            temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing waits: each report is written when it comes."""

    def get(self, epoch: int) -> Progress | None:
        """Read, None where there is none. Raises ``LogError`` for a damaged file, ``OSError``."""
        if epoch < 0:
            return None
        found = {report.epoch: report for report in self._read(self._path(epoch))}
        return found.get(epoch) or self._alone(epoch)

    def kept(self) -> dict[int, Progress]:
        """Read all that are kept. Raises ``LogError`` for a damaged file, ``OSError``."""
        blocks = sorted(self._folder.glob("*-*.json"))
        return {report.epoch: report for path in blocks for report in self._read(path)}

    def _path(self, epoch: int) -> Path:
        last = _last(epoch)
        return self._folder / f"{last - BLOCK + 1:020d}-{last:020d}.json"

    def _read(self, path: Path) -> tuple[Progress, ...]:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return ()
        return files.decode(data, kind="reports", into=Block, where=str(path)).reports

    def _alone(self, epoch: int) -> Progress | None:
        """Read a file of one report, as they were at first."""
        path = self._folder / f"{epoch:020d}.json"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        return files.decode(data, kind="progress", into=Progress, where=str(path))

    def _turn_to(self, epoch: int) -> None:
        """Begin another file, or go on with what an earlier run has left of it; drop what is too old."""
        self._reports = {}
        with contextlib.suppress(LogError):  # a damaged one is for nobody, and is replaced
            self._reports = {report.epoch: report for report in self._read(self._path(epoch))}
        for path in list(self._folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is None or int(match[1]) <= epoch - KEEP:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._last = _last(epoch)


def _last(epoch: int) -> int:
    """Return the last epoch of the file that holds ``epoch``."""
    return epoch - epoch % BLOCK + BLOCK - 1
