"""``checkpoints accept-move``: a checkpoint that was moved on purpose becomes at home where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import CheckpointMovedError, ConfigurationError, OnceonlyError, UnavailableError
from onceonly.log import LocalStore, checkpoint_path, identity
from onceonly.log.opening import accept_move
from onceonly.operations.resolve import refuse_if_alive

if TYPE_CHECKING:
    from onceonly.operations.find import Checkpoint


def refuse_unless_moved(checkpoint: Checkpoint, *, force: bool) -> None:
    """See that this is a move: nobody works here, and the former place no longer has this log.

    Raises ``ConfigurationError`` (it is at home; a run is alive), ``CheckpointMovedError`` (it is a copy),
    ``UnavailableError`` (the former place cannot be looked at, and ``force`` is not given).
    """
    if checkpoint.moved is None:
        raise ConfigurationError(
            f"{checkpoint.path} is at home at {checkpoint.home}: it has not moved", next_step="nothing"
        )
    refuse_if_alive(checkpoint, force=force)
    former = checkpoint_path(checkpoint.home)
    if former.resolve() == checkpoint.path.resolve():
        return  # a link was left at the former place
    try:
        there = identity.read(LocalStore(former / identity.FOLDER))
        here = identity.read(LocalStore(checkpoint.path / identity.FOLDER))
    except OnceonlyError as error:
        if force:
            return
        raise UnavailableError(
            f"it cannot be told whether the former place still has this log: {error.what}",
            next_step="make sure that it has not, and add --force",
        ) from error
    if there is not None and here is not None and there.log == here.log:
        raise CheckpointMovedError(
            f"{checkpoint.path} is a copy: the same decision log is still at {former}",
            next_step="use one of the two and remove the other; after that, run this again if need be",
        )


def accept(checkpoint: Checkpoint) -> None:
    """Record the move, durably. Idempotent."""
    accept_move(str(checkpoint.path))
