"""A batch: ``df.write.format("onceonly.…")`` with an id. One epoch, planned, written and decided as one of a stream.

Spark makes the writer once, in the planner process, and pickles it: to the executors, where ``write`` is called, and
to the commit process, for ``commit`` or ``abort``. So the plan travels with it.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter

from onceonly.checkpoint.batches import EPOCH
from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import ConfigurationError, ReplayMismatchError, TargetBehindError
from onceonly.families import behind
from onceonly.log.place import elsewhere
from onceonly.log.presence import Presence
from onceonly.model import Mode, differing
from onceonly.spark.shown import without_frames
from onceonly.spark.task import require_all_slots, write_slot
from onceonly.spark.writer import SlotMessage, enlisted
from onceonly.stores.opened import tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

    from onceonly.checkpoint.batches import BatchCheckpoint
    from onceonly.coordinator.query import Assignment
    from onceonly.executor.ballot import Ballot
    from onceonly.model import Plan
    from onceonly.settings.query import QuerySettings, SinkSettings
    from onceonly.settings.registry import SinkClass

log = logging.getLogger("onceonly")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What the options of a batch say, and where its log is.

    Each run is an application of its own: it was started on purpose, so it may take over from any other, whoever has
    run the batch before.
    """

    checkpoint: BatchCheckpoint
    query: QuerySettings
    sink: SinkSettings
    sink_class: SinkClass
    columns: tuple[tuple[str, str], ...]
    letters: SinkClass | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def coordinator(self, actor: str) -> QueryCoordinator:
        """Make the coordinator of a process. The caller closes it."""
        coordinator = QueryCoordinator(
            self.query, actor=actor, application=self.run, checkpoint=self.checkpoint
        )
        return enlisted(coordinator, self.sink, self.sink_class, self.columns, self.letters)


class BatchWriter(DataSourceArrowWriter):
    """One run of a batch: its plan, on its way to the tasks and to the commit process."""

    def __init__(self, batch: Batch, plan: Plan, assignment: Assignment) -> None:
        self._batch = batch
        self._plan = plan
        self._assignment = assignment

    @without_frames
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SlotMessage:
        """Write one slot. Executor, once an attempt."""
        tell(self._assignment.hadoop)
        # No listener of Spark's shows that a batch is alive; its tasks do.
        with closing(Presence.hold(self._assignment.checkpoint, actor="task of a batch")):
            return SlotMessage(write_slot(self._assignment, iterator), None, self._assignment.query)

    @without_frames
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Decide. Commit process, once a run; returns when everything decided is visible."""
        tell(self._assignment.hadoop)
        ballots = _ballots(messages)
        require_all_slots(self._plan, [ballot.vote.slot for ballot in ballots], slots=len(messages))
        with closing(self._batch.coordinator("committer")) as coordinator:
            try:
                coordinator.decide(self._plan, ballots)
            except ReplayMismatchError as error:
                if self._plan.mode is not Mode.DRAIN:
                    raise
                raise _other_rows(self._batch, error) from error

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give up a run. Commit process; idempotent, also called after a failed commit: what is decided stays so."""
        tell(self._assignment.hadoop)
        with closing(self._batch.coordinator("committer")) as coordinator:
            coordinator.abort(self._plan, _ballots(messages), run=self._batch.run)


def plan_batch(batch: Batch) -> BatchWriter:
    """Plan a run of a batch: what an earlier one left is finished or void then. Planner process, once a run.

    Raises ``ConfigurationError`` where the batch is decided and this run names other columns or another target, and a
    typed error where it must stop.
    """
    if where := elsewhere(batch.checkpoint.location):
        log.warning("%s", where)
    batch.checkpoint.begin()
    with closing(batch.coordinator("planner")) as coordinator:
        try:
            plan = coordinator.plan(EPOCH, run=batch.run)
        except ReplayMismatchError as error:  # no row is read yet
            raise _other_sink(batch, error) from error
        except TargetBehindError as error:
            raise _target_behind(batch, error) from error
        if plan.mode is Mode.DRAIN:
            _require_same_target(batch, plan)
            log.info(
                "The batch %s is done: it was decided in an earlier run, and all of it is visible. Its rows are "
                "compared, and nothing is written.", batch.checkpoint.job,
            )  # fmt: skip
        return BatchWriter(batch, plan, coordinator.assignment(plan, batch.sink.name, run=batch.run))


def _require_same_target(batch: Batch, plan: Plan) -> None:
    """See that a batch that is done is not taken for one that writes to another place."""
    for name, then in plan.decided.settings.items() if plan.decided is not None else ():
        now = plan.settings.get(name, then)
        changed = [f"{key} was {then[key]!r} and is {now.get(key)!r}" for key in differing(then, now)]
        if changed:
            raise ConfigurationError(
                f"the batch {batch.checkpoint.job} is done, and wrote by the sink {name} to another target than this "
                f"run names: {', '.join(changed)}; nothing was written",
                next_step="to write its rows there, too, give them an id of their own (onceonly.job)",
            )


def _other_rows(batch: Batch, error: ReplayMismatchError) -> ReplayMismatchError:
    return ReplayMismatchError(
        f"The batch {batch.checkpoint.job} is done, and this run gives other rows: nothing of them was written. "
        f"{error.what}",
        next_step="Give other rows an id of their own (onceonly.job). To have this one end well as it was decided, run "
        "it once with onceonly.replay=tell.",
    )


def _other_sink(batch: Batch, error: ReplayMismatchError) -> ReplayMismatchError:
    return ReplayMismatchError(
        f"The batch {batch.checkpoint.job} was decided in an earlier run, which wrote by another sink than this one, "
        f"or by one of another name: nothing was touched. {error.what}",
        next_step="Give what another sink writes an id of its own (onceonly.job), or run the batch by the sink, and "
        "the onceonly.sink, that it was decided for.",
    )


def _target_behind(batch: Batch, error: TargetBehindError) -> TargetBehindError:
    """Say it in words for a batch, which has no offsets to begin from again."""
    as_it_is = "To leave it as it is, do not run this id again"
    if behind.OPTION in error.next_step:  # one that was made anew is another target, whatever is asked for
        as_it_is += (
            f", or once with {behind.OPTION}=go-on where the folder or the table is still the same one"
        )
    return TargetBehindError(
        f"The batch {batch.checkpoint.job} is done, and its target no longer has what it wrote: {error.what}",
        next_step="Bring back what is away (a mount, a table, the books). If the target was emptied or made anew on "
        f"purpose: to have the rows written once more, give them an id of their own (onceonly.job). {as_it_is}.",
    )


def _ballots(messages: Sequence[WriterCommitMessage | None]) -> list[Ballot]:
    return [message.ballot for message in messages if isinstance(message, SlotMessage)]
