"""The log of a batch: a folder of the batch's id, in which Spark keeps nothing.

Of a stream, Spark's checkpoint says whose epochs a log decides, and what they read. A batch is one epoch of a query of
its own, whose id tells the batch's. What it reads nobody can name; its rows are compared, and before them its columns,
which stand where an epoch of a stream has its barrier.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.checkpoint.files import files_of
from onceonly.errors import ConfigurationError, LogError
from onceonly.log import files as log_files
from onceonly.log import identity
from onceonly.log.opening import begin_log, query_of
from onceonly.model import LinkKind
from onceonly.ports import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.checkpoint.files import CheckpointFiles
    from onceonly.model import Link

EPOCH = 0
"""The one epoch of a batch."""
# Spark draws a UUID for a stream, which does not begin so.
_QUERY = re.compile(rf"{BATCH}[A-Za-z0-9_-]+-[0-9a-f]{{12}}")
_COLUMNS = "columns"
_RECEIPT = f"{identity.FOLDER}/{log_files.receipt(EPOCH)}"


def is_batch(query: str) -> bool:
    """Say whether a query's id is that of a batch, and not of a stream. Anywhere; pure."""
    return _QUERY.fullmatch(query) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCheckpoint:
    """The folder of a batch's log. Planner or commit process, tools; every call reads anew.

    ``columns`` are those of this run's rows, empty where a tool looks.
    """

    location: str
    files: CheckpointFiles
    job: str
    columns: str = ""

    @classmethod
    def at(cls, location: str, job: str, columns: Iterable[tuple[str, str]] = ()) -> BatchCheckpoint:
        """Open the folder of a batch's id at its own location. Raises ``ConfigurationError``."""
        shown = ", ".join(f"{name} {kind}" for name, kind in columns)
        return cls(location=location, files=files_of(location), job=job, columns=shown)

    def begin(self) -> None:
        """Make the log where there is none yet. Planner process, once a run; idempotent.

        Raises ``ConfigurationError`` where something else has the folder, or where what was decided had other columns;
        ``LogError``, ``UnavailableError``.
        """
        above = self.location.rpartition("/")[0] or "/"
        for folder, files in ((above, files_of(above)), (self.location, self.files)):
            if files.text("metadata") is not None:
                raise self._taken(f"{folder} is the checkpoint of a stream")
        if files_of(above).text(f"{identity.FOLDER}/{identity.NAME}") is not None:
            raise self._taken(f"{above} is the log of another query")
        # Sinks make names of it, and know no other letters from streams.
        tame = f"{BATCH}{re.sub('[^A-Za-z0-9_-]', '-', self.job)}-"
        # What is random keeps batches apart that have the same id in other folders.
        log = begin_log(self.location, query=f"{tame}{secrets.token_hex(6)}")
        if not (is_batch(log.query) and log.query.startswith(tame)):
            raise self._taken(f"{self.location} is the log of the query {log.query}")
        self._require_same_columns(log.chain(EPOCH))

    def query(self) -> str:
        """Return the query's id. Raises ``LogError`` where no run has begun."""
        return query_of(self.location)

    def epoch(self) -> int:
        """Return the one epoch of the batch."""
        return EPOCH

    def barrier(self, epoch: int) -> tuple[str, ...]:
        """Return the columns of the rows, as a JSON text; empty where a tool looks."""
        return (json.dumps({_COLUMNS: self.columns}),) if self.columns and epoch == EPOCH else ()

    def committed(self) -> frozenset[int]:
        """Return the epoch where its receipt stands: nobody else notes it."""
        return frozenset({EPOCH} if self.files.text(_RECEIPT) is not None else ())

    def inputs(self) -> None:
        """Return no file: what a batch reads stands in none."""

    def _require_same_columns(self, chain: Sequence[Link]) -> None:
        decided = chain[-1].barrier if chain and chain[-1].kind is LinkKind.COMMIT else ()
        if decided and decided != self.barrier(EPOCH):
            raise ConfigurationError(
                f"the batch {self.job} was decided with the columns {_columns(decided)}, and this run has "
                f"{self.columns}: nothing was written",
                next_step="give other rows an id of their own (onceonly.job), or select the columns that it had",
            )

    def _taken(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"{what}, so the batch {self.job} cannot keep its log there",
            next_step="give the job's batches a checkpointLocation of their own: in it, each id gets a folder",
        )


def _columns(barrier: tuple[str, ...]) -> str:
    try:
        return str(json.loads(barrier[0])[_COLUMNS])
    except (ValueError, LookupError, TypeError):
        raise LogError(
            f"the decision of a batch does not tell its columns: {barrier}",
            next_step="restore the folder of its log from a backup",
        ) from None
