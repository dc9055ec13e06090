"""What the log says of an epoch, in words for people: its state, and the outcome of each handle. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from onceonly.log.history import by_sink, sums_by_sink
from onceonly.log.left import RESTORED
from onceonly.model import Guarantee, LinkKind, Skip, letters_of
from onceonly.options import without_secrets
from onceonly.protocol import repeats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onceonly.log.history import Summary
    from onceonly.model import Link, Receipt, Vote

# The protocol's words for its claims, which are in links that were written long ago too.
_CLAIMED = "claimed by a new run"
_DRAINED = "claimed before a drain"
_MEANINGS = {
    _CLAIMED: "a new run took it over; earlier tries are void",
    _DRAINED: "closed to older runs; the next start goes on here by itself",
    RESTORED: "closed, as the query was restored from a savepoint elsewhere",
    Skip.UNCHANGED.value: "nothing new was in it: no rows",
    Skip.FOREIGN.value: "another sink wrote it, or the foreachBatch function passed onceonly by; taken over as it is",
    Skip.SAVEPOINT.value: "the query begins after it, with a savepoint of another query, whose the rows are",
    Skip.SWALLOWED.value: "it failed and the foreachBatch function kept the error back; taken over without its rows",
    "every handle was proven lost": "every transaction was proven lost; the next start writes it again by itself",
}
VISIBLE: Final = frozenset({"committed", "already_committed"})
"""What a receipt says of a transaction whose rows are there."""


class EpochState(enum.StrEnum):
    """How far an epoch has come."""

    COMPLETE = "complete"
    """Everything decided is committed, and Spark has noted the epoch."""
    COMMITTED = "committed"
    """Everything decided is committed; Spark has not noted it and will run the plan again, writing nothing."""
    DECIDED = "decided"
    """The decision is durable; there is no receipt, so handles may not be committed yet."""
    REPAIRING = "repairing"
    """A part is committed, and a part was proven lost and is still to be written again."""
    ABORTED = "aborted"
    """What was begun is void: a run claimed the epoch, or a slot failed. Spark runs it (again)."""
    SKIPPED = "skipped"
    """Spark has noted it and it was not decided here: it had no rows, or was taken over as it is."""
    IN_FLIGHT = "in flight"
    """The barrier is set and nothing is decided; or the run that is alive has claimed it, and writes it now."""


SETTLED: Final = frozenset({EpochState.COMPLETE, EpochState.COMMITTED})
"""Everything that was decided is committed."""
OWED: Final = frozenset({EpochState.DECIDED, EpochState.REPAIRING})
"""Something is decided and not known to be committed."""
WITH_REASON: Final = frozenset({EpochState.ABORTED, EpochState.SKIPPED, EpochState.IN_FLIGHT})
"""The reason of the last link says why it stands so."""
QUIET: Final = SETTLED | {EpochState.SKIPPED}
"""Nothing is to be done any more."""


class HandleState(enum.StrEnum):
    """What is known of one transaction that a link names."""

    COMMITTED = "committed"
    PENDING = "pending"
    """Decided; not known to be committed."""
    LOST = "lost"
    """Proven not committed, and fenced; its rows are written again under another handle."""
    TRIED = "tried once"
    """At most once: the one try is over, and some of the epoch's handles were given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleView:
    """One transaction that a link of the chain names first."""

    vote: Vote
    link: Link
    state: HandleState

    @property
    def transaction(self) -> str:
        return self.vote.handle.transaction if self.vote.handle else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochView:
    """One epoch. ``sinks`` gives rows and transactions of its decided output; ``folded`` has no more than a line.

    ``sums`` gives the digest of each sink's columns and the checksum of its rows, where the log has noted the columns.
    Of a folded one ``planned_s`` is how long before its decision it was planned, ``settled_s`` how long after it its
    receipt was put; None where that is not known, and where links and receipt tell it.
    """

    epoch: int
    state: EpochState
    reason: str = ""
    links: int = 0
    sinks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    sums: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    seconds: float | None = None
    pending: int = 0
    aborts: int = 0
    folded: bool = False
    planned_s: float | None = None
    settled_s: float | None = None

    @property
    def name(self) -> str:
        return f"chk-{self.epoch}"

    @property
    def dead_letters(self) -> dict[str, int]:
        """How many rows each sink refused, by the sink's name; those that refused none are left out."""
        found = {letters_of(name): rows for name, (rows, _) in self.sinks.items() if rows}
        return {name: rows for name, rows in found.items() if name is not None}


