"""What Spark calls in a micro-batch of the format way: ``write`` in executors, ``commit`` on the driver.

Spark builds the writer twice. In the planner process it is pickled to the executors and only its ``write`` is
called; in the commit process it is built anew, and only ``commit`` or ``abort`` are called. The second knows
nothing of the first, so the plan comes back with the votes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import WriterCommitMessage

from onceonly import background
from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.coordinator import repeats
from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import ProtocolError
from onceonly.executor.kept import Kept
from onceonly.spark import beside, spans
from onceonly.spark.lag import unheard
from onceonly.spark.processes.garbage import freeze
from onceonly.spark.shown import without_frames
from onceonly.spark.task import require_all_slots, write_slot

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowWriter
except ImportError:  # PySpark 4.0: what is given to a writer depends on this class, also in a stream
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class ArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc,no-redef]
        """A stream writer that is given Arrow's batches."""


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from onceonly.coordinator.query import Assignment
    from onceonly.executor.ballot import Ballot
    from onceonly.log.stops import Stop
    from onceonly.model import Plan
    from onceonly.savepoints.keeping import Keeper
    from onceonly.settings.query import QuerySettings, SinkSettings
    from onceonly.settings.registry import SinkClass

# One process serves all queries of an application; more of them cost a claim each, nothing else.
_COORDINATORS_MAX = 16
_planning: Kept[tuple[Any, ...], QueryCoordinator] = Kept(_COORDINATORS_MAX)
_committing: Kept[tuple[Any, ...], QueryCoordinator] = Kept(_COORDINATORS_MAX)


@dataclass(frozen=True, slots=True)
class Stream:
    """What the options of a query say, and what is known of the driver's program."""

    query: QuerySettings
    sink: SinkSettings
    sink_class: SinkClass
    application: str
    letters: SinkClass | None = None
    start: str = ""
    """Where the driver's Python answers, a dot, and a word for each start; empty where nobody saw the start.

    Nothing is before the dot on Spark Connect, where the client does beside the query what is in its reach.
    """

    def key(self, query: str) -> tuple[Any, ...]:
        # With the query's id: a checkpoint that was removed and made anew is another query's.
        return (self.sink_class, self.query, self.sink.key, query)

    def coordinator(self, actor: str, columns: tuple[tuple[str, str], ...]) -> QueryCoordinator:
        """Make the coordinator of a process."""
        address = self.start.rpartition(".")[0]
        if not address and actor == "planner":
            unheard(self.query.checkpoint, "" if self.start else self.query.lag_group)
        coordinator = QueryCoordinator(
            self.query,
            actor=actor,
            application=self.application,
            start=self.start,
            span=partial(spans.ask, address) if address else None,
            sources=partial(spans.ask_sources, address) if actor == "planner" else None,
        )
        if actor == "committer" and not address:
            coordinator.keeper = self._keeper(coordinator.query)
        return enlisted(coordinator, self.sink, self.sink_class, columns, self.letters)

    def _keeper(self, query: str) -> Keeper | None:
        if self.query.savepoints is None:
            return None
        from onceonly.savepoints.keeping import Keeper

        return Keeper(self.query.checkpoint, query, self.query.savepoints)

    def fits(self, coordinator: QueryCoordinator) -> bool:
        """Say whether a coordinator is of this start: between two, anybody may have changed target and checkpoint."""
        return coordinator.start == self.start


def enlisted(
    coordinator: QueryCoordinator,
    sink: SinkSettings,
    sink_class: SinkClass,
    columns: tuple[tuple[str, str], ...],
    letters: SinkClass | None,
) -> QueryCoordinator:
    """Return a new coordinator with its one sink, or close it."""
    try:
        coordinator.enlist(sink, sink_class, columns, letters)
    except BaseException:  # an interrupt, too: nobody else has the coordinator yet
        coordinator.close()
        raise
    return coordinator


@dataclass(frozen=True, slots=True)
class SlotMessage(WriterCommitMessage):
    """The ballot of one slot on its way to the commit process.

    The plan comes with every vote of an ordinary epoch. The plan of a replay holds the whole former decision,
    so only slot 0 carries it; Spark always runs a slot 0. ``query`` is the query's id as its planner has just read it.
    """

    ballot: Ballot
    plan: Plan | None = field(repr=False)
    query: str


