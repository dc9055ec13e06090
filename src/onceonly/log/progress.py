"""What Spark reports of an epoch: one small file each, for people, best effort.

``onceonly/progress/{epoch:020d}.json``. Unlike the log's other files these decide nothing: they are not synced,
are replaced when an epoch is run again, and only the newest hundred stay.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping  # noqa: TC003  the codec reads the annotations at run time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.log import codec
from onceonly.log.identity import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

PROGRESS = "progress"
KEEP = 100
_NAME = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """One source: its class, and its offsets as JSON texts. Nothing of its options."""

    name: str
    start: str = ""
    end: str = ""
    rows: int = 0


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


class ProgressFiles:
    """The files of one checkpoint. Driver, one thread; and tools, which only read."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / FOLDER / PROGRESS
        self._tidy = False

    def put(self, progress: Progress) -> None:
        """Write, or write again, and drop what is too old. Raises ``OSError``; leaves no half file behind."""
        self._folder.mkdir(exist_ok=True)
        final = self._folder / f"{progress.epoch:020d}.json"
        temporary = self._folder / f".{final.name}.{os.getpid()}.tmp"
        try:
            temporary.write_bytes(codec.encode("progress", progress))
            temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)
        if self._tidy:
            self._path(progress.epoch - KEEP).unlink(missing_ok=True)
        else:
            self._drop_old(progress.epoch)
            self._tidy = True

    def get(self, epoch: int) -> Progress | None:
        """Read, None where there is none. Raises ``LogError`` for a damaged file, ``OSError``."""
        path = self._path(epoch)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        return codec.decode(data, kind="progress", into=Progress, where=str(path))

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{max(epoch, 0):020d}.json" if epoch >= 0 else self._folder / ".none"

    def _drop_old(self, newest: int) -> None:
        for path in list(self._folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is None or int(match[1]) <= newest - KEEP:
                with contextlib.suppress(OSError):
                    path.unlink()
