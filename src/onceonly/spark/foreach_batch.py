"""``onceonly.sink``: the foreachBatch road, for output modes that Spark refuses to Python formats."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import TYPE_CHECKING

import msgspec

from onceonly.errors import ConfigurationError
from onceonly.model import Vote
from onceonly.runtime.checkpoint import SparkCheckpoint
from onceonly.runtime.desk import Desk, settings_of
from onceonly.runtime.registry import find
from onceonly.spark.register import require_pyspark
from onceonly.spark.task import EPOCH_PROPERTY, QUERY_PROPERTY, RUN_PROPERTY, write_slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from onceonly.runtime.desk import Assignment

log = logging.getLogger("onceonly")

_VOTE = "vote"


def sink(name: object, **options: str) -> ForeachBatch:
    """Give a function for ``foreachBatch`` that writes with a sink, exactly as its format would.

    Driver. ``name`` is ``"onceonly.kafka"``, or a class made from ``TwoPhaseCommitSink``. The options are
    those of the format, ``checkpointLocation`` included: the same as the query's. Names with dots are given
    as ``**{"kafka.bootstrap.servers": …}``. Spark must run the function for every epoch of the query; it
    evaluates the DataFrame exactly once, also when the epoch's output is already there.
    """
    require_pyspark()
    return ForeachBatch(name, options)


class ForeachBatch:
    """A callable ``(df, batch_id)``. Driver's Python, once a try at an epoch, in Spark's callback thread."""

    def __init__(self, name: object, options: dict[str, str]) -> None:
        self._name, self._class = find(name)
        self._settings = settings_of(options, self._name, self._class)
        self._desk: Desk | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"onceonly.sink({self._name!r}, checkpointLocation={self._settings.checkpoint!r}, …)"

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write the epoch. Raises a typed error; the query fails then, and its restart resolves the epoch."""
        with self._lock:
            query, run = self._belongs(df, batch_id)
            desk = self._opened(df, query)
            assignment = desk.plan(batch_id, run=run)
            votes: list[Vote] = []
            try:
                votes = _run_tasks(df, assignment)
                desk.decide(assignment.plan, votes)
            except BaseException:
                # As Spark does on the format road, also after a failed commit: what is decided stays decided.
                _abort(desk, assignment, votes, run)
                raise

    def _opened(self, df: DataFrame, query: str) -> Desk:
        """Give the desk of the query that the checkpoint belongs to now: it may have been removed and made anew."""
        desk = self._desk
        if desk is not None and desk.query == query:
            return desk
        columns = tuple((field.name, field.dataType.simpleString()) for field in df.schema.fields)
        self._desk = Desk(self._settings, self._class, actor="driver", columns=columns)
        # Spark lets go of the function some time after the query's end.
        weakref.finalize(self, self._desk.close)
        return self._desk

    def _belongs(self, df: DataFrame, batch_id: int) -> tuple[str, str]:
        """See that Spark runs this very epoch of the checkpoint's query, before anything is touched.

        Gives the query and the run.
        """
        checkpoint = SparkCheckpoint.at(self._settings.checkpoint)
        owner, newest = checkpoint.query(), checkpoint.epoch()
        context = df.sparkSession.sparkContext
        query, epoch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(EPOCH_PROPERTY)
        if query != owner or epoch != str(batch_id) or newest != batch_id:
            raise ConfigurationError(
                f"the sink's checkpointLocation {checkpoint.location} is that of query {owner}, chk-{newest}, "
                f"but it was called by query {query}, chk-{batch_id}",
                next_step="give the sink the same checkpointLocation as the query",
            )
        return owner, context.getLocalProperty(RUN_PROPERTY) or ""


def _abort(desk: Desk, assignment: Assignment, votes: list[Vote], run: str) -> None:
    """Give up a try; the error that led here matters more than one that follows from it."""
    try:
        desk.abort(assignment.plan, votes, run=run)
    except Exception as error:  # noqa: BLE001  see above
        log.warning("Query %s, chk-%s: abort: %s", desk.query, assignment.plan.epoch, error)


def _run_tasks(df: DataFrame, assignment: Assignment) -> list[Vote]:
    rows = df.mapInArrow(_task(assignment), f"{_VOTE} binary").collect()
    return [msgspec.json.decode(row[_VOTE], type=Vote) for row in rows]


def _task(assignment: Assignment) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        vote = write_slot(assignment, batches)
        yield pa.record_batch([pa.array([msgspec.json.encode(vote)])], names=[_VOTE])

    return write
