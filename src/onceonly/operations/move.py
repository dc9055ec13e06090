"""``checkpoints accept-move``: a checkpoint that was moved on purpose becomes at home where it is."""

from __future__ import annotations

import contextlib
import re
import shlex
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onceonly import events
from onceonly.errors import CheckpointMovedError, ConfigurationError, OnceonlyError, UnavailableError
from onceonly.log import identity
from onceonly.log.actions import Action, ActionFiles, user
from onceonly.log.opening import accept_move
from onceonly.log.place import log_store
from onceonly.operations.former import taken_back
from onceonly.operations.settle import refuse_if_alive
from onceonly.savepoints.manifest import FILES
from onceonly.savepoints.place import at as savepoint_at
from onceonly.stores.address import Kind, parse
from onceonly.stores.opened import address_of, folder_of
from onceonly.stores.probing import probe_name

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.operations.find import Checkpoint
    from onceonly.stores.address import Address
    from onceonly.stores.port import RewritableStore

COMMAND: Final = "accept-move"
# Of its clouds, and of Fabric.
_OF_AZURE = re.compile(
    r"[a-z0-9-]+\.dfs\.(?:core\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)|fabric\.microsoft\.com)"
)


def refuse_unless_moved(checkpoint: Checkpoint, *, force: bool) -> None:
    """See that this is a move: nobody works here, and the former place no longer has this log.

    A folder is looked at on this machine only, a store wherever it is. Raises ``ConfigurationError`` (it is at home; a
    run is alive; it is in a savepoint), ``CheckpointMovedError`` (it is a copy, or was restored elsewhere),
    ``UnavailableError`` (the former place cannot be looked at, or the folder around it is not there either, and
    ``force`` is not given).
    """
    if checkpoint.moved is None:
        raise ConfigurationError(
            f"{checkpoint.path} is at home at {checkpoint.home}: it has not moved", next_step="nothing"
        )
    _refuse_savepoint(checkpoint)
    refuse_if_alive(checkpoint, force=force)
    former = parse(checkpoint.home)
    folder = folder_of(former)
    if (
        folder is not None
        and checkpoint.folder is not None
        and folder.resolve() == checkpoint.folder.resolve()
    ):
        return  # a link was left at the former place
    if folder is not None and not force and not _is_folder(folder.parent):
        raise UnavailableError(
            f"it cannot be told whether the former place still has this log: {folder.parent} is not there on this "
            "machine, which may be a disk that is not mounted",
            next_step="mount it, or make sure that the former place is gone for good, and add --force",
        )
    taken = taken_back(checkpoint) if checkpoint.was_restored else None
    if taken is not None and not force:
        raise CheckpointMovedError(
            f"{checkpoint.path} has not moved: its query was restored from a savepoint to {former.shown}, and what it "
            f"had decided was taken back, or was to be, so that a start here would go on without these rows: "
            f"{taken.sentence}",
            next_step="start the job there; where that restore was broken off, type it again as it was typed; or, if "
            f"that checkpoint is gone for good: onceonly savepoint create {shlex.quote(checkpoint.path)} PLACE --epoch "
            f"chk-{taken.epoch}, and restore this one",
        )
    try:
        _refuse_stranger(former, parse(checkpoint.location))
        there = log_store(checkpoint.home)
        is_copy = _is_copy(checkpoint, there)
        was_restored = not is_copy and checkpoint.was_restored
        goes_on = was_restored and identity.read(there) is not None
    except OnceonlyError as error:
        if force:
            return
        first = f"{error.next_step}; or " if folder is None else ""
        raise UnavailableError(
            f"it cannot be told whether the former place still has this log: {error.what}",
            next_step=f"{first}make sure that it has not, and add --force",
        ) from error
    if is_copy:
        raise CheckpointMovedError(
            f"{checkpoint.path} is a copy: the same decision log is still at {former.shown}",
            next_step="use one of the two and remove the other; after that, run this again if need be",
        )
    if goes_on:
        raise CheckpointMovedError(
            f"{checkpoint.path} has not moved: its query was restored from a savepoint to {former.shown}, and goes on "
            "there under an id of its own, so both would write the same rows",
            next_step="start the job there; or remove that checkpoint, see to what it has written, and run this again "
            "with --force",
        )
    if was_restored and not force:
        raise CheckpointMovedError(
            f"{checkpoint.path} has not moved: its query was restored from a savepoint to {former.shown}. Nothing is "
            "there now, and it cannot be told whether it was moved on, and both would write the same rows",
            next_step="start the job where it went; or, if that checkpoint is gone for good, see to what it has "
            "written, and add --force",
        )


def accept(checkpoint: Checkpoint, *, force: bool) -> str:
    """Record the move, durably, after a last look: a person may have thought for long. Idempotent.

    Return what the query goes on without, empty where it lacks nothing. Raises as ``refuse_unless_moved``, before
    anything is written.
    """
    refuse_unless_moved(checkpoint, force=force)
    lacking = _lacking(checkpoint)
    actions, newest = ActionFiles(checkpoint.store), checkpoint.log.newest()
    action = Action(
        command=COMMAND, epoch=-1 if newest is None else newest, who=user(), stamp=events.stamp(),
        before=f"at home at {checkpoint.home}{lacking}",
    )  # fmt: skip
    if newest is not None:
        actions.put(action)
    now = accept_move(checkpoint.location).address
    if newest is not None:
        actions.put(replace(action, after=f"at home at {now}"))
    return lacking


def _lacking(checkpoint: Checkpoint) -> str:
    taken = taken_back(checkpoint) if checkpoint.was_restored else None
    rows = "; ".join(each.sentence for each in taken.withdrawn) if taken is not None else ""
    return rows and f", without what was taken back {rows}"


def _refuse_savepoint(checkpoint: Checkpoint) -> None:
    around, _, name = checkpoint.location.rstrip("/").rpartition("/")
    if name != FILES.rstrip("/"):
        return
    if savepoint_at(address_of(around)) is not None:
        raise ConfigurationError(
            f"{checkpoint.path} is what a savepoint holds, and a job that runs in it would spoil it",
            next_step=f"onceonly savepoint restore {shlex.quote(around)} --to CHECKPOINT",
        )


def _refuse_stranger(former: Address, here: Address) -> None:
    """See that no login goes to a host because a file names it: that of Azure is a part of the address."""
    if former.kind is Kind.AZURE and former.host != here.host and not _OF_AZURE.fullmatch(former.host):
        raise ConfigurationError(
            f"{former.text} is at a host that is none of Azure's, and only the checkpoint names it, so no login is "
            "sent there",
            next_step="look there yourself",
        )


def _is_copy(checkpoint: Checkpoint, former: RewritableStore) -> bool:
    there, here = identity.read(former), identity.read(checkpoint.store)
    if there is None or here is None or there.log != here.log:
        return False
    return checkpoint.folder is not None or not _is_same_place(checkpoint.store, former)


def _is_same_place(here: RewritableStore, there: RewritableStore) -> bool:
    """Say whether two addresses lead to one place, as those of a name node and of its name service do.

    What is put at the one is then at the other. Leaves nothing behind.
    """
    name = probe_name()
    try:
        here.replace(name, b"")
        return there.get(name) is not None
    finally:
        with contextlib.suppress(OnceonlyError):
            here.delete(name)


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False
