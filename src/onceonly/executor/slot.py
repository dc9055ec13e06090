"""What one attempt at one slot does, in the time that it has: begin, write, pre-commit, and the vote. Executor."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceonly import events, failpoints
from onceonly.errors import ConfigurationError, EpochTimeoutError, RecordRefusedError
from onceonly.executor import dead_letters as dead
from onceonly.executor import diverted
from onceonly.executor.ballot import Ballot
from onceonly.model import Guarantee, Mode, Plan, Vote, letters_name
from onceonly.rows import compiled
from onceonly.rows.checksum import RowChecksum, require_comparable
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from onceonly.executor.dead_letters import Letters
    from onceonly.model import Handle
    from onceonly.ports import Clock, Refused, Sink, WriteContext


class Deadline:
    """The end of the time of one attempt. Any thread; ``doing`` is what the attempt is at, for people.

    Two clocks of two machines cannot be compared, so its time is counted from its own beginning, by the monotonic
    clock of its machine; the age of the whole epoch is looked at on the driver, before its decision.
    """

    def __init__(self, limit_s: float | None, context: WriteContext, clock: Clock | None = None) -> None:
        self.limit_s = limit_s
        self.doing = "waiting for its first row"
        self._context = context
        self._clock: Clock = clock or time
        self._began_s = self._clock.monotonic()

    def check(self, doing: str) -> None:
        """Note what comes next; raise ``EpochTimeoutError`` where there is no time left for it."""
        self.doing = doing
        if self.limit_s is not None and self._clock.monotonic() - self._began_s > self.limit_s:
            raise self.error()

    def error(self) -> EpochTimeoutError:
        """Make the error of an attempt that is late."""
        context = self._context
        return EpochTimeoutError(
            f"Query {context.query}, chk-{context.epoch}, sink {context.sink}, slot {context.slot}: not prepared "
            f"within {self.limit_s:g} s; it was {self.doing}. Nothing of this try is decided.",
            next_step="Let the query start again, as a supervised one does: the epoch runs anew. If it is late every "
            "time, raise onceonly.epoch.timeout.",
        )


def run_slot(
    sink: Sink,
    plan: Plan,
    context: WriteContext,
    batches: Iterable[pa.RecordBatch],
    deadline: Deadline | None = None,
    letters: Letters | None = None,
) -> Ballot:
    """Run one attempt and return its ballot. Executor, once an attempt.

    A drain consumes the rows (the plan's state stores need it) and writes nothing; so does a sink that has lost
    nothing of an epoch of which another one has. An attempt without rows
    votes without a handle, as an empty transaction cannot be committed. An error drops the transaction, best
    effort, and is VOTE_ABORT; so is being late, which is seen at every step (``deadline`` is the plan's limit from
    now on, if it is not given).

    Rows that the sink refuses go to ``letters``, and the vote does not count them; without ``letters`` they stop the
    query.
    """
    deadline = deadline or Deadline(plan.limit_s, context)
    checksum = RowChecksum()
    if plan.decided is not None:
        require_comparable(plan.decided.votes)
    if plan.mode is Mode.DRAIN or (plan.mode is Mode.TENTATIVE and not _owes(plan, context.sink)):
        for batch in in_larger(batches):
            compiled.expect(checksum.rows + batch.num_rows)
            checksum.add(batch)
        return Ballot(vote=_vote(context, checksum, None))
    before = diverted.Diverted(plan, context.sink, context.slot)
    attempt = _Attempt(sink, context, checksum, deadline, letters, before)
    try:
        attempt.write(batches)
        if letters is not None and letters.beyond:
            attempt.drop()
            return _counted(context, checksum, letters)
        handle = attempt.prepare()
    except BaseException as error:
        _record("slot.failed", context, error=type(error).__name__)
        attempt.drop()
        if isinstance(error, RecordRefusedError) and letters is None and sink.capabilities.gives_back:
            raise RecordRefusedError(error.what, next_step=f"{error.next_step}; or set {dead.DOC}") from error
        raise
    if not attempt.has_rows:
        return Ballot(vote=_vote(context, checksum, None))
    if handle is None and checksum.rows and context.guarantee is not Guarantee.AT_LEAST_ONCE:
        what = f"Sink {context.sink} gave no handle for {n(checksum.rows, 'row')}, but promises {context.guarantee}."
        raise ConfigurationError(what, next_step="Let its pre_commit return a Handle: a defect of the sink.")
    _record("slot.prepared", context, handle)
    failpoints.hit("slot.after_prepare")
    vote = replace(_vote(context, checksum, handle), bytes=attempt.bytes)
    again = tuple(_vote(each.context, each.checksum, each.handle) for each in attempt.again)
    if letters is None or not letters.rows:
        return Ballot(vote=vote, diverted=again)
    beside = _vote(letters.context, letters.checksum, letters.handle)
    return Ballot(vote=vote, letters=beside, refused=letters.first, diverted=again)


def _counted(context: WriteContext, checksum: RowChecksum, letters: Letters) -> Ballot:
    """Say how many rows were refused of an attempt that has nothing any more."""
    checksum.less(letters.checksum)
    beside = _vote(letters.context, letters.checksum, None)
    return Ballot(vote=_vote(context, checksum, None), letters=beside, refused=letters.first, beyond=True)


class _Attempt:
    """What an attempt that writes has begun, so that it can be dropped."""

    def __init__(
        self,
        sink: Sink,
        context: WriteContext,
        checksum: RowChecksum,
        deadline: Deadline,
        letters: Letters | None,
        before: diverted.Diverted,
    ) -> None:
        self.has_rows = False
        self.bytes = 0
        self.again: list[Letters] = []
        """Those of rows that were diverted before, once the slot's own letters are prepared."""
        self._sink = sink
        self._context = context
        self._checksum = checksum
        self._deadline = deadline
        self._letters = letters
        self._before = before
        self._diverted: dict[int, list[tuple[pa.RecordBatch, Sequence[Refused], Sequence[int]]]] = {}
        """They alone, and their numbers in the slot, by the slot of their letters."""
        self._left_out = RowChecksum()
        self._transaction: Any = None
        self._begun = False

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all rows; those that are refused become letters."""
        checksum, deadline = self._checksum, self._deadline
        self._sink.expect(self._context)
        for batch in in_larger(batches):
            if not self._begun:
                self._begin()
            compiled.expect(checksum.rows + batch.num_rows)
            checksum.add(batch)
            self.bytes += batch.nbytes
            deadline.check("writing")
            first = checksum.rows - batch.num_rows
            refused = self._refused(batch, first)
            if refused:
                _set_aside(self._context, self._letters, batch, refused, first)
            failpoints.hit("slot.during_write")
            deadline.check("waiting for rows")

    def _refused(self, batch: pa.RecordBatch, first: int) -> Sequence[Refused]:
        """Write a batch; return the rows that are refused. Those that were diverted before wait for their letters."""
        found = self._before.among(batch)
        if not found or self._letters is None:
            return self._sink.write(self._transaction, batch) or ()
        import numpy as np
        import pyarrow as pa

        for slot, some in found.items():
            rows = batch.take(pa.array([each.row for each in some]))
            self._left_out.add(rows)
            alone = [replace(each, row=place) for place, each in enumerate(some)]
            self._diverted.setdefault(slot, []).append((rows, alone, [first + each.row for each in some]))
        gone = [each.row for some in found.values() for each in some]
        places = np.setdiff1d(np.arange(batch.num_rows), gone)
        rest = batch.take(pa.array(places))
        refused = self._sink.write(self._transaction, rest) or () if rest.num_rows else ()
        return [replace(each, row=int(places[each.row])) for each in refused]

    def prepare(self) -> Handle | None:
        """Make rows and letters durable; the rows that are left of the checksum are the sink's own."""
        if not self.has_rows:
            self._deadline.check("about to vote")
            return None
        failpoints.hit("slot.before_prepare")
        self._deadline.check("preparing")
        if self._letters is not None:
            self._checksum.less(self._letters.checksum)
        self._checksum.less(self._left_out)
        handle = None
        if self._checksum.rows:
            handle = self._sink.pre_commit(self._transaction)
        else:  # all of them were refused, and an empty transaction cannot be committed
            self._begun = False
            self._sink.discard(self._transaction)
        if self._letters is not None:
            self._letters.prepare()
            numbers = self._divert(self._letters)
            # Where an epoch is shown as a whole, it may be refused as a whole, and then more rows become letters.
            if self._sink.capabilities.whole_epochs:
                handle = diverted.without(handle, numbers)
        self._deadline.check("about to vote")
        return handle

    def _divert(self, letters: Letters) -> Sequence[int]:
        """Prepare the letters of rows that were diverted before; return which rows of the slot are letters now."""
        numbers = list(letters.numbers)
        for slot, some in self._diverted.items():
            again = letters.again(slot)
            self.again.append(again)
            for rows, refused, places in some:
                again.take(rows, refused, places)
            again.prepare()
            numbers += again.numbers
        return numbers

    def drop(self) -> None:
        """Drop what was begun, best effort."""
        if self._begun:
            self._sink.discard(self._transaction)
        for each in [self._letters, *self.again] if self._letters is not None else []:
            each.discard()

    def _begin(self) -> None:
        _record("slot.has_rows", self._context)
        self.has_rows = True
        failpoints.hit("slot.before_begin")
        self._deadline.check("beginning its transaction")
        self._transaction = self._sink.begin_transaction(self._context)
        self._begun = True
        _record("slot.begun", self._context)


def in_larger(
    batches: Iterable[pa.RecordBatch], *, rows: int = 20_000, size: int = 1 << 21
) -> Iterator[pa.RecordBatch]:
    """Put batches together until they have so many rows, or so many bytes; one that has them comes as it is.

    Of small ones, each call of numpy's and Arrow's costs as much as a thousand rows; Spark makes them small, so that
    rows of 1 KB do not leave its caches. The first one with rows comes at once, as a transaction begins with it. None
    comes without rows.
    """
    some: list[pa.RecordBatch] = []
    rows_left, size_left = 0, 0  # so the first one comes at once
    for batch in batches:
        if batch.num_rows == 0:
            continue
        some.append(batch)
        rows_left -= batch.num_rows
        size_left -= batch.nbytes
        if rows_left <= 0 or size_left <= 0:
            yield _one(some)
            some, rows_left, size_left = [], rows, size
    if some:
        yield _one(some)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    # malloc's memory, which a worker keeps (``spark.memory``).
    return pa.concat_batches(batches, memory_pool=pa.system_memory_pool())


def _owes(plan: Plan, sink: str) -> bool:
    # Which rows are letters, only the sink that refuses them tells: either of the two has both written again.
    return any(vote.sink in {sink, letters_name(sink)} for vote in plan.lost)


def _set_aside(
    context: WriteContext,
    letters: Letters | None,
    batch: pa.RecordBatch,
    refused: Sequence[Refused],
    first: int,
) -> None:
    """Let refused rows become letters; stop where there is no place for them."""
    _record("slot.refused", context, rows=str(len(refused)))
    if letters is None:
        one = refused[0]
        raise RecordRefusedError(
            f"Query {context.query}, sink {context.sink}, epoch {context.epoch}, slot {context.slot}, row "
            f"{first + one.row}: {one.why}",
            next_step=one.next_step,
        )
    letters.take(batch, refused, [first + each.row for each in refused])


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
        stamp=events.stamp(),
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
