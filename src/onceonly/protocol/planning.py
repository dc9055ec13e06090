"""Rows of the table for a chain that was read: what it and Spark's checkpoint say of an epoch. Pure.

Spark does not sync ``offsets/N``, and its rename writes over one that is there: after a loss of power, or behind an
older driver that woke up, the file may be gone or say something else. A decision holds it as it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly import offsets
from onceonly.model import LinkKind, Mode, Skip, differing, handles_of, letters_of
from onceonly.protocol import recovery
from onceonly.protocol import states as s
from onceonly.protocol.messages import PutLink, Report, ReportKind, RestoreInputs, StopReason, SyncLink
from onceonly.protocol.moves import BEFORE_A_DRAIN, differences, new_link, stop
from onceonly.protocol.skipping import explained

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.model import Inputs, Link, Receipt, Span
    from onceonly.protocol import messages as m
    from onceonly.protocol.messages import Command
    from onceonly.protocol.states import Move


def chain_read(state: s.Reading, event: m.ChainRead) -> Move:
    """Resolve an epoch from its chain: run, claim, recover, drain or stop; tell of targets that have changed."""
    context = state.context
    superseded = _superseded(context, event)
    if superseded is not None:
        return superseded
    if event.passed is not None or event.last_receipt is None:  # else nothing before lies open
        skipped = explained(context, event)
        if skipped is not None:
            return skipped
    if event.inputs is not None:
        context = replace(context, inputs=event.inputs.digest)
    following, commands = _resolve(context, event)
    if isinstance(following, s.Stopped):
        return following, commands
    wrong = _shared(context, event.previous) or compare(context, event)
    if wrong is not None:
        return wrong
    newest = event.links[-1] if event.links else event.previous
    return following, (*(_changed(newest, context) if newest is not None else ()), *commands)


def _shared(context: s.Context, previous: Link | None) -> Move | None:
    """Stop a fork, before it has decided anything, that would write to a target of the query it comes from."""
    if previous is None or previous.reason != Skip.SAVEPOINT:
        return None
    shared = [
        f"sink {sink}: {dict(now)}"
        for sink, now in sorted(context.settings.items())
        if any(then and not differing(then, now) for then in previous.settings.values())
    ]
    return stop(StopReason.SHARED, "; ".join(shared)) if shared else None


def _superseded(context: s.Context, event: m.ChainRead) -> Move | None:
    """Stop where another application has put a link after the last one of ours; None where none has.

    A run that fails because another one took over starts again, and must not take back what it was taken: of two that
    did so none would ever decide. An application that has put no link yet takes over, as it was started on purpose.
    """
    mine = context.application
    if mine not in event.owners or event.owners[-1] == mine:
        return None
    return stop(
        StopReason.SUPERSEDED, f"application {event.owners[-1]} has put links after the last one of this one"
    )


def _resolve(context: s.Context, event: m.ChainRead) -> Move:
    gap = _gap(context.epoch, event)
    if gap:
        return stop(StopReason.GAP, gap)
    unbroken = event.previous is not None and event.previous.plan == context.continues
    if not event.links:
        return _start(context, index=0) if unbroken else recovery.claim(context, index=0)
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
        return recovery.claim(context, index=len(event.links))
    return _found(context, last, event.receipt)


def _found(context: s.Context, last: Link, receipt: Receipt | None) -> Move:
    """Take up an epoch that is decided, or was skipped and is run again as Spark has forgotten it."""
    if last.kind is not LinkKind.SKIPPED and _branches(last, context, settled=receipt is not None):
        return stop(
            StopReason.BRANCH,
            f"decided for {sorted(last.settings)}, now written to {sorted(context.settings)}"
            f"{_needed(last, context)}",
        )
    if receipt is not None:
        return recovery.drain(context, last)
    if last.pending and _is_elsewhere(last.settings, context.settings):
        return stop(
            StopReason.SETTINGS, f"decided for {_plain(last.settings)}, now {_plain(context.settings)}"
        )
    return s.Syncing(context, last), (SyncLink(last),)


def _needed(last: Link, context: s.Context) -> str:
    """Say which sink's dead letters are decided, and have no place any more; empty where all have. Pure."""
    gone = sorted(handles_of(last.output).keys() - context.settings.keys())
    without = [of for name in gone if (of := letters_of(name)) in context.settings]
    return (
        f"; dead letters of {', '.join(map(str, without))} are decided: give onceonly.refused as before"
        if without
        else ""
    )


def _branches(last: Link, context: s.Context, *, settled: bool) -> bool:
    """Say whether the epoch is written to other sinks than it was decided for.

    That a sink has a place for dead letters now, or none any more, is no other branch; but until the epoch is settled,
    its letters need theirs.
    """
    letters = {name for name in handles_of(last.output) if letters_of(name) is not None}
    return _sinks(last.settings) != _sinks(context.settings) or not (
        settled or letters <= context.settings.keys()
    )


def _changed(newest: Link, context: s.Context) -> tuple[Command, ...]:
    """Tell of each sink whose target is another one than it was last. Nothing is pending there."""
    reports: list[Command] = []
    links = {**context.seen, **dict.fromkeys(newest.settings, newest)}
    for sink, link in links.items():
        then, now = link.settings.get(sink, {}), context.settings.get(sink)
        if now is not None and differing(then, now):
            message = (
                f"chk-{context.epoch}: the target of sink {sink} has changed since link {link.name}: "
                f"{differences(then, now)}; nothing was pending there, and the query goes on with the new one"
            )
            reports.append(Report(ReportKind.TARGET_CHANGED, message))
    before, after = _sinks(newest.settings), _sinks(context.settings)
    # An epoch need not write to all sinks of a query, nor to one that the epoch before wrote to; at a start, one that
    # has none of those that the log knows has other sinks.
    begins = context.continues is None and not context.late
    if begins and before and after and after.isdisjoint(links):
        message = (
            f"chk-{context.epoch}: the query has other sinks than in link {newest.name}: it wrote to "
            f"{_plain(newest.settings)}, and now writes to {_plain(context.settings)}; nothing was pending there, and "
            "the query goes on with the new one"
        )
        reports.append(Report(ReportKind.TARGET_CHANGED, message))
    return tuple(reports)


