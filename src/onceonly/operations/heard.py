"""Whether runs of a query leave word of themselves. On Spark Connect one does at its end at most, and may live else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceonly.log.actions import OPERATOR
from onceonly.log.runs import RunFiles
from onceonly.model import Stamp, seconds_of
from onceonly.operations import sinks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.log.runs import Run
    from onceonly.operations.find import Checkpoint

NOTED_S: Final = 6.0
"""How long a run that is seen alive no more may take to write down that it has ended: on a store it does so beside."""


def leaves_word(checkpoint: Checkpoint, runs: Sequence[Run] | None = None) -> bool:
    """Say whether a run has left word that put the newest link: on Spark Connect none does before its end.

    ``runs`` are the newest ones, newest first, where they were read.
    """
    own = [each for each in sinks.links(checkpoint) if not each.application.startswith(OPERATOR)]
    if not own:
        return True
    if runs is None:
        runs = RunFiles(checkpoint.store).newest(1)
    if not runs:
        return False
    ended = seconds_of(Stamp(at=runs[0].ended)) if runs[0].ended else 0.0
    return not ended or seconds_of(own[0].stamp) <= ended + NOTED_S
