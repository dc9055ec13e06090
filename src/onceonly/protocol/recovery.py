"""Rows of the table for what must be done before an epoch can run: claims, sweeps, found decisions, drains. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.model import Guarantee, LinkKind, Lost, Mode
from onceonly.protocol import states as s
from onceonly.protocol.messages import PutLink, ReadChain, RestoreInputs, StopReason
from onceonly.protocol.moves import (
    commits,
    count,
    new_link,
    repeat,
    settle,
    stop,
    sweep,
    undecidable,
)
from onceonly.protocol.skipping import lost_before

if TYPE_CHECKING:
    from onceonly.model import Link, Vote
    from onceonly.protocol import messages as m
    from onceonly.protocol.states import Move


def claim(context: s.Context, *, index: int, reason: str = "claimed by a new run") -> Move:
    """Claim an epoch of which nothing is committed."""
    link = new_link(context.new_plan(Mode.RUN, index=index), LinkKind.ABORT, run=context.run, reason=reason)
    return s.Claiming(context, link), (PutLink(link),)


def _claim_rest(context: s.Context, decided: Link, lost: tuple[Vote, ...], carried: tuple[Vote, ...]) -> Move:
    """Claim an epoch of which a part is committed.

    An ABORT link would void that part, so the claim repeats the decision: an older run that is still writing
    the lost rows finds its number taken, and the sweep may void what it has prepared.
    """
    if decided.guarantee is not context.guarantee:
        return stop(StopReason.SETTINGS, f"decided {decided.guarantee}, now {context.guarantee}")
    plan = context.new_plan(Mode.TENTATIVE, index=decided.index + 1, decided=decided)
    link = repeat(replace(plan, lost=lost, carried=carried), run=context.run, reason="a part was proven lost")
    return s.Claiming(context, link), (PutLink(link),)


def claimed(state: s.Claiming, event: m.LinkPersisted) -> Move:
    """The epoch is ours; sweep what earlier runs have open."""
    # Only now may other runs' votes be voided: the claim is the last link of the chain.
    return s.SweepingStart(state.context, event.link), (sweep(event.link),)


def start_swept(state: s.SweepingStart, _event: m.Swept) -> Move:
    """Run the claimed epoch: as new, or tentatively where a part is committed."""
    link = state.link
    if link.kind is LinkKind.ABORT:
        return s.start_tasks(state.context.new_plan(Mode.RUN, index=link.index + 1))
    plan = state.context.new_plan(Mode.TENTATIVE, index=link.index + 1, decided=link)
    return s.start_tasks(replace(plan, lost=link.votes, carried=link.carried))


def start_not_swept(_state: s.State, event: m.SweepFailed) -> Move:
    """Stop: no task runs while leftovers cannot be listed."""
    if event.needs:
        return stop(StopReason.UNSWEPT, f"{event.reason}; {event.needs}")
    return stop(StopReason.DELAYED, event.reason)


def drain(context: s.Context, link: Link) -> Move:
    """Drain a settled epoch, once the chain of the next one is read."""
    return s.Draining(context, link), (ReadChain(context.epoch + 1, owners=True),)


def next_claimed(state: s.ClaimingNext, event: m.LinkPersisted) -> Move:
    """The next epoch is ours; sweep before the drain."""
    return s.SweepingNext(state.context, state.link), (sweep(event.link),)


def next_swept(state: s.SweepingNext, _event: m.Swept) -> Move:
    """Drain."""
    return start_drain(state.context, state.link)


def start_drain(context: s.Context, link: Link) -> Move:
    """Let the tasks run that write nothing."""
    return s.start_tasks(context.new_plan(Mode.DRAIN, index=link.index + 1, decided=link))


def synced(state: s.Syncing, event: m.LinkPersisted) -> Move:
    """A found decision is durable: commit it, or settle it where nothing is to be committed."""
    link = event.link
    if not link.pending:
        return _settle(state.context, link, {})
    if link.guarantee is Guarantee.AT_MOST_ONCE:
        # The link was the intent and the one try is over; what is still open goes with the next sweep.
        return _settle(state.context, link, {"given_up": len(link.pending)})
    return s.Resolving(state.context, link, len(link.pending)), commits(link)


def resolving(state: s.Resolving, event: m.Resolved) -> Move:
    """Collect the outcomes of recovery; with the last one, settle, claim again or stop."""
    outcomes = (*state.outcomes, (event.vote, event.outcome))
    if len(outcomes) < state.expected:
        return s.Resolving(state.context, state.link, state.expected, outcomes), ()
    stopped = undecidable(outcomes)
    if stopped:
        return stopped
    lost = tuple(vote for vote, outcome in outcomes if isinstance(outcome, Lost))
    if lost and state.context.then is not None:
        return lost_before(state.context, state.link, outcomes)
    if not lost:
        return _settle(state.context, state.link, count(outcomes))
    gone = {(vote.sink, vote.slot) for vote in lost}
    # What was visible without a handle (at least once) stays the epoch's, too.
    kept = tuple(vote for vote in state.link.votes if vote.rows and (vote.sink, vote.slot) not in gone)
    carried = state.link.carried + kept
    if all(vote.handle is None for vote in carried):
        return claim(state.context, index=state.link.index + 1, reason="every handle was proven lost")
    return _claim_rest(state.context, state.link, lost, carried)


def receipt_put(state: s.Receipting, _event: m.ReceiptPersisted) -> Move:
    """The epoch is settled: drain after a recovery, sweep after a decision."""
    context = state.found_by
    if context is None:
        return s.SweepingEnd(state.link), (sweep(state.link),)
    if context.then is not None:
        return s.Reading(context.then), (ReadChain(context.then.epoch, owners=True),)
    return drain(context, state.link)


def _settle(context: s.Context, link: Link, outcomes: dict[str, int]) -> Move:
    return settle(link, plan=context.plan, outcomes=outcomes, found_by=context)


def withdrawn(state: s.Withdrawing, event: m.LinkPersisted) -> Move:
    """Nobody decides the epoch under an older claim any more: take its offsets away, and restore those before."""
    return s.Restoring(state.context), (RestoreInputs(state.links, state.discard, event.link),)


def restored(state: s.Restoring, event: m.InputsRestored) -> Move:
    """Stop, restartably: Spark has read what was wrong, and reads the files anew when it starts."""
    return stop(StopReason.RESTORED, f"chk-{state.context.epoch}: {', '.join(event.files)}")


def not_restored(_state: s.Restoring, event: m.InputsNotRestored) -> Move:
    """Stop by name."""
    return stop(StopReason.BARRIER, event.reason)
