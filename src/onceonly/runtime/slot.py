"""What one attempt at one slot does: begin, write, pre-commit, and the vote. Executor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly import compiled, events, failpoints
from onceonly.arrow import in_larger
from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee, Mode, Plan, Vote
from onceonly.runtime import stamps
from onceonly.runtime.checksum import RowChecksum, algorithm_of
from onceonly.runtime.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from onceonly.model import Handle
    from onceonly.ports import Sink, WriteContext


def run_slot(
    sink: Sink,
    plan: Plan,
    context: WriteContext,
    batches: Iterable[pa.RecordBatch],
    deadline: Deadline | None = None,
) -> Vote:
    """Run one attempt and give its vote. Executor, once an attempt.

    A drain consumes the rows (the plan's state stores need it) and writes nothing; so does a sink that has lost
    nothing of an epoch of which another one has. An attempt without rows
    votes without a handle, as an empty transaction cannot be committed. An error drops the transaction, best
    effort, and is VOTE_ABORT; so is being late, which is seen at every step (``deadline`` is the plan's limit from
    now on, if it is not given).
    """
    deadline = deadline or Deadline(plan.limit_s, context)
    checksum = RowChecksum(algorithm_of(plan.decided.votes if plan.decided else ()))
    if plan.mode is Mode.DRAIN or (plan.mode is Mode.TENTATIVE and not _owes(plan, context.sink)):
        for batch in in_larger(batches):
            compiled.expect(checksum.rows + batch.num_rows)
            checksum.add(batch)
        return _vote(context, checksum, None)
    transaction: Any = None
    begun = False
    try:
        sink.expect(context)
        for batch in in_larger(batches):
            if not begun:
                _record("slot.has_rows", context)
                failpoints.hit("slot.before_begin")
                deadline.check("beginning its transaction")
                transaction = sink.begin_transaction(context)
                begun = True
                _record("slot.begun", context)
            compiled.expect(checksum.rows + batch.num_rows)
            checksum.add(batch)
            deadline.check("writing")
            sink.write(transaction, batch)
            failpoints.hit("slot.during_write")
            deadline.check("waiting for rows")
        if not begun:
            deadline.check("about to vote")
            return _vote(context, checksum, None)
        failpoints.hit("slot.before_prepare")
        deadline.check("preparing")
        handle = sink.pre_commit(transaction)
        deadline.check("about to vote")
    except BaseException as error:
        _record("slot.failed", context, error=type(error).__name__)
        if begun:
            sink.discard(transaction)
        raise
    if handle is None and context.guarantee is not Guarantee.AT_LEAST_ONCE:
        what = (
            f"Sink {context.sink} gave no handle for {checksum.rows} rows, but promises {context.guarantee}."
        )
        raise ConfigurationError(what, next_step="Let its pre_commit return a Handle: a defect of the sink.")
    _record("slot.prepared", context, handle)
    failpoints.hit("slot.after_prepare")
    return _vote(context, checksum, handle)


def _owes(plan: Plan, sink: str) -> bool:
    return any(vote.sink == sink for vote in plan.lost)


def _vote(context: WriteContext, checksum: RowChecksum, handle: Handle | None) -> Vote:
    _record("slot.voted", context, handle, rows=str(checksum.rows), compiled=",".join(compiled.used()))
    return Vote(
        sink=context.sink,
        epoch=context.epoch,
        slot=context.slot,
        plan=context.plan,
        run=context.run,
        attempt=context.attempt,
        rows=checksum.rows,
        checksum=checksum.value,
        handle=handle,
        stamp=stamps.now(),
    )


def _record(kind: str, context: WriteContext, handle: Handle | None = None, **more: str) -> None:
    if events.enabled():
        events.record(
            kind,
            actor="executor",
            query=context.query,
            epoch=context.epoch,
            run=context.run,
            plan=context.plan,
            sink=context.sink,
            slot=context.slot,
            attempt=context.attempt,
            transaction=handle.transaction if handle else "",
            **more,
        )
