"""What Spark's checkpoint says of an epoch that the decision log does not know. Reads only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onceonly.checkpoint.inputs import SparkInputs
from onceonly.errors import LogError, OnceonlyError
from onceonly.model import Passed

if TYPE_CHECKING:
    from onceonly.checkpoint.reading import QueryCheckpoint


def passed(checkpoint: QueryCheckpoint, epoch: int, *, taken: bool) -> Passed | None:
    """Say what Spark has noted of an epoch; None where it has not. Planner process or driver, any number of times.

    ``taken`` says that the user takes over what was not decided here. An epoch before one that Spark has noted is
    noted, too: it keeps about a hundred notes, syncs none, and goes on with one epoch after the other.
    """
    if epoch > max(checkpoint.committed(), default=-1):
        return None
    inputs = SparkInputs(checkpoint.files).read(epoch)
    return Passed(
        epoch=epoch,
        barrier=_barrier(checkpoint, epoch),
        unchanged=_is_unchanged(checkpoint, epoch),
        taken=taken,
        # What nobody has any more is compared with nothing.
        inputs=inputs if inputs.files else None,
    )


def _is_unchanged(checkpoint: QueryCheckpoint, epoch: int) -> bool:
    """Say whether an epoch cannot have had rows.

    Nothing new came in since the epoch before. A query with state may all the same have given rows, by a watermark or
    a timer that ran on: there the clocks have to be the same, too, as where Spark only dealt the state anew.
    """
    before, now = _barrier(checkpoint, epoch - 1), _barrier(checkpoint, epoch)
    if not now or list(map(_parsed, before)) != list(map(_parsed, now)):
        return False
    if "state" not in checkpoint.files.folders():
        return True
    clocks = _clocks(checkpoint, epoch)
    return clocks is not None and clocks == _clocks(checkpoint, epoch - 1)


def _barrier(checkpoint: QueryCheckpoint, epoch: int) -> tuple[str, ...]:
    try:
        return checkpoint.barrier(epoch) if epoch >= 0 else ()
    except LogError:
        return ()  # Spark keeps about a hundred of them


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return line


def _clocks(checkpoint: QueryCheckpoint, epoch: int) -> tuple[object, object] | None:
    """Read watermark and time of an epoch from the second line of its offsets, None where they are not told."""
    try:
        told = json.loads((checkpoint.files.text(f"offsets/{epoch}") or "").split("\n")[1])
        return told["batchWatermarkMs"], told["batchTimestampMs"]
    except (OnceonlyError, ValueError, LookupError, TypeError):
        return None
