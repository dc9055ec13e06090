"""What becomes of a query whose target went back behind the newest complete epoch. Driver, once a start."""

from __future__ import annotations

import logging

from onceonly.errors import TargetBehindError

OPTION = "onceonly.target.behind"
STOP, GO_ON = "stop", "go-on"
SHOW = "onceonly checkpoints show chk-N CHECKPOINT"
"""The command that tells at which offsets an epoch begins and ends."""
DOC = (
    f"what becomes of the query where the target lacks complete epochs, as a backup was restored: {STOP}, the default, "
    f"stops it before anything is written; {GO_ON} warns and goes on without them"
)

log = logging.getLogger("onceonly")


def refuse(what: str, advice: str, *, goes_on: bool) -> None:
    """Stop with ``what`` is wrong, or only tell it where the user has said to go on.

    ``advice`` says how missing epochs are written again, and what would be there twice then. Raises
    ``TargetBehindError``.
    """
    if goes_on:
        log.warning("%s. It goes on without these epochs, as %s says.", what, OPTION)
        return
    raise TargetBehindError(
        what, next_step=f"{advice}. To go on without them, start once with {OPTION}={GO_ON}"
    )
