"""What the rows of the table are made of: links, commands, and the ways to stop. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.model import (
    AlreadyCommitted,
    Committed,
    Guarantee,
    Link,
    LinkKind,
    Lost,
    Receipt,
    RetryLater,
    Unknown,
    differing,
)
from onceonly.protocol import states as s
from onceonly.protocol.messages import AbortHandle, CommitHandle, PutReceipt, Stop, StopReason, Sweep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.model import Outcome, Plan, Vote
    from onceonly.protocol import messages as m
    from onceonly.protocol.messages import Command
    from onceonly.protocol.states import Move

BEFORE_A_DRAIN = "claimed before a drain"
"""Why the epoch after one that is drained is claimed: nothing of it has begun."""


def superseded(state: s.SweepingStart | s.SweepingNext | s.Deciding, event: m.LinkTaken) -> Move:
    """Stop: another application stands where ours should, and ours ends: a newer run, or an operator who took over.

    A link that names none is of an operator's command of an earlier version, beside which a run starts again.
    """
    mine = state.link.application if isinstance(state, s.Deciding) else state.context.application
    by_command = mine and not event.link.application
    return stop(
        StopReason.OVERTAKEN if by_command else StopReason.SUPERSEDED,
        f"link {event.link.name} is there, written by plan {event.link.plan}",
    )


def overtaken(_state: s.State, event: m.LinkTaken) -> Move:
    """Stop, but restartably: another run was quicker with its claim."""
    # The taker may be a dying run that has just given up: whoever starts again sees what was put.
    return stop(StopReason.OVERTAKEN, f"link {event.link.name} was put by plan {event.link.plan} first")


def differences(then: Mapping[str, str | int], now: Mapping[str, str | int]) -> str:
    """Tell how a target is not what it was; empty where it is."""
    return ", ".join(f"{key} was {then[key]!r} and is {now.get(key)!r}" for key in differing(then, now))


def stop(reason: StopReason, detail: str) -> Move:
    """Stop the query."""
    return s.Stopped(), (Stop(reason, detail),)


def new_link(plan: Plan, kind: LinkKind, *, run: str, reason: str = "") -> Link:
    """Make a link in the name of a plan."""
    return Link(
        epoch=plan.epoch,
        index=plan.index,
        kind=kind,
        plan=plan.id,
        run=run,
        guarantee=plan.guarantee,
        barrier=plan.barrier,
        settings=plan.settings,
        uses=plan.uses,
        reason=reason,
        planned=plan.stamp,
    )


def repeat(plan: Plan, *, run: str, reason: str) -> Link:
    """Say again what was decided: what is committed is carried, what was lost is still owed."""
    link = new_link(plan, LinkKind.COMMIT, run=run, reason=reason)
    decided = plan.decided
    inputs = decided.inputs if decided is not None else None
    return replace(link, votes=plan.lost, carried=plan.carried, inputs=inputs)


def repeats(link: Link) -> bool:
    """Say whether all votes of a link were proven lost before it was put, and it only says again what is owed. Pure.

    A decision has no reason. What an operator has diverted has one, and votes of its own plan, as a decision does.
    """
    is_said_again = link.kind is LinkKind.COMMIT and bool(link.reason)
    return is_said_again and all(vote.plan != link.plan for vote in link.votes)


def sweep(link: Link) -> Sweep:
    """Sweep under a link, sparing what it names."""
    return Sweep(link, frozenset(vote.handle.transaction for vote in link.votes if vote.handle is not None))


def commits(link: Link) -> tuple[Command, ...]:
    """Commit every handle of a durable link."""
    once = link.guarantee is Guarantee.AT_MOST_ONCE
    return tuple(CommitHandle(vote, link, once) for vote in link.pending)


def aborts(votes: tuple[Vote, ...]) -> tuple[Command, ...]:
    """Abort handles that no link names."""
    return tuple(AbortHandle(vote) for vote in votes if vote.handle is not None)


def settle(link: Link, *, plan: str, outcomes: dict[str, int], found_by: s.Context | None = None) -> Move:
    """Put the receipt of a link whose handles are committed, in the name of a plan."""
    receipt = Receipt(epoch=link.epoch, index=link.index, plan=plan, outcomes=outcomes)
    return s.Receipting(link, found_by), (PutReceipt(receipt, link),)


def undecidable(outcomes: tuple[tuple[Vote, Outcome], ...]) -> Move | None:
    """Stop where an outcome allows no conclusion: unknown before delayed."""
    for kind, reason in ((Unknown, StopReason.IN_DOUBT), (RetryLater, StopReason.DELAYED)):
        found = [(vote, outcome) for vote, outcome in outcomes if isinstance(outcome, kind)]
        if found:
            text = "; ".join(
                f"sink {vote.sink}, transaction {vote.handle.transaction if vote.handle else '-'}: "
                f"{getattr(outcome, 'reason', '')}"
                for vote, outcome in found[:3]
            )
            needs = {
                outcome.needs for _, outcome in found if isinstance(outcome, RetryLater) and outcome.needs
            }
            if needs:
                return stop(
                    StopReason.REFUSED,
                    f"{len(found)} of {len(outcomes)} handles: {text}; {'; '.join(sorted(needs))}",
                )
            return stop(reason, f"{len(found)} of {len(outcomes)} handles: {text}")
    return None


_NAMES = {
    Committed: "committed",
    AlreadyCommitted: "already_committed",
    RetryLater: "retry_later",
    Lost: "lost",
    Unknown: "unknown",
}


def count(outcomes: tuple[tuple[Vote, Outcome], ...]) -> dict[str, int]:
    """Count outcomes by their names in the receipt."""
    return dict(Counter(_NAMES[type(outcome)] for _, outcome in outcomes))
