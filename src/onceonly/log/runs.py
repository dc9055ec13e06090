"""Each run of a query: when it began and ended, on which host and process. For people, best effort, as ``progress``.

``onceonly/runs/{began}-{run}.json``, of the newest hundred runs. They decide nothing, are not synced, may be removed.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import LogError
from onceonly.log import files
from onceonly.log.identity import FOLDER
from onceonly.model import Stamp  # noqa: TC001  the codec reads the annotations at run time
from onceonly.stores.folder import UnsyncedStore

if TYPE_CHECKING:
    from onceonly.stores.port import RewritableStore

RUNS = "runs/"
KEEP = 100
_NAME = re.compile(r"runs/\d{8}T\d{9}Z-[A-Za-z0-9-]{1,64}\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. ``began`` says where it lives, too; ``ended`` is empty while it lives, and where it was killed."""

    run: str
    began: Stamp
    ended: str = ""


class RunFiles:
    """The reports of one query's checkpoint, in its folder or the store of its log. Driver, one thread; tools read."""

    def __init__(self, place: Path | RewritableStore) -> None:
        self._store: RewritableStore = UnsyncedStore(place / FOLDER) if isinstance(place, Path) else place

    def put(self, run: Run) -> None:
        """Write, or write again; drop what is too old. Raises ``UnavailableError``."""
        began = re.sub(r"[-:.]", "", run.began.at)
        self._store.replace(f"{RUNS}{began}-{run.run}.json", files.encode("run", run))
        for name in self._names()[KEEP:]:
            self._store.delete(name)

    def newest(self, limit: int = KEEP) -> list[Run]:
        """Read the newest runs, newest first; a damaged report is for nobody, and is left out.

        Raises ``UnavailableError``.
        """
        found: list[Run] = []
        for name in self._names()[:limit]:
            with contextlib.suppress(LogError):
                run = files.read(self._store, name, kind="run", into=Run)
                found += [run] if run is not None else []
        return found

    def _names(self) -> list[str]:
        return sorted(filter(_NAME.fullmatch, self._store.list_names(RUNS)), reverse=True)
