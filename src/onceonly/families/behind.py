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


def refuse_forgotten(who: str, committed: int, newest: int | None) -> None:
    """See that a target still has the newest epoch that this process has ``committed`` to it, -1 for none. Driver.

    It may go back while a query runs, between two epochs. ``newest`` is that of its books. Raises
    ``TargetBehindError``.
    """
    if committed > (-1 if newest is None else newest):
        raise TargetBehindError(
            f"{who} has forgotten chk-{committed}, which was committed to it meanwhile: an older dump was restored, or "
            "it keeps nothing through a restart",
            next_step="stop the query, see to the target, and start the query again: it says what is missing",
        )