def _sinks(settings: Mapping[str, Mapping[str, str | int]]) -> set[str]:
    return {sink for sink in settings if letters_of(sink) is None}


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


def _gap(epoch: int, event: m.ChainRead) -> str:
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


def claim_next(state: s.Draining, event: m.ChainRead) -> Move:
    """Claim the epoch after a settled one, as nobody knows when new rows will come, and sweep under the claim."""
    context = state.context
    superseded = _superseded(context, event)
    if superseded is not None:
        return superseded
    gap = _gap(context.epoch + 1, event)
    if gap:
        # Seen now or never: a claim would stand where the link is missing.
        return stop(StopReason.GAP, gap)
    if event.links and event.links[-1].kind is not LinkKind.ABORT:
        # Spark has forgotten more than one commit: the next epoch is decided, or skipped, as well.
        if differs(event.links[-1], event.inputs):
            # Were its barrier gone for good, Spark could not note this one: it knows a later one.
            return s.Restoring(context), (RestoreInputs((event.links[-1],)),)
        return recovery.start_drain(context, state.link)
    plan = context.new_plan(Mode.RUN, index=len(event.links))
    claim = new_link(plan, LinkKind.ABORT, run=context.run, reason=BEFORE_A_DRAIN)
    claim = replace(claim, epoch=context.epoch + 1, barrier=())
    return s.ClaimingNext(context, state.link), (PutLink(claim),)


def open_epoch(epoch: int, newest: int | None, last: Link | None, receipt: Receipt | None) -> int | None:
    """Return the first epoch before ``epoch`` that has no decision, or none that is settled; None where all have. Pure.

    Where the log is empty it is the one just before: what was before that is no business of the log.
    """
    if newest is None:
        return epoch - 1 if epoch > 0 else None
    is_open = last is not None and (last.kind is LinkKind.ABORT or receipt is None)
    first = newest if is_open else newest + 1
    return first if first < epoch else None


# --- what the epoch reads -----------------------------------------------------------------------------------


def compare(context: s.Context, event: m.ChainRead) -> Move | None:
    """See that the epoch starts where the one before was decided to end, and ends where it was decided to itself.

    None where it does; otherwise the files are written as decided, and the query starts again. So it does where Spark
    has read other offsets than its files have by now.
    """
    wrong: list[Link] = []
    previous = event.previous
    before = event.inputs_before.barrier if event.inputs_before is not None else None
    if (
        previous is not None
        and previous.barrier
        and before is not None
        and not offsets.is_same(previous.barrier, before)
    ):
        wrong.append(previous)
    decided = event.links[-1] if event.links and event.links[-1].kind is not LinkKind.ABORT else None
    if decided is not None and differs(decided, event.inputs, context.barrier):
        wrong.append(decided)
    for link in wrong:
        if link.inputs is None:
            now = before if link is previous else context.barrier
            return stop(
                StopReason.BARRIER,
                f"offsets/{link.epoch}: decided at {list(link.barrier)}, now {list(now or ())}",
            )
    start = previous.barrier if previous is not None and previous.barrier else before
    strayed = event.span is not None and start is not None and not offsets.among(event.span.starts, start)
    if not wrong and not strayed:
        return moved(context.epoch, event.span, event.inputs)
    found = event.inputs.files if event.inputs is not None else ()
    if decided is None and found:
        # What nobody decided was planned from a wrong start, and goes under a claim: who planned it may be at work.
        plan = context.new_plan(Mode.RUN, index=len(event.links))
        claim = new_link(plan, LinkKind.ABORT, run=context.run, reason="planned from a wrong start")
        return s.Withdrawing(context, tuple(wrong), found[0]), (PutLink(claim),)
    if wrong:
        return s.Restoring(context), (RestoreInputs(tuple(wrong)),)
    starts = list(event.span.starts) if event.span is not None else []
    return stop(
        StopReason.MOVED, f"offsets/{context.epoch - 1}: Spark has read {starts}, now {list(start or ())}"
    )


def moved(epoch: int, span: Span | None, now: Inputs | None) -> Move | None:
    """Stop where Spark reads up to another end than its file says by now; None where it does not."""
    if span is None or now is None or offsets.among(span.ends, now.barrier or ()):
        return None
    return stop(
        StopReason.MOVED,
        f"offsets/{epoch}: Spark reads up to {list(span.ends)}, now {list(now.barrier or ())}",
    )


def differs(link: Link, now: Inputs | None, barrier: tuple[str, ...] = ()) -> bool:
    """Say whether Spark's files say of an epoch's input something else than its decision. Pure."""
    if link.inputs is not None and now is not None:
        return link.inputs.digest != now.digest
    found = now.barrier if now is not None and now.files else barrier
    return bool(link.barrier and found and not offsets.is_same(link.barrier, found))


def _start(context: s.Context, *, index: int) -> Move:
    return s.start_tasks(context.new_plan(Mode.RUN, index=index))


def _plain(settings: Mapping[str, Mapping[str, str | int]]) -> dict[str, dict[str, str | int]]:
    return {key: dict(value) for key, value in settings.items()}
