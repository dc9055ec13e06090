"""The table of the protocol: (state, event) → next state and commands. A missing row is an illegal move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.errors import ProtocolError
from onceonly.protocol import deciding, planning, recovery, skipping
from onceonly.protocol import messages as m
from onceonly.protocol import states as s
from onceonly.protocol.messages import ReadChain
from onceonly.protocol.moves import overtaken, superseded

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.model import Plan, Vote
    from onceonly.protocol.states import Move


def begin(context: s.Context) -> Move:
    """Begin one try at an epoch."""
    return s.Reading(context), (ReadChain(context.epoch, owners=True),)


def resume(plan: Plan) -> s.Running:
    """Take up the plan in the process that decides."""
    return s.Running(plan)


def abandon(plan: Plan, *, run: str, votes: tuple[Vote, ...], reason: str) -> Move:
    """Give up a try after VOTE_ABORT, or after a failed commit: the chain tells which."""
    return s.Abandoning(plan, run, votes, reason), (ReadChain(plan.epoch),)


def step(state: s.State, event: m.Event) -> Move:
    """Make one move, or raise ``ProtocolError`` for one that the table does not have."""
    row = _TABLE.get((type(state), type(event)))
    if row is None:
        what = f"No move from {type(state).__name__} on {type(event).__name__}: a defect in onceonly."
        raise ProtocolError(what, next_step="Restart the query; nothing was sent. Please report it.")
    return row(state, event)


def moves() -> frozenset[tuple[type[Any], type[Any]]]:
    """Return the rows of the table: which event is legal in which state. Pure."""
    return frozenset(_TABLE)


_TABLE: dict[tuple[type[Any], type[Any]], Callable[[Any, Any], Move]] = {
    (s.Reading, m.ChainRead): planning.chain_read,
    (s.Skipping, m.LinkPersisted): skipping.skip_put,
    (s.Skipping, m.LinkTaken): overtaken,
    (s.Skipped, m.ReceiptPersisted): skipping.skip_settled,
    (s.Claiming, m.LinkPersisted): recovery.claimed,
    (s.Claiming, m.LinkTaken): overtaken,
    (s.SweepingStart, m.Swept): recovery.start_swept,
    (s.SweepingStart, m.SweepFailed): recovery.start_not_swept,
    (s.SweepingStart, m.LinkTaken): superseded,
    (s.Draining, m.ChainRead): planning.claim_next,
    (s.ClaimingNext, m.LinkPersisted): recovery.next_claimed,
    (s.ClaimingNext, m.LinkTaken): overtaken,
    (s.SweepingNext, m.Swept): recovery.next_swept,
    (s.SweepingNext, m.SweepFailed): recovery.start_not_swept,
    (s.SweepingNext, m.LinkTaken): superseded,
    (s.Withdrawing, m.LinkPersisted): recovery.withdrawn,
    (s.Withdrawing, m.LinkTaken): overtaken,
    (s.Restoring, m.InputsRestored): recovery.restored,
    (s.Restoring, m.InputsNotRestored): recovery.not_restored,
    (s.Syncing, m.LinkPersisted): recovery.synced,
    (s.Resolving, m.Resolved): recovery.resolving,
    (s.Receipting, m.ReceiptPersisted): recovery.receipt_put,
    (s.Running, m.VotesCollected): deciding.voted,
    (s.Checking, m.Checked): deciding.checked,
    (s.Deciding, m.LinkPersisted): deciding.decided,
    (s.Deciding, m.LinkTaken): superseded,
    (s.Committing, m.Resolved): deciding.committing,
    (s.SweepingEnd, m.Swept): deciding.end_swept,
    (s.SweepingEnd, m.SweepFailed): deciding.end_swept,
    (s.SweepingEnd, m.LinkTaken): deciding.end_swept,
    (s.Abandoning, m.ChainRead): deciding.abandoned,
    (s.Voiding, m.LinkPersisted): deciding.voided,
    (s.Voiding, m.LinkTaken): deciding.not_voided,
}
