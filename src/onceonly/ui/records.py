"""The log as a sequence: each link and each receipt has a position, and positions only grow. Pure."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceonly.model import LinkKind
from onceonly.operations.states import meaning
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.operations.checkpoint_model import EpochModel

RECEIPT: Final = sys.maxsize
"""The step of a receipt: it comes after every link of its epoch."""
_BEFORE_ALL = "start"
_TEXT = re.compile(r"([0-9]{1,18})\.([0-9]{1,9}|receipt)")
_SAYS = {
    LinkKind.COMMIT: "decided: {transactions} to commit",
    LinkKind.ABORT: "ABORT: {reason}",
    LinkKind.SKIPPED: "skipped: {reason}",
}


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the log: a link by its epoch and number (``7.0``), a receipt (``7.receipt``), or before all."""

    epoch: int
    step: int

    def __str__(self) -> str:
        if self == START:
            return _BEFORE_ALL
        return f"{self.epoch}.{'receipt' if self.step == RECEIPT else self.step}"


START: Final = Position(-1, 0)
"""Before the first link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One link or receipt in a few words; ``at`` is when it was put, by the clock of who put it, empty if unknown."""

    position: Position
    what: str
    at: str = ""

    @property
    def name(self) -> str:
        return f"chk-{self.position.epoch}"


def parse(text: str) -> Position | None:
    """Read a position; None for what is none."""
    if text == _BEFORE_ALL:
        return START
    match = _TEXT.fullmatch(text)
    return Position(int(match[1]), RECEIPT if match[2] == "receipt" else int(match[2])) if match else None


def records(epoch: EpochModel) -> list[Record]:
    """Return what the log has of an epoch, in its order; of one that is folded, that it is settled."""
    number = epoch.view.epoch
    found = [
        Record(
            position=Position(number, link.index),
            what=_SAYS[link.kind].format(
                transactions=n(len(link.pending), "transaction"), reason=meaning(link.reason)
            ),
            at=link.stamp.at if link.stamp else "",
        )
        for link in epoch.chain
    ]
    if epoch.receipt is not None or epoch.view.folded:
        stamp = epoch.receipt.stamp if epoch.receipt is not None else None
        found.append(
            Record(
                position=Position(number, RECEIPT),
                what="settled (folded)" if epoch.view.folded else "settled",
                at=stamp.at if stamp else "",
            )
        )
    return found


def after(epochs: Iterable[EpochModel], position: Position) -> list[Record]:
    """Return the records of epochs after a position, oldest first."""
    found = (record for epoch in epochs if epoch.view.epoch >= position.epoch for record in records(epoch))
    return sorted((each for each in found if each.position > position), key=lambda each: each.position)


def newest(epochs: Sequence[EpochModel]) -> Position:
    """Return how far the log has come, by its epochs, newest first."""
    told = after(epochs[:2], START)  # the newest epoch may have a barrier only
    return told[-1].position if told else START
