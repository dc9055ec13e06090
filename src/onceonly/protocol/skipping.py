"""Rows of the table for epochs that Spark has noted and nobody decided: each has a link of its own, or stops the query.

They stand between the newest epoch of the log and the one that is planned: Spark's state was repartitioned offline, the
query was started once with another sink, a foreachBatch function returned early or kept an error back. The chains stay
without gaps, each such link with the epoch's barrier, so that whatever is compared later has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.model import Link, LinkKind, Receipt, Skip
from onceonly.protocol import states as s
from onceonly.protocol.commands import PutLink, PutReceipt, ReadChain, Report, ReportKind, StopReason
from onceonly.protocol.moves import BEFORE_A_DRAIN, Move, stop

if TYPE_CHECKING:
    from onceonly.model import Passed
    from onceonly.protocol import events as e

_WORDS = {
    Skip.UNCHANGED: "it has no rows, as nothing new was in it (state that was repartitioned, or nothing to write)",
    Skip.FOREIGN: "another sink wrote it, or a foreachBatch function returned without onceonly; taken over as it is",
    Skip.SWALLOWED: "it failed, and a foreachBatch function kept the error back; taken over as it is, without its rows",
}


def open_epoch(epoch: int, newest: int | None, last: Link | None) -> int | None:
    """Give the first epoch before ``epoch`` that has no decision; None where there is none. Pure.

    Where the log is empty it is the one just before: what was before that is no business of the log.
    """
    if newest is None:
        return epoch - 1 if epoch > 0 else None
    first = newest if last is not None and last.kind is LinkKind.ABORT else newest + 1
    return first if first < epoch else None


def explained(context: s.Context, event: e.ChainRead) -> Move | None:
    """Put the link, or the receipt, of the first epoch that lies open; stop where nobody may. None where none does."""
    last, passed = event.last, event.passed
    if last is not None and last.kind is LinkKind.SKIPPED and event.last_receipt is None:
        return _settle(context, last)  # whoever put it died before its receipt
    if event.links or passed is None:
        return None
    begun = last is not None and last.epoch == passed.epoch
    seen = begun and last is not None and last.reason != BEFORE_A_DRAIN
    if passed.unchanged:
        why = Skip.UNCHANGED
    elif passed.taken:
        why = Skip.SWALLOWED if seen else Skip.FOREIGN
    else:
        return stop(StopReason.PASSED, _unexplained(passed, seen=seen))
    link = Link(
        epoch=passed.epoch,
        index=last.index + 1 if begun and last is not None else 0,
        kind=LinkKind.SKIPPED,
        plan=context.plan,
        run=context.run,
        guarantee=context.guarantee,
        barrier=passed.barrier,
        # Those of the decision before, so that a target that has changed since is still told of.
        settings=context.settings if last is None else last.settings,
        uses=context.uses if last is None else last.uses,
        reason=why,
    )
    return s.Skipping(context, link), (PutLink(link),)


def _unexplained(passed: Passed, *, seen: bool) -> str:
    if seen:
        return f"chk-{passed.epoch}: it was begun here and failed, and the foreachBatch function kept the error back"
    return f"chk-{passed.epoch}: another sink wrote it, or a foreachBatch function returned without onceonly"


def skip_put(state: s.Skipping, event: e.LinkPersisted) -> Move:
    """Tell of it, and settle it."""
    link = event.link
    told = Report(
        ReportKind.EPOCH_SKIPPED, f"chk-{link.epoch} was not decided here: {_WORDS[Skip(link.reason)]}"
    )
    following, commands = _settle(state.context, link)
    return following, (told, *commands)


def skip_settled(state: s.Skipped, _event: e.ReceiptPersisted) -> Move:
    """Look again: another epoch may lie open."""
    return s.Reading(state.context), (ReadChain(state.context.epoch, owners=True),)


def _settle(context: s.Context, link: Link) -> Move:
    return s.Skipped(context), (
        PutReceipt(Receipt(epoch=link.epoch, index=link.index, plan=context.plan), link),
    )
