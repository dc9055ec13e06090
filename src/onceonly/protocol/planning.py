"""Rows of the table before any task runs: what the chain says of an epoch, claims, and recovery."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.model import Guarantee, Link, LinkKind, Lost, Mode, Receipt, differing, letters_of
from onceonly.protocol import events as e
from onceonly.protocol import inputs
from onceonly.protocol import states as s
from onceonly.protocol.commands import (
    PutLink,
    ReadChain,
    Report,
    ReportKind,
    RestoreInputs,
    StopReason,
    SyncLink,
)
from onceonly.protocol.moves import (
    BEFORE_A_DRAIN,
    Move,
    commits,
    count,
    differences,
    new_link,
    new_plan,
    repeat,
    settle,
    start_tasks,
    stop,
    sweep,
    undecidable,
)
from onceonly.protocol.skipping import explained, lost_before

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.model import Vote
    from onceonly.protocol.commands import Command


def chain_read(state: s.Reading, event: e.ChainRead) -> Move:
    """Resolve an epoch from its chain: run, claim, recover, drain or stop; tell of targets that have changed."""
    context = state.context
    newer = _newer(context, event)
    if newer:
        return stop(
            StopReason.SUPERSEDED, f"application {newer} has put links after the last one of this one"
        )
    skipped = explained(context, event)
    if skipped is not None:
        return skipped
    if event.inputs is not None:
        context = replace(context, inputs=event.inputs.digest)
    following, commands = _resolve(context, event)
    if isinstance(following, s.Stopped):
        return following, commands
    wrong = inputs.compare(context, event)
    if wrong is not None:
        return wrong
    newest = event.links[-1] if event.links else event.previous
    return following, (*(_changed(newest, context) if newest is not None else ()), *commands)


def _newer(context: s.Context, event: e.ChainRead) -> str:
    """Name the application that has put a link after the last one of ours, empty where none has.

    A run that fails because another one took over starts again, and must not take back what it was taken: of two that
    did so none would ever decide. An application that has put no link yet takes over, as it was started on purpose.
    """
    mine = context.application
    return event.owners[-1] if mine in event.owners and event.owners[-1] != mine else ""


def _resolve(context: s.Context, event: e.ChainRead) -> Move:
    gap = _gap(context.epoch, event)
    if gap:
        return stop(StopReason.GAP, gap)
    unbroken = event.previous is not None and event.previous.plan == context.continues
    if not event.links:
        return _start(context, index=0) if unbroken else _claim(context, index=0)
    last = event.links[-1]
    if last.plan == context.continues:
        # Claimed in advance by this process, before it drained the epoch before.
        return _start(context, index=len(event.links))
    goes_on = unbroken or any(link.plan == context.continues for link in event.links)
    if goes_on and not _is_own(last, context):
        # This process decided the epoch before, or claimed this one, and has not begun it: another application
        # has. A new start may claim; going on may not.
        return stop(StopReason.OVERTAKEN, f"link {last.name} is there, written by plan {last.plan}")
    if last.kind is LinkKind.ABORT:
        return _claim(context, index=len(event.links))
    return _found(context, last, event.receipt)


def _found(context: s.Context, last: Link, receipt: Receipt | None) -> Move:
    """Take up an epoch that is decided, or was skipped and is run again as Spark has forgotten it."""
    if last.kind is not LinkKind.SKIPPED and _branches(last, context):
        return stop(
            StopReason.BRANCH,
            f"decided for {sorted(last.settings)}, now written to {sorted(context.settings)}",
        )
    if receipt is not None:
        return _drain(context, last)
    if last.pending and _is_elsewhere(last.settings, context.settings):
        return stop(
            StopReason.SETTINGS, f"decided for {_plain(last.settings)}, now {_plain(context.settings)}"
        )
    return s.Syncing(context, last), (SyncLink(last),)


def _branches(last: Link, context: s.Context) -> bool:
    """Say whether the epoch is written to other sinks than it was decided for.

    That a sink has a place for dead letters now, or none any more, is no other branch; but what is pending there is.
    """
    then = {sink for sink in last.settings if letters_of(sink) is None}
    now = {sink for sink in context.settings if letters_of(sink) is None}
    return then != now or any(
        vote.sink not in context.settings for vote in last.pending if letters_of(vote.sink) is not None
    )


def _changed(newest: Link, context: s.Context) -> tuple[Command, ...]:
    """Tell of each sink whose target is another one than in the newest link. Nothing is pending under that link."""
    reports: list[Command] = []
    for sink, then in newest.settings.items():
        now = context.settings.get(sink, {})
        changed = differences(then, now)
        if sink in context.settings and changed:
            message = (
                f"chk-{context.epoch}: the target of sink {sink} has changed since link {newest.name}: "
                f"{changed}; nothing was pending there, and the query goes on with the new one"
            )
            reports.append(Report(ReportKind.TARGET_CHANGED, message))
    return tuple(reports)


def _is_elsewhere(
    then: Mapping[str, Mapping[str, str | int]], now: Mapping[str, Mapping[str, str | int]]
) -> bool:
    """Say whether a sink's target is another one than it was."""
    return any(differing(noted, now[sink]) for sink, noted in then.items() if sink in now)


