"""What the rows of epochs add up to, by the log, beside what a target's rows do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceonly.log.history import columns_digest, sum_of
from onceonly.model import letters_of
from onceonly.operations.states import SETTLED
from onceonly.ports.standing import NO_COLUMNS

if TYPE_CHECKING:
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
    from onceonly.ports.standing import Held

_LETTERS: Final = (
    "the log has the checksums of the rows that were refused, and not of the letters that tell of them"
)
_CHANGED: Final = (
    "its rows are as many as were decided, and their values are others: at least one was changed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What rows add up to, with their columns; ``unknown`` says why that is not known."""

    columns: tuple[tuple[str, str], ...] = ()
    checksum: str = ""
    unknown: str = ""


def of_epoch(epoch: EpochModel, name: str, read: tuple[tuple[str, str], ...] | None = None) -> Decided:
    """Return what the log says of a sink's rows in one epoch that has details; ``read`` are columns that were read."""
    if letters_of(name) is not None:
        return Decided(unknown=_LETTERS)
    if name not in epoch.view.sums:
        return Decided(unknown=NO_COLUMNS)
    columns = epoch.chain[-1].uses[name].columns
    if read and read != columns:
        return Decided(unknown="the newest epoch has written other columns")
    return Decided(columns=columns, checksum=epoch.view.sums[name][1])


def newest_columns(model: CheckpointModel, name: str) -> tuple[tuple[str, str], ...]:
    """Return the columns of the newest epoch in which a sink has rows; none where they are not known."""
    return next(
        (of_epoch(each, name).columns for each in model.epochs if each.chain and name in each.view.sums), ()
    )


def in_all(model: CheckpointModel, name: str) -> Decided:
    """Return what the log says of all rows of a sink; not known where they did not all have the same columns."""
    epochs = [
        each for each in model.epochs if each.view.state in SETTLED and each.view.sinks.get(name, (0, 0))[0]
    ]
    if letters_of(name) is not None:
        return Decided(unknown=_LETTERS)
    without = next((each.view.name for each in epochs if name not in each.view.sums), "")
    if without:
        return Decided(unknown=f"the log has not noted the columns of {without}")
    columns = newest_columns(model, name)
    if not columns:
        return Decided(unknown="the log has no details any more of an epoch that wrote there")
    own = columns_digest(columns)
    other = next((each.view.name for each in epochs if each.view.sums[name][0] != own), "")
    if other:
        return Decided(unknown=f"{other} has written other columns than the newest epoch")
    return Decided(columns=columns, checksum=sum_of(each.view.sums[name][1] for each in epochs))


def compared(held: Held, decided: Decided) -> tuple[bool, tuple[str, ...]]:
    """Compare the values of as many rows as were decided: whether nothing speaks against them, and what to tell."""
    if held.checksum == decided.checksum != "" or not (held.checksum or held.unread):
        return True, ()
    if unread := decided.unknown or held.unread:
        return True, (f"its rows are counted, and their values not compared: {unread}",)
    return False, (_CHANGED,)
