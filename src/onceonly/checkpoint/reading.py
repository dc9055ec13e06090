"""Reading a checkpoint: which epoch is in flight, where its barrier lies, whose query it is.

Of Spark's own: only reads, and only what Spark has kept stable since 2.x: ``metadata``, ``offsets/N``, ``commits/N``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from onceonly import offsets
from onceonly.checkpoint.files import files_of
from onceonly.checkpoint.inputs import SparkInputs, no_barrier
from onceonly.errors import ConfigurationError, LogError

if TYPE_CHECKING:
    from onceonly.checkpoint.files import CheckpointFiles
    from onceonly.ports import InputFiles


class QueryCheckpoint(Protocol):
    """The folder that holds a query's log, and what it says of the query. Driver's processes; every call reads anew."""

    @property
    def files(self) -> CheckpointFiles:
        """The files in the folder."""
        ...

    def query(self) -> str:
        """Return the query's id."""
        ...

    def epoch(self) -> int:
        """Return the epoch in flight."""
        ...

    def barrier(self, epoch: int) -> tuple[str, ...]:
        """Return what an epoch reads, a text a source; empty where nobody can say."""
        ...

    def committed(self) -> frozenset[int]:
        """Return the epochs that are noted as complete."""
        ...

    def inputs(self) -> InputFiles | None:
        """Return the files of Spark's that say what an epoch reads; None where there are none."""
        ...


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """A query's checkpoint, as Spark writes it. Driver, planner or commit process; every call reads anew."""

    location: str
    files: CheckpointFiles

    @classmethod
    def at(cls, location: str) -> SparkCheckpoint:
        """Open the checkpoint at a location as the user wrote it. Raises ``ConfigurationError``."""
        return cls(location, files_of(location))

    def query(self) -> str:
        """Return the query's id. Raises ``ConfigurationError`` where no query keeps its checkpoint."""
        text = self.files.text("metadata")
        if text is None:
            raise ConfigurationError(
                f"no streaming query keeps its checkpoint at {self.location}",
                next_step="give the sink the same checkpointLocation as the query",
            )
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise LogError(
                f"{self.files.where('metadata')} does not hold a query id",
                next_step="put this file of Spark's back from a backup of this checkpoint, or start on a new one",
            ) from None

    def epoch(self) -> int:
        """Return the epoch in flight: the newest barrier. Spark writes it before it plans the epoch."""
        epochs = self.files.numbers("offsets")
        if not epochs:
            raise LogError(
                f"the checkpoint {self.location} has no offsets yet, so there is no epoch to write",
                next_step="report this: Spark planned a write before its barrier",
            )
        return max(epochs)

    def barrier(self, epoch: int) -> tuple[str, ...]:
        """Return the end offsets of an epoch, one JSON text per source, as Spark wrote them but for names."""
        text = self.files.text(f"offsets/{epoch}")
        if text is None:
            raise no_barrier(self.files, epoch)
        return offsets.barrier(text)

    def committed(self) -> frozenset[int]:
        """Return the epochs that Spark has noted as complete; it keeps about the last hundred."""
        return frozenset(self.files.numbers("commits"))

    def inputs(self) -> InputFiles:
        """Return the files that say what an epoch reads."""
        return SparkInputs(self.files)
