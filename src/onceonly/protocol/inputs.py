"""Rows of the table for what an epoch reads: Spark's checkpoint against the decisions. Pure.

Spark does not sync ``offsets/N``, and its rename writes over one that is there: after a loss of power, or behind an
older driver that woke up, the file may be gone or say something else. A decision holds it as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly import offsets
from onceonly.model import LinkKind, Mode
from onceonly.protocol import states as s
from onceonly.protocol.commands import PutLink, RestoreInputs, StopReason
from onceonly.protocol.moves import new_link, new_plan, stop

if TYPE_CHECKING:
    from onceonly.model import Inputs, Link, Span
    from onceonly.protocol import events as e
    from onceonly.protocol.moves import Move


def compare(context: s.Context, event: e.ChainRead) -> Move | None:
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
        plan = new_plan(context, Mode.RUN, index=len(event.links))
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


def claimed(state: s.Withdrawing, event: e.LinkPersisted) -> Move:
    """Nobody decides the epoch under an older claim any more: take its offsets away, and restore those before."""
    return s.Restoring(state.context), (RestoreInputs(state.links, state.discard, event.link),)


def differs(link: Link, now: Inputs | None, barrier: tuple[str, ...] = ()) -> bool:
    """Say whether Spark's files say of an epoch's input something else than its decision. Pure."""
    if link.inputs is not None and now is not None:
        return link.inputs.digest != now.digest
    found = now.barrier if now is not None and now.files else barrier
    return bool(link.barrier and found and not offsets.is_same(link.barrier, found))


def restored(state: s.Restoring, event: e.InputsRestored) -> Move:
    """Stop, restartably: Spark has read what was wrong, and reads the files anew when it starts."""
    return stop(StopReason.RESTORED, f"chk-{state.context.epoch}: {', '.join(event.files)}")


def not_restored(_state: s.Restoring, event: e.InputsNotRestored) -> Move:
    """Stop by name."""
    return stop(StopReason.BARRIER, event.reason)
