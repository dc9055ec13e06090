"""Reading Spark's own checkpoint: which epoch is in flight, where its barrier lies, whose query it is.

Only reads, and only what Spark has kept stable since 2.x: ``metadata``, ``offsets/N``, ``commits/N``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly import offsets
from onceonly.errors import ConfigurationError, LogError
from onceonly.log import checkpoint_path

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """A query's checkpoint, as Spark writes it. Driver, planner or commit process; every call reads anew."""

    location: str
    path: Path

    @classmethod
    def at(cls, location: str) -> SparkCheckpoint:
        """Open the checkpoint at a location as the user wrote it (a path or ``file:`` address)."""
        return cls(location, checkpoint_path(location))

    def query(self) -> str:
        """Return the query's id. Raises ``ConfigurationError`` where no query keeps its checkpoint."""
        try:
            text = (self.path / "metadata").read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigurationError(
                f"no streaming query keeps its checkpoint at {self.location}",
                next_step="give the sink the same checkpointLocation as the query",
            ) from None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise LogError(
                f"{self.path / 'metadata'} does not hold a query id",
                next_step="restore this file of Spark's from a backup, or start on a new checkpoint",
            ) from None

    def epoch(self) -> int:
        """Return the epoch in flight: the newest barrier. Spark writes it before it plans the epoch."""
        epochs = _numbers(self.path / "offsets")
        if not epochs:
            raise LogError(
                f"the checkpoint {self.location} has no offsets yet, so there is no epoch to write",
                next_step="report this: Spark planned a write before its barrier",
            )
        return max(epochs)

    def barrier(self, epoch: int) -> tuple[str, ...]:
        """Return the end offsets of an epoch, one JSON text per source, as Spark wrote them but for names."""
        path = self.path / "offsets" / str(epoch)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise LogError(
                f"the barrier of chk-{epoch} is missing: {path}",
                next_step="restore the checkpoint's folder `offsets`; Spark itself cannot replay without it",
            ) from None
        return offsets.barrier(text)

    def committed(self) -> frozenset[int]:
        """Return the epochs that Spark has noted as complete; it keeps about the last hundred."""
        return frozenset(_numbers(self.path / "commits"))


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal()]
    except FileNotFoundError:
        return []
