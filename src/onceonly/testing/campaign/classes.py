"""An archive of the classes that a campaign's job loads: a quarter of a life's time, and lives are what it spends.

The first life that ends in order writes it, below the cache folder; later ones, of later campaigns too, read it.
Java goes on without one that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from onceonly.embedded.jars import cache_folder

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.testing.process import JobProcess

_DUMP_TIMEOUT_S = 90.0
_POLL_S = 0.05


@dataclass(slots=True)
class ClassArchive:
    """Where the archive is, and who writes it. Campaign's process, its main thread."""

    path: Path
    work: Path
    """A folder of the campaign's own."""
    _writer: JobProcess | None = None

    @classmethod
    def of(cls, java: str, work: Path) -> ClassArchive:
        """Give the one for this Java, as it names itself, and the installed Spark."""
        name = hashlib.sha256(f"{java} {metadata.version('pyspark')}".encode()).hexdigest()[:16]
        return cls(cache_folder() / "classes" / f"{name}.jsa", work)

    def option(self) -> str:
        """Give the option of the JVM that starts now; it writes the archive if nobody else does or has done."""
        if self.path.exists():
            return f"-XX:SharedArchiveFile={self.path}"
        if self._writer is not None and self._writer.exit_code is None:
            return ""
        return f"-XX:ArchiveClassesAtExit={self._written} -Xlog:disable"

    def started(self, process: JobProcess, option: str) -> None:
        """Note who has been given the option."""
        if option.startswith("-XX:ArchiveClassesAtExit"):
            self._writer = process

    def finish(self, process: JobProcess) -> None:
        """After a life has ended in order: wait for its JVM to write the archive, if it does, and put it in place."""
        if process is not self._writer:
            return
        self._writer = None
        deadline = time.monotonic() + _DUMP_TIMEOUT_S
        while process.members() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if not process.members() and self._written.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            whole = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            shutil.copyfile(self._written, whole)
            whole.replace(self.path)

    @property
    def _written(self) -> Path:
        return self.work / "classes.jsa"