class SlotWriter(ArrowWriter):
    """Carries an assignment to the executors."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment

    @without_frames
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SlotMessage:
        """Write one slot. Executor, once an attempt."""
        plan = self._assignment.plan
        ballot = write_slot(self._assignment, iterator)
        carried = plan if ballot.vote.slot == 0 or plan.decided is None else None
        return SlotMessage(ballot, carried, self._assignment.query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> NoReturn:  # noqa: N803
        _misplaced("commit", batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> NoReturn:  # noqa: N803
        _misplaced("abort", batchId, messages)


class EpochCommitter(ArrowWriter):
    """Decides an epoch from its slots' messages. Commit process."""

    def __init__(self, stream: Stream, columns: tuple[tuple[str, str], ...]) -> None:
        self._stream = stream
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> NoReturn:  # noqa: ARG002
        _misplaced("write", -1, [])

    @without_frames
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Decide. Once a try; returns when everything decided is visible."""
        plan, query, ballots = _collect(messages)
        if plan is None or plan.epoch != batchId:
            raise ProtocolError(
                f"Spark asked to commit chk-{batchId}, but the votes belong to "
                f"{f'chk-{plan.epoch}' if plan else 'no epoch'}",
                next_step="start the query again; nothing was decided",
            )
        # Spark gives a message for each slot; None for one that has not committed.
        require_all_slots(plan, [ballot.vote.slot for ballot in ballots], slots=len(messages))
        key = self._stream.key(query)
        with _committing.use(key, self._coordinator, fits=self._stream.fits) as coordinator:
            coordinator.decide(plan, ballots)
        freeze()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Give up a try. Idempotent; also called after a failed commit.

        Without any vote there is nothing to name: the next run's first sweep takes what is open.
        """
        plan, query, ballots = _collect(messages)
        if plan is not None:
            key = self._stream.key(query)
            with _committing.use(key, self._coordinator, fits=self._stream.fits) as coordinator:
                coordinator.abort(plan, ballots)

    def _coordinator(self) -> QueryCoordinator:
        return self._stream.coordinator("committer", self._columns)


def plan_epoch(stream: Stream, columns: tuple[tuple[str, str], ...]) -> SlotWriter:
    """Plan the epoch in flight. Planner process, once a try at an epoch."""
    checkpoint = SparkCheckpoint.at(stream.query.checkpoint)
    # Where the driver has a Python of ours, that hears of a request to end.
    is_heard = bool(stream.start.rpartition(".")[0])
    reads = checkpoint.query, checkpoint.epoch
    asked: Sequence[Stop] = ()
    if is_heard:
        query, epoch = background.at_once(checkpoint.files.abreast, *reads)
    else:
        requests = partial(beside.requests, stream.query.checkpoint)
        query, epoch, asked = background.at_once(checkpoint.files.abreast, *reads, requests)
    key = (*stream.key(query), columns)
    with _planning.use(key, lambda: stream.coordinator("planner", columns), fits=stream.fits) as coordinator:
        if asked:
            before = coordinator.run_before(epoch, stream.application)
            beside.refuse_if_asked(asked, stream.query.checkpoint, epoch, before)
        plan = coordinator.plan(epoch, repeats=lambda: repeats.noted(coordinator.checkpoint.files))
        assignment = coordinator.assignment(plan, stream.sink.name)
    freeze()
    return SlotWriter(assignment)


def _collect(messages: Sequence[WriterCommitMessage | None]) -> tuple[Plan | None, str, list[Ballot]]:
    """Return the plan of the votes, None where none has one, the query's id, and the votes."""
    ours = [message for message in messages if isinstance(message, SlotMessage)]
    plans = (message.plan for message in ours if message.plan is not None)
    return next(plans, None), ours[0].query if ours else "", [message.ballot for message in ours]


def _misplaced(method: str, epoch: int, messages: Sequence[object]) -> NoReturn:
    raise ProtocolError(
        f"Spark called {method} (chk-{epoch}, {len(messages)} messages) on the wrong writer",
        next_step="report this with the PySpark version",
    )