_FOLDED = {
    LinkKind.COMMIT: EpochState.COMPLETE,
    LinkKind.ABORT: EpochState.ABORTED,
    LinkKind.SKIPPED: EpochState.SKIPPED,
}


def describe(epoch: int, chain: Sequence[Link], receipt: Receipt | None, *, noted: bool) -> EpochView:
    """Say what the chain of an epoch means; ``noted`` says whether Spark has it among its commits."""
    if not chain:
        return EpochView(epoch=epoch, state=EpochState.IN_FLIGHT)
    last = chain[-1]
    return EpochView(
        epoch=epoch,
        state=_state(last, receipt, noted=noted),
        reason=last.reason,
        links=len(chain),
        sinks=by_sink(last) if last.kind is LinkKind.COMMIT else {},
        sums=sums_by_sink(last) if last.kind is LinkKind.COMMIT else {},
        outcomes=receipt.outcomes if receipt else {},
        seconds=receipt.seconds if receipt else None,
        aborts=sum(link.kind is LinkKind.ABORT for link in chain),
        pending=sum(handle.state is HandleState.PENDING for handle in handles(chain, receipt)),
    )


def under_way(view: EpochView) -> EpochView:
    """Return an epoch as it stands while a run is alive: what a new run has claimed is being written, not given up."""
    if view.state is EpochState.ABORTED and view.reason == _CLAIMED:
        return replace(view, state=EpochState.IN_FLIGHT)
    return view


def is_closed(view: EpochView) -> bool:
    """Say whether an epoch is but closed to older runs after all that was decided: nothing of it is to be finished."""
    return view.state is EpochState.ABORTED and view.reason in {_DRAINED, RESTORED}


def is_quiet(view: EpochView) -> bool:
    """Say whether nothing of an epoch is to be done any more, or yet."""
    return view.state in QUIET or is_closed(view)


def meaning(reason: str) -> str:
    """Say what a link's reason means to who runs the query."""
    return _MEANINGS.get(reason) or without_secrets(reason)


def folded(line: Summary) -> EpochView:
    """Say what a line of history means: an epoch is folded only when it is settled."""
    return EpochView(
        epoch=line.epoch,
        state=_FOLDED[line.kind],
        links=line.links,
        sinks=line.sinks,
        sums=line.sums,
        outcomes=line.outcomes,
        seconds=line.seconds,
        aborts=line.aborts,
        folded=True,
        planned_s=line.planned_s or None,
        settled_s=line.settled_s or None,
    )


def handles(chain: Sequence[Link], receipt: Receipt | None) -> list[HandleView]:
    """Return every transaction that a link names, under the first link that does, with what became of it."""
    views: list[HandleView] = []
    seen: set[tuple[str, str]] = set()
    for link in chain:
        for vote in link.votes:
            if vote.handle is None or (vote.sink, vote.handle.transaction) in seen:
                continue  # a repeated decision names what an earlier link has named
            seen.add((vote.sink, vote.handle.transaction))
            views.append(HandleView(vote=vote, link=link, state=_outcome(vote, link, chain, receipt)))
    return views


def _state(last: Link, receipt: Receipt | None, *, noted: bool) -> EpochState:
    if last.kind is LinkKind.ABORT:
        return EpochState.ABORTED
    if last.kind is LinkKind.SKIPPED:
        return EpochState.SKIPPED
    if receipt is not None:
        return EpochState.COMPLETE if noted else EpochState.COMMITTED
    return EpochState.REPAIRING if repeats(last) else EpochState.DECIDED


def _outcome(vote: Vote, link: Link, chain: Sequence[Link], receipt: Receipt | None) -> HandleState:
    last = chain[-1]
    if vote in last.carried:
        return HandleState.COMMITTED
    if link is not last and (repeats(last) or vote not in last.votes):
        # A link is followed by one that claims, for what is lost or where nothing was decided; or, where an operator
        # has diverted a transaction, by one that has others in its place, and names the rest again.
        return HandleState.LOST
    if receipt is None:
        return HandleState.PENDING
    if link.guarantee is Guarantee.AT_MOST_ONCE and not VISIBLE.issuperset(receipt.outcomes):
        return HandleState.TRIED
    return HandleState.COMMITTED
