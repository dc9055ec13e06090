"""What the log alone tells of a query, with its job up or down. Any process; only reads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onceonly.log.place import notes_store
from onceonly.log.runs import RunFiles
from onceonly.model import seconds_of
from onceonly.telemetry.figures import Observed
from onceonly.telemetry.following import Follower
from onceonly.telemetry.starts import read_starts

if TYPE_CHECKING:
    from onceonly.log.runs import Run


def observe(location: str, *, name: str, is_running: bool | None) -> Observed:
    """Look at a log once, and return what it tells.

    ``is_running`` says whether a run is alive, None where nobody can tell. Raises ``LogError``, ``UnavailableError``.
    """
    follower = Follower(location)
    follower.look()
    run = _newest_run(location)
    return Observed(
        name=name,
        now=time.time(),
        totals=follower.totals,
        chain=follower.chain,
        is_running=is_running,
        began=seconds_of(run.began) if run else 0.0,
        starts=read_starts(location).count,
    )


def _newest_run(location: str) -> Run | None:
    runs = RunFiles(notes_store(location)).newest(1)
    return runs[0] if runs else None
