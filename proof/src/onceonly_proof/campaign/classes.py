"""An archive of the classes that a campaign's job loads: a quarter of a life's time, and lives are what it spends.

The first life that ends in order writes it, below the cache folder; later ones, of later campaigns too, read it.
Java goes on without one that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from onceonly.jars.locked import cache_folder
from onceonly_proof.handover import until

if TYPE_CHECKING:
    import psutil

_DUMP_TIMEOUT_S = 90.0
_WRITTEN = "classes.jsa"


class Members(Protocol):
    """A life, by its processes."""

    def members(self) -> list[psutil.Process]:
        """List those that still run."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the archive is. Campaign's process."""

    path: Path

    @classmethod
    def of(cls, java: str) -> ClassArchive:
        """Return the one for this Java, as it names itself, and the installed Spark.

        Java takes one for its jars only where they lie as they lay, and have not been written anew.
        """
        there = jars()
        spark = f"{metadata.version('pyspark')} {there} {there.stat().st_mtime_ns if there.is_dir() else 0}"
        name = hashlib.sha256(f"{java} {spark}".encode()).hexdigest()[:16]
        return cls(cache_folder() / "classes" / f"{name}.jsa")

    def option(self, life: Path) -> str:
        """Return the option of the JVM of a life, by its folder: read the archive, or write one if it ends in order."""
        if self.path.exists():
            return f"-XX:SharedArchiveFile={self.path}"
        return f"-XX:ArchiveClassesAtExit={life / _WRITTEN} -Xlog:disable"

    def finish(self, process: Members, life: Path) -> None:
        """After a life has ended in order: if there is no archive yet, wait for its JVM's, and put it in place."""
        if self.path.exists():
            return
        ended = until(lambda: not process.members(), _DUMP_TIMEOUT_S, poll_s=0.05)
        if ended and (life / _WRITTEN).exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            whole = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            shutil.copyfile(life / _WRITTEN, whole)
            whole.replace(self.path)


def jars() -> Path:
    """Return where the jars of the installed PySpark lie."""
    spec = find_spec("pyspark")
    return Path(spec.origin if spec and spec.origin else "pyspark").parent / "jars"
