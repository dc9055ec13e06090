"""The table of the protocol: (state, event) → next state and commands. A missing row is an illegal move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.errors import ProtocolError
from onceonly.protocol import deciding, inputs, planning, skipping
from onceonly.protocol import events as e
from onceonly.protocol import states as s
from onceonly.protocol.commands import ReadChain
from onceonly.protocol.moves import overtaken, superseded

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.model import Plan, Vote
    from onceonly.protocol.moves import Move


def begin(context: s.Context) -> Move:
    """Begin one try at an epoch."""
    return s.Reading(context), (ReadChain(context.epoch, owners=True),)


def resume(plan: Plan) -> s.Running:
    """Take up the plan in the process that decides."""
    return s.Running(plan)


def abandon(plan: Plan, *, run: str, votes: tuple[Vote, ...], reason: str) -> Move:
    """Give up a try after VOTE_ABORT, or after a failed commit: the chain tells which."""
    return s.Abandoning(plan, run, votes, reason), (ReadChain(plan.epoch),)


def step(state: s.State, event: e.Event) -> Move:
    """Make one move, or raise ``ProtocolError`` for one that the table does not have."""
    row = _TABLE.get((type(state), type(event)))
    if row is None:
        what = f"No move from {type(state).__name__} on {type(event).__name__}: a defect in onceonly."
        raise ProtocolError(what, next_step="Restart the query; nothing was sent. Please report it.")
    return row(state, event)


_TABLE: dict[tuple[type[Any], type[Any]], Callable[[Any, Any], Move]] = {
    (s.Reading, e.ChainRead): planning.chain_read,
    (s.Skipping, e.LinkPersisted): skipping.skip_put,
    (s.Skipping, e.LinkTaken): overtaken,
    (s.Skipped, e.ReceiptPersisted): skipping.skip_settled,
    (s.Claiming, e.LinkPersisted): planning.claimed,
    (s.Claiming, e.LinkTaken): overtaken,
    (s.SweepingStart, e.Swept): planning.start_swept,
    (s.SweepingStart, e.SweepFailed): planning.start_not_swept,
    (s.SweepingStart, e.LinkTaken): superseded,
    (s.Draining, e.ChainRead): planning.claim_next,
    (s.ClaimingNext, e.LinkPersisted): planning.next_claimed,
    (s.ClaimingNext, e.LinkTaken): overtaken,
    (s.SweepingNext, e.Swept): planning.next_swept,
    (s.SweepingNext, e.SweepFailed): planning.start_not_swept,
    (s.SweepingNext, e.LinkTaken): superseded,
    (s.Withdrawing, e.LinkPersisted): inputs.claimed,
    (s.Withdrawing, e.LinkTaken): overtaken,
    (s.Restoring, e.InputsRestored): inputs.restored,
    (s.Restoring, e.InputsNotRestored): inputs.not_restored,
    (s.Syncing, e.LinkPersisted): planning.synced,
    (s.Resolving, e.Resolved): planning.resolving,
    (s.Receipting, e.ReceiptPersisted): planning.receipt_put,
    (s.Running, e.VotesCollected): deciding.voted,
    (s.Checking, e.Checked): deciding.checked,
    (s.Deciding, e.LinkPersisted): deciding.decided,
    (s.Deciding, e.LinkTaken): superseded,
    (s.Committing, e.Resolved): deciding.committing,
    (s.SweepingEnd, e.Swept): deciding.end_swept,
    (s.SweepingEnd, e.SweepFailed): deciding.end_swept,
    (s.SweepingEnd, e.LinkTaken): deciding.end_swept,
    (s.Abandoning, e.ChainRead): deciding.abandoned,
    (s.Voiding, e.LinkPersisted): deciding.voided,
    (s.Voiding, e.LinkTaken): deciding.not_voided,
}