def _is_own(link: Link, context: s.Context) -> bool:
    """Say whether this application has put a link: its runs of a query follow one another, so it began anew.

    Spark plans in several processes, in turn, and one that remembers the run before is no older driver.
    """
    return bool(context.application) and link.plan.startswith(context.application + ".")


def _gap(epoch: int, event: e.ChainRead) -> str:
    """Find what the log should hold but does not. An adopted log may begin at any epoch."""
    if event.receipt is not None and event.links and event.receipt.index != event.links[-1].index:
        return (
            f"the receipt is of link {epoch}.{event.receipt.index}, the chain ends at {event.links[-1].name}"
        )
    if not event.links and event.newest is not None and event.newest != epoch - 1:
        why = ""
        if event.newest > epoch:
            why = ": a newer run works on this checkpoint, or an older checkpoint was restored"
        return f"the log ends at chk-{event.newest} and has no link of chk-{epoch}{why}"
    previous = event.previous
    if previous is None:
        return ""
    if previous.kind is LinkKind.ABORT:
        return f"chk-{previous.epoch} ends with an ABORT link, yet Spark went on to chk-{epoch}"
    if event.previous_receipt is None:
        return f"chk-{previous.epoch} is decided but has no receipt, yet Spark went on to chk-{epoch}"
    return ""


def _claim(context: s.Context, *, index: int, reason: str = "claimed by a new run") -> Move:
    link = new_link(new_plan(context, Mode.RUN, index=index), LinkKind.ABORT, run=context.run, reason=reason)
    return s.Claiming(context, link), (PutLink(link),)


def _claim_rest(context: s.Context, decided: Link, lost: tuple[Vote, ...], carried: tuple[Vote, ...]) -> Move:
    """Claim an epoch of which a part is committed.

    An ABORT link would void that part, so the claim repeats the decision: an older run that is still writing
    the lost rows finds its number taken, and the sweep may void what it has prepared.
    """
    if decided.guarantee is not context.guarantee:
        return stop(StopReason.SETTINGS, f"decided {decided.guarantee}, now {context.guarantee}")
    plan = new_plan(context, Mode.TENTATIVE, index=decided.index + 1, decided=decided)
    link = repeat(replace(plan, lost=lost, carried=carried), run=context.run, reason="a part was proven lost")
    return s.Claiming(context, link), (PutLink(link),)


def claimed(state: s.Claiming, event: e.LinkPersisted) -> Move:
    """The epoch is ours; sweep what earlier runs have open."""
    # Only now may other runs' votes be voided: the claim is the last link of the chain.
    return s.SweepingStart(state.context, event.link), (sweep(event.link),)


