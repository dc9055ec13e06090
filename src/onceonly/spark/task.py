"""One attempt at one slot, inside a Spark task. Both ways call ``write_slot``."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import TaskContext

from onceonly.durable.sealed import decoder
from onceonly.errors import (
    TAKEN_OVER,
    CheckpointChangedError,
    ConfigurationError,
    LogError,
    OnceonlyError,
    ProtocolError,
    SupersededError,
)
from onceonly.executor.ballot import Ballot
from onceonly.executor.dead_letters import Letters
from onceonly.executor.deadline import in_time
from onceonly.executor.kept import Kept
from onceonly.executor.slot import Deadline, run_slot
from onceonly.log import identity_token, look
from onceonly.log.actions import OPERATOR
from onceonly.model import Visible
from onceonly.ports import WriteContext
from onceonly.settings.registry import build
from onceonly.spark.processes import memory
from onceonly.spark.processes.garbage import freeze
from onceonly.stores.opened import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from onceonly.coordinator.query import Assignment
    from onceonly.model import Plan
    from onceonly.ports import Sink

# Local properties that Spark's micro-batch execution sets; verified on 4.2.0, on both ways.
EPOCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"
# The job group. Users' code runs in the thread that sets it on the foreachBatch way only; there, Spark is asked.
RUN_PROPERTY = "spark.jobGroup.id"
# A worker process serves one task at a time, of any query of the application.
_SINKS_MAX = 8
_BALLOT = "ballot"

_sinks: Kept[tuple[Any, ...], Sink] = Kept(_SINKS_MAX)
_seen: set[tuple[str, str | None]] = set()


def write_slot(assignment: Assignment, batches: Iterable[pa.RecordBatch]) -> Ballot:
    """Write one slot and return its ballot. Executor worker, once an attempt.

    Raises a typed error where the task does not belong to the resolved epoch, or where this executor does
    not see the query's checkpoint; then nothing was written. Raises ``EpochTimeoutError`` for a slot that is late,
    ``SupersededError`` where the sink finds a newer epoch, and the log another application's link of it.
    """
    freeze()
    memory.keep()
    context = _context(assignment)
    _share(assignment)
    settings = assignment.settings
    # With a limit, attempts run in a thread of their own, and a sink may belong to the thread that made it.
    place = assignment.checkpoint
    key = (assignment.sink, settings.key, assignment.query, place, assignment.plan.limit_s is not None)
    deadline = Deadline(assignment.plan.limit_s, context)
    plan, beside, taker = assignment.plan, settings.of_letters, assignment.letters

    def attempt() -> Ballot:
        with _sinks.use(key, lambda: build(settings, assignment.sink, checkpoint=place)) as sink:
            if beside is None or taker is None or settings.letters is None:
                return run_slot(sink, plan, context, batches, deadline)
            own = (taker, beside.key, *key[2:])
            with _sinks.use(own, lambda: build(beside, taker, checkpoint=place)) as other:
                letters = Letters(other, plan, context, limit=settings.letters.limit)
                return run_slot(sink, plan, context, batches, deadline, letters)

    try:
        return in_time(deadline, attempt)
    except LogError as error:
        newer = _superseded(assignment)
        if newer is None:
            raise
        raise newer from error


def run_tasks(df: DataFrame, assignment: Assignment) -> list[Ballot]:
    """Write a frame by ``mapInArrow``, and return the ballots of its slots. Driver, or a function on Spark Connect."""
    rows = df.mapInArrow(_task(assignment), f"{_BALLOT} binary").collect()
    ballots = [decoder(Ballot).decode(row[_BALLOT]) for row in rows]
    require_all_slots(assignment.plan, [ballot.vote.slot for ballot in ballots], slots=None)
    return ballots


def _task(assignment: Assignment) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        ballot = write_slot(assignment, batches)
        yield pa.record_batch([pa.array([msgspec.json.encode(ballot)])], names=[_BALLOT])

    return write


def require_all_slots(plan: Plan, voted: Collection[int], *, slots: int | None) -> None:
    """See that every slot of an epoch has voted: a decision that lacks one would lose its rows. Driver.

    ``slots`` is how many there are, None where Spark does not say: then only a gap shows. Raises ``ProtocolError``.
    """
    expected = range(max(voted, default=-1) + 1 if slots is None else slots)
    missing = sorted(set(expected) - set(voted))
    if missing:
        raise ProtocolError(
            f"chk-{plan.epoch}: {len(voted)} votes came, and that of slot {missing[0]} is not among them",
            next_step="start the query again; nothing was decided. Report this with the PySpark version",
        )


def _superseded(assignment: Assignment) -> SupersededError | None:
    """See in the log whether another application has gone on with the query, which explains a newer epoch.

    None where it has not, or where that cannot be told: then an older checkpoint may have been restored.
    """
    plan = assignment.plan
    try:
        log, _ = look(assignment.checkpoint)
        newest = log.newest()
        links = () if newest is None else log.chain(newest)
    except OnceonlyError:
        return None
    mine = plan.id.rpartition(".")[0]
    for link in links:
        if (link.epoch, link.index) >= (plan.epoch, plan.index) and mine not in {"", link.application}:
            by = "an operator's command" if link.application.startswith(OPERATOR) else "a newer run"
            return SupersededError(
                f"Query {assignment.query}, chk-{plan.epoch}: {by} has taken the checkpoint over, and the target has "
                f"what it decided (link {link.name}, plan {link.plan}); this one has stopped and changed nothing.",
                next_step=TAKEN_OVER,
            )
    return None


def _context(assignment: Assignment) -> WriteContext:
    task = TaskContext.get()
    if task is None:
        raise ProtocolError(
            "a slot was written outside a Spark task", next_step="report this with the query's plan"
        )
    if assignment.streams:
        _require_epoch(task, assignment)
    plan, name = assignment.plan, assignment.settings.name
    return WriteContext(
        query=assignment.query,
        sink=name,
        run=assignment.run or task.getLocalProperty(RUN_PROPERTY) or "",
        epoch=plan.epoch,
        plan=plan.id,
        slot=task.partitionId(),
        attempt=str(task.taskAttemptId()),
        guarantee=assignment.settings.guarantee,
        mode=plan.mode,
        facts=plan.facts.get(name, {}),
        gives_back=assignment.letters is not None,
        index=plan.index,
        early=assignment.settings.visible is Visible.EARLY,
    )


def _require_epoch(task: TaskContext, assignment: Assignment) -> None:
    """See that Spark runs the epoch that was planned. A batch carries its own plan: there is none to mix it up with."""
    plan = assignment.plan
    epoch, query = task.getLocalProperty(EPOCH_PROPERTY), task.getLocalProperty(QUERY_PROPERTY)
    if query == assignment.query and epoch and int(epoch) != plan.epoch:
        # Another driver has written offsets, or taken some away. Who starts again sees in the log whose query it is.
        raise CheckpointChangedError(
            f"chk-{epoch} of query {query} was to be written, and Spark's checkpoint is at chk-{plan.epoch} by now: "
            "another driver works there; nothing was written",
            next_step="start the query again, as onceonly.supervise does, and let one driver run on a checkpoint",
        )
    if not epoch or query != assignment.query:
        raise ProtocolError(
            f"a task of chk-{epoch} of query {query} was given the plan of chk-{plan.epoch} of query "
            f"{assignment.query}; it refused",
            next_step="start the query again; nothing of this try was decided",
        )


def _share(assignment: Assignment) -> None:
    """See, once a worker, that this machine reads the same checkpoint as the driver."""
    location = assignment.checkpoint
    # Each time: the worker may have written for another session meanwhile, and keys are renewed.
    tell(assignment.hadoop)
    if (location, assignment.token) in _seen:
        return
    if identity_token(location) != assignment.token:
        raise ConfigurationError(
            f"the executor on {socket.gethostname()} does not share the checkpoint {location} with the driver",
            next_step="put the checkpoint on storage that is mounted at this path on every machine",
        )
    if len(_seen) >= _SINKS_MAX:
        _seen.clear()
    _seen.add((location, assignment.token))
