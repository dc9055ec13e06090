"""Rows of the table for epochs that Spark has noted and nobody decided: each has a link of its own, or stops the query.

They stand between the newest epoch of the log and the one that is planned: Spark's state was repartitioned offline, the
query was started once with another sink, a foreachBatch function returned early or kept an error back. The chains stay
without gaps, each such link with the epoch's barrier, so that whatever is compared later has it.
Where such an epoch was decided and not settled, its decision is carried out first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.model import Link, LinkKind, Lost, Receipt, Skip, differing, handles_of
from onceonly.protocol import states as s
from onceonly.protocol.messages import (
    PutLink,
    PutReceipt,
    ReadChain,
    Report,
    ReportKind,
    Stop,
    StopReason,
    SyncLink,
)
from onceonly.protocol.moves import BEFORE_A_DRAIN, count, differences, settle, stop

if TYPE_CHECKING:
    from onceonly.model import Outcome, Passed, Vote
    from onceonly.protocol import messages as m
    from onceonly.protocol.states import Move

_WORDS = {
    Skip.UNCHANGED: "it has no rows, as nothing new was in it (state that was repartitioned, or nothing to write)",
    Skip.FOREIGN: "another sink wrote it, or a foreachBatch function returned without onceonly; taken over as it is",
    Skip.SAVEPOINT: "the query begins after it, with a savepoint of another query",
    Skip.SWALLOWED: "it failed, and a foreachBatch function kept the error back; taken over as it is, without its rows",
}


def explained(context: s.Context, event: m.ChainRead) -> Move | None:
    """Put the link, or the receipt, of the first epoch that lies open; stop where nobody may. None where none does."""
    last, passed = event.last, event.passed
    if last is not None and last.kind is LinkKind.SKIPPED and event.last_receipt is None:
        return _settle(context, last)  # whoever put it died before its receipt
    if event.links or passed is None:
        return None
    if last is not None and last.kind is LinkKind.COMMIT and event.last_receipt is None:
        return _settle_before(context, last, passed)
    unexplained = why_stop(last, passed)
    if unexplained is not None:
        return s.Stopped(), (unexplained,)
    taken = Skip.SWALLOWED if _is_seen(last, passed) else Skip.FOREIGN
    why = Skip.UNCHANGED if passed.unchanged else taken
    link = Link(
        epoch=passed.epoch,
        index=last.index + 1 if last is not None and last.epoch == passed.epoch else 0,
        kind=LinkKind.SKIPPED,
        plan=context.plan,
        run=context.run,
        guarantee=context.guarantee,
        barrier=passed.barrier,
        # Those of the decision before, so that a target that has changed since is still told of.
        settings=context.settings if last is None else last.settings,
        uses=context.uses if last is None else last.uses,
        reason=why,
        inputs=passed.inputs,
    )
    return s.Skipping(context, link), (PutLink(link),)


def why_stop(last: Link | None, passed: Passed) -> Stop | None:
    """Return the stop for an epoch that Spark has noted, and nobody may pass over; None where the query goes on. Pure.

    ``last`` is the newest link of the log, None where there is none.
    """
    if passed.unchanged or passed.taken:
        return None
    if _is_seen(last, passed):
        what = "it was begun here and failed, and the foreachBatch function kept the error back"
    else:
        what = (
            "another sink wrote it, or a foreachBatch function returned without onceonly; or the decision log is of an "
            "older backup than Spark's files"
        )
    return Stop(StopReason.PASSED, f"chk-{passed.epoch}: {what}")


def _is_seen(last: Link | None, passed: Passed) -> bool:
    """Say whether the epoch was begun here; one that was only claimed in advance was not."""
    return last is not None and last.epoch == passed.epoch and last.reason != BEFORE_A_DRAIN


def skip_put(state: s.Skipping, event: m.LinkPersisted) -> Move:
    """Tell of it, and settle it."""
    link = event.link
    told = Report(
        ReportKind.EPOCH_SKIPPED, f"chk-{link.epoch} was not decided here: {_WORDS[Skip(link.reason)]}"
    )
    following, commands = _settle(state.context, link)
    return following, (told, *commands)


def skip_settled(state: s.Skipped, _event: m.ReceiptPersisted) -> Move:
    """Look again: another epoch may lie open."""
    return s.Reading(state.context), (ReadChain(state.context.epoch, owners=True),)


def _settle_before(context: s.Context, decided: Link, passed: Passed) -> Move:
    """Carry out what was decided before Spark went on: a function has kept back that its commits failed."""
    targets = {**context.beside, **context.settings}
    owed = sorted(handles_of(decided.output))
    missing = [sink for sink in owed if sink not in targets]
    if missing:
        return stop(
            StopReason.OWED,
            f"chk-{decided.epoch} is decided for the sink {', '.join(missing)}, and nothing more is known of it here",
        )
    changed = [
        f"sink {sink}: {differences(decided.settings.get(sink, {}), targets[sink])}"
        for sink in owed
        if differing(decided.settings.get(sink, {}), targets[sink])
    ]
    if changed:
        return stop(
            StopReason.SETTINGS, f"decided for another target in chk-{decided.epoch}: {'; '.join(changed)}"
        )
    earlier = replace(
        context, epoch=decided.epoch, barrier=decided.barrier, then=context, forgives=passed.taken
    )
    return s.Syncing(earlier, decided), (SyncLink(decided),)


def lost_before(context: s.Context, link: Link, outcomes: tuple[tuple[Vote, Outcome], ...]) -> Move:
    """Stop, or let it be where the user takes it over: only a replay writes rows again, and Spark has gone on."""
    counted = count(outcomes)
    what = (
        f"chk-{link.epoch}: decided and noted, and {counted['lost']} of {len(outcomes)} transactions are lost"
    )
    if not context.forgives:
        return stop(StopReason.PASSED, what)
    # No sink completes what never came.
    came = tuple(vote for vote, outcome in outcomes if not isinstance(outcome, Lost))
    following, commands = settle(
        replace(link, votes=came), plan=context.plan, outcomes=counted, found_by=context
    )
    return following, (Report(ReportKind.EPOCH_SKIPPED, f"{what}; taken over as it is"), *commands)


def _settle(context: s.Context, link: Link) -> Move:
    return s.Skipped(context), (
        PutReceipt(Receipt(epoch=link.epoch, index=link.index, plan=context.plan), link),
    )
