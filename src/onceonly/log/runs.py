"""Each run of a query: when it began and ended, on which host and process. For people, best effort, as ``progress``.

``onceonly/runs/{began}-{run}.json``, of the newest hundred runs. They decide nothing, are not synced, may be removed.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import LogError
from onceonly.log import files
from onceonly.log.identity import FOLDER
from onceonly.model import Stamp  # noqa: TC001  the codec reads the annotations at run time

if TYPE_CHECKING:
    from pathlib import Path

RUNS = "runs"
KEEP = 100
_NAME = re.compile(r"\d{8}T\d{9}Z-[A-Za-z0-9-]{1,64}\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. ``began`` says where it lives, too; ``ended`` is empty while it lives, and where it was killed."""

    run: str
    began: Stamp
    ended: str = ""


class RunFiles:
    """The reports of one query's checkpoint. Driver, one thread; tools read."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / FOLDER / RUNS

    def put(self, run: Run) -> None:
        """Write, or write again; drop what is too old. Raises ``OSError``."""
        self._folder.mkdir(exist_ok=True)
        began = re.sub(r"[-:.]", "", run.began.at)
        final = self._folder / f"{began}-{run.run}.json"
        temporary = self._folder / f".{final.name}.{os.getpid()}.tmp"
        try:
            temporary.write_bytes(files.encode("run", run))
            temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)
        for path in self._paths()[KEEP:]:
            path.unlink(missing_ok=True)

    def newest(self, limit: int = KEEP) -> list[Run]:
        """Read the newest runs, newest first; a damaged report is for nobody, and is left out. Raises ``OSError``."""
        found: list[Run] = []
        for path in self._paths()[:limit]:
            with contextlib.suppress(LogError, FileNotFoundError):
                found.append(files.decode(path.read_bytes(), kind="run", into=Run, where=str(path)))
        return found

    def _paths(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted((path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)
