"""Requests that a run of a query ends in order: who asked, when and why. For people; nothing of safety rests on them.

``onceonly/stops/{began}-{run}.json``, named as the run that it is for, so that no later one is ended by it; those of
the newest hundred runs. The run's driver looks for it now and then, and writes it anew once it has seen it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceonly.errors import LogError
from onceonly.log.dated import DatedFiles
from onceonly.log.place import FOLDER
from onceonly.model import Stamp  # noqa: TC001  the codec reads the annotations at run time
from onceonly.options import without_secrets
from onceonly.stores.folder import UnsyncedStore

if TYPE_CHECKING:
    from onceonly.log.runs import Run
    from onceonly.stores.port import RewritableStore

STOPS: Final = "stops/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A request. ``who`` is a user's name on the machine of ``stamp``; ``seen`` is empty until the driver has seen it.

    ``began`` and ``run`` are those of the run that it is for.
    """

    run: str
    began: Stamp
    who: str
    stamp: Stamp
    because: str = ""
    seen: str = ""

    @property
    def sentence(self) -> str:
        """Tell it in a sentence, without its full stop."""
        why = f", because {without_secrets(self.because)!r}" if self.because else ""
        return f"run {self.run} was asked to end at {self.stamp.at} by {self.who} on {self.stamp.host}{why}"


class StopFiles(DatedFiles[Stop]):
    """The requests of one query, in its folder or the store of its log. Operator's process puts, driver looks."""

    def __init__(self, place: Path | RewritableStore) -> None:
        store: RewritableStore = UnsyncedStore(place / FOLDER) if isinstance(place, Path) else place
        super().__init__(store, STOPS, kind="stop", into=Stop, ids="[A-Za-z0-9-]{1,64}")

    def of(self, run: Run) -> Stop | None:
        """Return the request for a run, None where there is none, or a damaged one. Raises ``UnavailableError``."""
        try:
            return self._get(run.began, run.run)
        except LogError:
            return None

    def of_id(self, run: str) -> Stop | None:
        """Return the request for a run by its id alone: one listing more. Raises ``UnavailableError``."""
        return next((stop for stop in self.newest() if stop.run == run), None)

    def put(self, stop: Stop) -> None:
        """Write, or write again; drop what is too old. Raises ``UnavailableError``."""
        self._write(stop.began, stop.run, stop)
