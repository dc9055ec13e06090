"""How an epoch stands when an operator's command is over, for its record: the log has no place for all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import OnceonlyError
from onceonly.log.actions import NAMES_MAX
from onceonly.operations import look
from onceonly.operations.states import HandleState

if TYPE_CHECKING:
    from collections.abc import Collection

    from onceonly.log.actions import Action
    from onceonly.operations.checkpoint_model import EpochModel
    from onceonly.operations.find import Checkpoint


def stands(epoch: EpochModel) -> str:
    """Say how an epoch stands, and how many of its transactions in which state."""
    counts = {state: sum(each.state is state for each in epoch.handles) for state in HandleState}
    told = ", ".join(f"{count} {state.value}" for state, count in counts.items() if count)
    return epoch.view.state.value + (f" ({told})" if told else "")


def ended(
    checkpoint: Checkpoint, action: Action, done: Collection[str], error: OnceonlyError | None
) -> Action:
    """Return a record with how its epoch stands now; targets have ``done`` some transactions, ``error`` stopped it."""
    committed: tuple[str, ...] = ()
    link = -1
    try:
        epoch = look.epoch(checkpoint, action.epoch, sizes=False).epoch
    except OnceonlyError as unread:
        told = f"unknown: {unread.what}"
    else:
        if committed := _committed(epoch, done):
            link = epoch.chain[-1].index
        told = stands(replace(epoch, by_hand=epoch.by_hand.union(committed)))
    after = told if error is None else f"{told}; stopped: {error.what}"
    return replace(action, after=after, committed=committed, link=link)


def _committed(epoch: EpochModel, done: Collection[str]) -> tuple[str, ...]:
    """Name what was committed of an epoch of which others are in doubt."""
    pending = [each.transaction for each in epoch.handles if each.state is HandleState.PENDING]
    committed = tuple(name for name in pending if name in done)
    return committed[:NAMES_MAX] if len(committed) < len(pending) else ()
