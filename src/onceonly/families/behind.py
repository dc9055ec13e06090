"""What becomes of a query whose target is behind its checkpoint, or ahead of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceonly.errors import LogError, TargetBehindError
from onceonly.model import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.ports import WriteContext

OPTION = "onceonly.target.behind"
STOP, GO_ON = "stop", "go-on"
SHOW = "onceonly checkpoints show chk-N CHECKPOINT"
"""The command that tells at which offsets an epoch begins and ends."""
DOC = (
    f"what becomes of the query where the target lacks complete epochs, as a backup was restored: {STOP}, the default, "
    f"stops it before anything is written; {GO_ON} warns and goes on without them"
)

_STOOD = "stood"
"""The fact of a sink's check how far its target had come by then: the newest epoch, ``NOTHING`` for none."""
NOTHING = -1

log = logging.getLogger("onceonly")


def refuse(what: str, advice: str, *, goes_on: bool) -> None:
    """Stop with ``what`` is wrong, or only tell it where the user has said to go on. Driver, once a start.

    ``advice`` says how missing epochs are written again, and what would be there twice then. Raises
    ``TargetBehindError``.
    """
    if goes_on:
        log.warning("%s. It goes on without these epochs, as %s says.", what, OPTION)
        return
    raise TargetBehindError(
        what, next_step=f"{advice}. To go on without them, start once with {OPTION}={GO_ON}"
    )


def refuse_unknown(
    who: str, epoch: int, newest: int | None, *, kept: int, advice: str, goes_on: bool
) -> None:
    """Refuse what books do not know of a complete epoch, and say why as far as they tell; ``newest`` is theirs.

    They have names for as many epochs as are ``kept``. ``who`` has committed the epoch; the rest as in ``refuse``.
    Raises ``LogError`` where it is the checkpoint that went back, ``TargetBehindError`` where that is not known.
    """
    if newest is not None and newest > epoch + kept:
        raise LogError(
            f"{who} by its checkpoint, and its target holds epochs up to chk-{newest}: an older checkpoint was "
            "restored, or a copy of it is in use elsewhere. Nothing was written",
            next_step="Restore the newest checkpoint; or start on a new one, and accept that rows are written again.",
        )
    if newest is None or newest < epoch:
        held = "holds none of its epochs" if newest is None else f"ends at chk-{newest}"
        why = "an older dump was restored, or keys were evicted"
    else:
        held = f"has come to chk-{newest} without what this checkpoint decided"
        why = "an older checkpoint was restored, or a copy of it is in use elsewhere; or a part of the books is gone"
    refuse(f"{who}, and its target {held}: {why}", advice, goes_on=goes_on)


def refuse_forgotten(who: str, committed: int, newest: int | None) -> None:
    """See that a target still has the newest epoch that is known to be ``committed`` to it. Driver.

    By this process, or, before its first one, by what the check of this start has found (``stood``): it may go back
    while a query runs, between two epochs. ``newest`` is that of its books. Raises ``TargetBehindError``.
    """
    if committed > (NOTHING if newest is None else newest):
        raise TargetBehindError(
            f"{who} has forgotten chk-{committed}, which was committed to it meanwhile: an older dump was restored, or "
            "it keeps nothing through a restart",
            next_step="stop the query, see to the target, and start the query again: it says what is missing",
        )


def stood(newest: int | None) -> dict[str, int]:
    """Return the fact of a check that a target's newest epoch is this one."""
    return {_STOOD: NOTHING if newest is None else newest}


def stood_by(facts: Mapping[str, str | int]) -> int:
    """Return how far the target had come by the facts of a check, ``NOTHING`` where they do not say."""
    return int(facts.get(_STOOD, NOTHING))


def refuse_ahead(context: WriteContext, committed: int, *, to: str) -> None:
    """See that a target has no epoch after what this attempt may find there. Executor.

    ``committed`` is the newest epoch that it has. Raises ``LogError``; whoever runs the task looks into the log, which
    may tell the two causes apart.
    """
    # An epoch that runs as new has nothing committed; one that is repaired has a part.
    if committed > (context.epoch if context.mode is Mode.TENTATIVE else context.epoch - 1):
        raise LogError(
            f"Sink {context.sink} of query {context.query} has committed epoch {committed} to {to}, and this attempt "
            f"is of epoch {context.epoch}: a newer run works on this checkpoint, or an older checkpoint was restored. "
            "Nothing was written.",
            next_step="if there is a newer run, nothing: leave it to that one, and stop this one. Only if there is "
            "none, restore the newest checkpoint, or start a new one and accept that rows are repeated",
        )
