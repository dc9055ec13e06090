"""Each run of a query: when it began and ended, on which host and process. For people, best effort, as ``progress``.

``onceonly/runs/{began}-{run}.json``, of the newest hundred runs. They decide nothing, are not synced, may be removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly import events
from onceonly.log.dated import DatedFiles
from onceonly.log.heartbeat import lives
from onceonly.log.identity import FOLDER
from onceonly.model import Stamp  # noqa: TC001  the codec reads the annotations at run time
from onceonly.stores.folder import UnsyncedStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly.stores.port import RewritableStore

RUNS = "runs/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. ``began`` says where it lives, too; ``ended`` is empty while it lives, and where it was killed.

    ``name`` is the query's by then (``.queryName``), empty where it has none; ``spark`` the version of Spark.
    """

    run: str
    began: Stamp
    ended: str = ""
    name: str = ""
    spark: str = ""


def who_may_live(runs: Iterable[Run]) -> str | None:
    """Name a run that has not ended, and whose process is not known to be dead; None for none. Driver; only looks.

    For where no lock tells. Runs of this very process are none: Spark lets it have one on a checkpoint.
    """
    here = events.stamp()
    for run in runs:
        own = run.began.host == here.host
        if not run.ended and not (own and (run.began.pid == here.pid or not lives(run.began.pid))):
            return f"run {run.run} of host {run.began.host}, process {run.began.pid}, may be at work"
    return None


class RunFiles(DatedFiles[Run]):
    """The reports of one query's checkpoint, in its folder or the store of its log. Driver, one thread; tools read."""

    def __init__(self, place: Path | RewritableStore) -> None:
        store: RewritableStore = UnsyncedStore(place / FOLDER) if isinstance(place, Path) else place
        super().__init__(store, RUNS, kind="run", into=Run, ids="[A-Za-z0-9-]{1,64}")

    def of(self, run: str) -> Run | None:
        """Read the report of one run; None where there is none that can be read. Raises ``UnavailableError``."""
        names = [name for name in self._names() if run and name.endswith(f"Z-{run}.json")]
        return self._read(names[0]) if names else None

    def put(self, run: Run) -> None:
        """Write, or write again; drop what is too old. Raises ``UnavailableError``."""
        self._write(run.began, run.run, run)
