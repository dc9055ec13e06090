"""One model of a checkpoint: what its log, Spark's files and its targets say, as one frozen value.

Whatever shows a checkpoint draws from it: tables, JSON, explanations, a page. It is made by ``look``, once, and has no
clock, no network and no Spark: what is not in it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onceonly.model import seconds_of
from onceonly.operations import disk, offsets, states
from onceonly.operations.states import HandleState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.guards.known import Known
    from onceonly.log.actions import Action
    from onceonly.log.progress import Progress
    from onceonly.log.runs import Run as DriversRun
    from onceonly.model import Link, Receipt
    from onceonly.operations.disk import Sizes, Step
    from onceonly.operations.find import Run
    from onceonly.operations.offsets import Partition
    from onceonly.operations.states import EpochView, HandleView
    from onceonly.ports.standing import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochModel:
    """One epoch. Of one that is folded, or of which nobody has decided anything, there is no more than ``view``.

    ``at`` is when it was last heard of. ``sources`` are its ranges, ``parts`` what it has in partitions of its targets,
    ``steps`` its times, ``checksums`` those of its files by their names below the log, ``progress`` what Spark has
    reported: the last is also there where reports were asked for, the others only where an epoch was asked for alone.
    ``note`` says what could not be read, and why.
    """

    view: EpochView
    at: float | None = None
    chain: tuple[Link, ...] = ()
    receipt: Receipt | None = None
    steps: tuple[Step, ...] = ()
    sources: tuple[tuple[Partition, ...], ...] = ()
    parts: tuple[tuple[str, Part], ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    note: str = ""
    by_hand: frozenset[str] = frozenset()
    """Transactions that targets have committed for an operator, while others are in doubt, and no receipt says it."""

    @property
    def handles(self) -> list[HandleView]:
        """Every transaction that a link names, under the first link that does."""
        return [
            replace(each, state=HandleState.COMMITTED)
            if each.state is HandleState.PENDING and each.transaction in self.by_hand
            else each
            for each in states.handles(self.chain, self.receipt)
        ]

    @property
    def owed(self) -> list[HandleView]:
        """Those of which rows are still to come: by this handle, or in the place of a lost one."""
        if self.receipt is not None:
            return []
        return [
            handle
            for handle in self.handles
            if handle.state is HandleState.PENDING
            or (handle.state is HandleState.LOST and handle.vote in self.chain[-1].votes)
        ]

    @property
    def behind(self) -> int | None:
        """How much its sources had, when it ended, that was not read, in their offsets; None where that is not told."""
        if not self.chain or self.progress is None:
            return None
        latest = [source.latest for source in self.progress.sources]
        parts = [part for source in offsets.sources((), self.chain[-1].barrier, latest) for part in source]
        told = [part.behind for part in parts if part.behind is not None]
        return sum(told) if told else None

    @property
    def behind_s(self) -> float | None:
        """How old the oldest place was at which it began to read, in seconds; None where no source tells time."""
        barrier = self.chain[-1].barrier if self.chain else ()
        told = [part.behind_ms for source in offsets.sources((), barrier) for part in source]
        known = [each for each in told if each is not None]
        return max(known) / 1000 if known else None

    def since(self, handle: HandleView) -> float | None:
        """When the link was put that names a transaction: by its stamp, as a copied file has another time."""
        what = disk.put(handle.link)
        return seconds_of(handle.link.stamp) or next(
            (step.at for step in self.steps if step.what == what), None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointModel:
    """One checkpoint: its query, its runs, what operators did by hand, and some of its epochs; all newest first.

    ``is_left`` says of one that is at home elsewhere that its query was restored there from a savepoint.
    ``sources`` is what the newest start found out of its sources; ``known`` how many epochs there are, and ``sizes``
    how much room it takes, both None where nobody counted. ``runs_left`` is how many older runs are kept and were not
    read. ``open_outside`` is what targets have open that no link names, by sink and name, None where nobody asked.
    """

    path: str
    address: str
    query: str
    home: str
    is_moved: bool
    run: Run
    is_left: bool = False
    sources: Known | None = None
    runs: tuple[DriversRun, ...] = ()
    runs_left: int = 0
    actions: tuple[Action, ...] = ()
    known: int | None = None
    epochs: tuple[EpochModel, ...] = ()
    sizes: Sizes | None = None
    open_outside: tuple[tuple[str, str], ...] | None = None

    @property
    def name(self) -> str:
        """What its newest run is called (``.queryName``); empty where it has no name, or nobody left word of it."""
        return self.runs[0].name if self.runs else ""

    @property
    def epoch(self) -> EpochModel:
        """The epoch that was asked for alone."""
        [found] = self.epochs
        return found

    @property
    def in_doubt(self) -> list[tuple[EpochModel, HandleView]]:
        """Decided transactions that are not known to be committed."""
        return [(epoch, handle) for epoch in self.epochs for handle in epoch.owed]

    @property
    def transactions(self) -> list[tuple[EpochModel, HandleView]]:
        """All transactions that links name."""
        return [(epoch, handle) for epoch in self.epochs for handle in epoch.handles]
