"""``checkpoints accept-move``: a checkpoint that was moved on purpose becomes at home where it is."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from onceonly.errors import CheckpointMovedError, ConfigurationError, OnceonlyError, UnavailableError
from onceonly.log import LocalStore, checkpoint_path, identity
from onceonly.log.opening import accept_move
from onceonly.operations.resolve import refuse_if_alive

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.operations.find import Checkpoint


def refuse_unless_moved(checkpoint: Checkpoint, *, force: bool) -> None:
    """See that this is a move: nobody works here, and the former place no longer has this log.

    Looks on this machine only. Raises ``ConfigurationError`` (it is at home; a run is alive),
    ``CheckpointMovedError`` (it is a copy), ``UnavailableError`` (the former place cannot be looked at, or the
    folder around it is not there either, and ``force`` is not given).
    """
    if checkpoint.moved is None:
        raise ConfigurationError(
            f"{checkpoint.path} is at home at {checkpoint.home}: it has not moved", next_step="nothing"
        )
    refuse_if_alive(checkpoint, force=force)
    former = checkpoint_path(checkpoint.home)
    if former.resolve() == checkpoint.path.resolve():
        return  # a link was left at the former place
    if not force and not _is_folder(former.parent):
        raise UnavailableError(
            f"it cannot be told whether the former place still has this log: {former.parent} is not there on this "
            "machine, which may be a disk that is not mounted",
            next_step="mount it, or make sure that the former place is gone for good, and add --force",
        )
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


def accept(checkpoint: Checkpoint, *, force: bool) -> None:
    """Record the move, durably, after a last look: a person may have thought for long. Idempotent.

    Raises as ``refuse_unless_moved``, before anything is written.
    """
    refuse_unless_moved(checkpoint, force=force)
    accept_move(str(checkpoint.path))


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False