def start_swept(state: s.SweepingStart, _event: e.Swept) -> Move:
    """Run the claimed epoch: as new, or tentatively where a part is committed."""
    link = state.link
    if link.kind is LinkKind.ABORT:
        return _start(state.context, index=link.index + 1)
    plan = new_plan(state.context, Mode.TENTATIVE, index=link.index + 1, decided=link)
    return start_tasks(replace(plan, lost=link.votes, carried=link.carried))


def start_not_swept(_state: s.State, event: e.SweepFailed) -> Move:
    """Stop: no task runs while leftovers cannot be listed."""
    return stop(StopReason.DELAYED, event.reason)


def claim_next(state: s.Draining, event: e.ChainRead) -> Move:
    """Claim the epoch after a settled one, as nobody knows when new rows will come, and sweep under the claim."""
    context = state.context
    newer = _newer(context, event)
    if newer:
        return stop(
            StopReason.SUPERSEDED, f"application {newer} has put links after the last one of this one"
        )
    gap = _gap(context.epoch + 1, event)
    if gap:
        # Seen now or never: a claim would stand where the link is missing.
        return stop(StopReason.GAP, gap)
    if event.links and event.links[-1].kind is not LinkKind.ABORT:
        # Spark has forgotten more than one commit: the next epoch is decided, or skipped, as well.
        if inputs.differs(event.links[-1], event.inputs):
            # Were its barrier gone for good, Spark could not note this one: it knows a later one.
            return s.Restoring(context), (RestoreInputs((event.links[-1],)),)
        return _start_drain(context, state.link)
    plan = new_plan(context, Mode.RUN, index=len(event.links))
    claim = new_link(plan, LinkKind.ABORT, run=context.run, reason=BEFORE_A_DRAIN)
    claim = replace(claim, epoch=context.epoch + 1, barrier=())
    return s.ClaimingNext(context, state.link), (PutLink(claim),)


def next_claimed(state: s.ClaimingNext, event: e.LinkPersisted) -> Move:
    """The next epoch is ours; sweep before the drain."""
    return s.SweepingNext(state.context, state.link), (sweep(event.link),)


def next_swept(state: s.SweepingNext, _event: e.Swept) -> Move:
    """Drain."""
    return _start_drain(state.context, state.link)


def synced(state: s.Syncing, event: e.LinkPersisted) -> Move:
    """A found decision is durable: commit it, or settle it where nothing is to be committed."""
    link = event.link
    if not link.pending:
        return settle(link, state.context, outcomes={})
    if link.guarantee is Guarantee.AT_MOST_ONCE:
        # The link was the intent and the one try is over; what is still open goes with the next sweep.
        return settle(link, state.context, outcomes={"given_up": len(link.pending)})
    return s.Resolving(state.context, link, len(link.pending)), commits(link)


def resolving(state: s.Resolving, event: e.Resolved) -> Move:
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
        return settle(state.link, state.context, outcomes=count(outcomes))
    kept = tuple(vote for vote, outcome in outcomes if not isinstance(outcome, Lost))
    carried = state.link.carried + kept
    if not carried:
        return _claim(state.context, index=state.link.index + 1, reason="every handle was proven lost")
    return _claim_rest(state.context, state.link, lost, carried)


def receipt_put(state: s.Receipting, _event: e.ReceiptPersisted) -> Move:
    """The epoch is settled: drain after a recovery, sweep after a decision."""
    if state.context is not None and state.context.then is not None:
        return s.Reading(state.context.then), (ReadChain(state.context.then.epoch),)
    if state.plan is None and state.context is not None:
        return _drain(state.context, state.link)
    return s.SweepingEnd(state.link), (sweep(state.link),)


def _start(context: s.Context, *, index: int) -> Move:
    return start_tasks(new_plan(context, Mode.RUN, index=index))


def _drain(context: s.Context, link: Link) -> Move:
    return s.Draining(context, link), (ReadChain(context.epoch + 1, owners=True),)


def _start_drain(context: s.Context, link: Link) -> Move:
    return start_tasks(new_plan(context, Mode.DRAIN, index=link.index + 1, decided=link))


def _plain(settings: object) -> object:
    return {key: dict(value) for key, value in settings.items()} if isinstance(settings, dict) else settings
