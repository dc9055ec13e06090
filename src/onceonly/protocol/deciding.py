"""Rows of the table after the votes: the decision, its commits, and giving up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.model import Guarantee, LinkKind, Lost, Mode
from onceonly.protocol import events as e
from onceonly.protocol import inputs
from onceonly.protocol import states as s
from onceonly.protocol.commands import CheckPrepared, PutLink, Report, ReportKind, StopReason
from onceonly.protocol.matching import difference, match
from onceonly.protocol.moves import (
    Move,
    aborts,
    commits,
    count,
    differences,
    new_link,
    repeat,
    settle,
    stop,
    sweep,
    undecidable,
)

if TYPE_CHECKING:
    from onceonly.model import Plan, Vote


def voted(state: s.Running, event: e.VotesCollected) -> Move:
    """All slots voted commit: check and decide, compare (drain), or match with what was lost (tentative)."""
    plan = state.plan
    foreign = _foreign(plan, event.votes)
    if foreign:
        return stop(StopReason.FOREIGN_VOTE, foreign)
    if plan.mode is Mode.DRAIN:
        return _compare(plan, event.votes)
    if plan.mode is Mode.TENTATIVE:
        return _repair(plan, event.votes)
    return _decide(plan, event.votes)


def _compare(plan: Plan, votes: tuple[Vote, ...]) -> Move:
    """See whether a replay gives what was decided. Spark has not noted the epoch yet, and after it has, it is over."""
    if plan.decided is not None and plan.decided.kind is LinkKind.SKIPPED:
        return s.Done(), ()  # whatever rows it has are none of this log's
    decided = plan.decided.output if plan.decided is not None else ()
    differs = difference(decided, votes)
    message = f"chk-{plan.epoch} was replayed with other rows: {differs}"
    if differs and plan.strict:
        return stop(StopReason.REPLAY, message)
    return s.Done(), (Report(ReportKind.REPLAY_DIFFERS, message),) if differs else ()


def _repair(plan: Plan, votes: tuple[Vote, ...]) -> Move:
    matched, rest, missing = match(plan.lost, votes)
    differs = difference((*plan.carried, *plan.lost), votes)
    if missing or differs:
        # Nobody but this plan could ever name these handles, so aborting them needs no link.
        state, stopping = stop(StopReason.MISMATCH, missing or differs)
        return state, (*aborts(votes), *stopping)
    return _decide(plan, matched, rest)


def _decide(plan: Plan, votes: tuple[Vote, ...], rest: tuple[Vote, ...] = ()) -> Move:
    link = replace(
        new_link(plan, LinkKind.COMMIT, run=votes[0].run if votes else ""), votes=votes, carried=plan.carried
    )
    return s.Checking(plan, link, rest), (CheckPrepared(plan, link),)


def checked(state: s.Checking, event: e.Checked) -> Move:
    """In time: put the decision. Late, or prepared in what is gone: stop before it; the epoch is run again."""
    limit_s = state.plan.limit_s
    if limit_s is not None and event.age_s > limit_s:
        return stop(StopReason.LATE, f"it took {event.age_s:.1f} s, and its limit is {limit_s:g} s")
    if event.expiring:
        return stop(StopReason.LATE, "; ".join(event.expiring))
    for sink, now in event.settings.items():
        changed = differences(state.link.settings.get(sink, {}), now)
        if changed:
            return stop(StopReason.EXCHANGED, f"sink {sink}: {changed}")
    if event.unsynced:
        return stop(StopReason.UNSYNCED, event.unsynced)
    read = event.inputs
    if read is not None and state.plan.inputs not in {"", read.digest}:
        return stop(
            StopReason.MOVED,
            f"offsets/{state.plan.epoch}: planned {list(state.plan.barrier)}, now {list(read.barrier or ())}",
        )
    strayed = inputs.moved(state.plan.epoch, event.span, read)
    if strayed is not None:
        return strayed
    link = replace(state.link, inputs=read)
    return s.Deciding(state.plan, link, state.rest), (PutLink(link),)


def decided(state: s.Deciding, event: e.LinkPersisted) -> Move:
    """The decision is durable, so its commits may be sent."""
    link = event.link
    losers = aborts(state.rest)
    if not link.pending:
        done, commands = settle(link, plan=state.plan, outcomes={})
        return done, (*losers, *commands)
    return s.Committing(state.plan, link, len(link.pending)), (*losers, *commits(link))


def committing(state: s.Committing, event: e.Resolved) -> Move:
    """Collect the outcomes of the commits; with the last one, settle the epoch or stop."""
    outcomes = (*state.outcomes, (event.vote, event.outcome))
    if len(outcomes) < state.expected:
        return s.Committing(state.plan, state.link, state.expected, outcomes), ()
    if state.link.guarantee is not Guarantee.AT_MOST_ONCE:
        stopped = undecidable(outcomes)
        if stopped:
            return stopped
        lost = [outcome for _, outcome in outcomes if isinstance(outcome, Lost)]
        if lost:
            return stop(StopReason.LOST, f"{len(lost)} of {len(outcomes)}: {lost[0].proof}")
    return settle(state.link, plan=state.plan, outcomes=count(outcomes))


def end_swept(_state: s.SweepingEnd, _event: e.Event) -> Move:
    """Leave the try: the epoch is settled, whatever came of the sweep."""
    # A sweep that failed is tried again after the next epoch; losers may vote late, too.
    return s.Done(), ()


def abandoned(state: s.Abandoning, event: e.ChainRead) -> Move:
    """Void a try that was not decided; leave alone what was."""
    plan = state.plan
    if len(event.links) != plan.index or plan.mode is Mode.DRAIN:
        # Decided (a commit failed after its link), claimed by a newer run, or nothing to give up.
        return s.Done(), ()
    if plan.mode is Mode.TENTATIVE:
        link = repeat(plan, run=state.run, reason=state.reason)
    else:
        link = new_link(plan, LinkKind.ABORT, run=state.run, reason=state.reason)
    return s.Voiding(link), (PutLink(link),)


def voided(_state: s.Voiding, event: e.LinkPersisted) -> Move:
    """Nobody can decide this try any more, so what it left open may be swept."""
    return s.SweepingEnd(event.link), (sweep(event.link),)


def not_voided(_state: s.Voiding, _event: e.LinkTaken) -> Move:
    """Somebody else has had the last word."""
    return s.Done(), ()


def _foreign(plan: Plan, votes: tuple[Vote, ...]) -> str:
    for vote in votes:
        if (vote.plan, vote.epoch) != (plan.id, plan.epoch):
            return f"a vote of plan {vote.plan}, chk-{vote.epoch} came to plan {plan.id}, chk-{plan.epoch}"
    slots = Counter((vote.sink, vote.slot) for vote in votes)
    twice = [slot for slot, count in slots.items() if count > 1]
    return f"two votes for (sink, slot) {twice[0]}" if twice else ""
