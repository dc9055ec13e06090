"""``onceonly.epoch``: several sinks of one micro-batch under one decision, inside foreachBatch."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.coordinator import repeats
from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import CheckpointChangedError, ConfigurationError
from onceonly.executor.kept import Kept
from onceonly.settings import savepoints
from onceonly.settings.query import QuerySettings, replay_of, sink_name, source_changed_of
from onceonly.settings.registry import BUILT_IN
from onceonly.settings.telemetry import LOCAL, TelemetrySettings
from onceonly.spark import beside, called, connect, kept_back, lag, reporting, saving, spans, unused
from onceonly.spark.application import application
from onceonly.spark.asked import no_complete_mode
from onceonly.spark.cancelling import no_longer_than_planned
from onceonly.spark.noted import noted_before
from onceonly.spark.plans import may_differ
from onceonly.spark.running import checkpoint_elsewhere, output_mode, run_of
from onceonly.spark.task import run_tasks
from onceonly.telemetry import watching

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pyspark.sql import DataFrame

    from onceonly.executor.ballot import Ballot
    from onceonly.model import Plan
    from onceonly.spark.foreach_batch import ForeachBatch

logger = logging.getLogger("onceonly")

_SAME = (
    "give onceonly the same checkpointLocation as the query: onceonly.epoch by log=..., onceonly.sink by "
    "checkpointLocation=..."
)
# A driver seldom runs more queries; a coordinator that is closed costs the next epoch a claim, nothing else.
_COORDINATORS_MAX = 32
_coordinators: Kept[tuple[QuerySettings, str], QueryCoordinator] = Kept(_COORDINATORS_MAX)
# By query: the run and the epoch that were carried out last.
_carried_out: dict[str, tuple[str, int]] = {}
# Whose blocks are open.
_open: list[Epoch] = []
# By query: the newest run, and its first epoch, whatever became of it.
_begun: dict[str, tuple[str, int]] = {}


def epoch(  # noqa: PLR0913  one parameter for each option
    df: DataFrame,
    batch_id: int,
    *,
    log: str = "",
    adopt: bool = False,
    history: int = 100,
    commit_timeout_s: float = 60.0,
    call_timeout_s: float = 300.0,
    epoch_timeout_s: float | None = None,
    replay: str = "auto",
    source_changed: str = "stop",
    lag_group: str = "",
    report: str = "",
    metrics_port: int | None = None,
    metrics_host: str = LOCAL,
    metrics_file: str = "",
    traces: str = "",
    savepoint_every: str = "",
    savepoint_place: str = "",
    savepoint_keep: int = 3,
) -> Epoch:
    """Write one micro-batch to several sinks under one decision: all of it becomes visible, or nothing.

    Driver (on Spark Connect, a Python beside the server's), inside a ``foreachBatch`` function, once for each call of
    it; ``df`` and ``batch_id`` are its arguments, and ``log`` is the query's checkpointLocation::

        with onceonly.epoch(df, batch_id, log=checkpoint) as epoch:
            epoch.write(totals, onceonly.sink("onceonly.kafka", topic="totals", **kafka))
            epoch.write(details, onceonly.sink("onceonly.files", path="/data/details"))

    The writes are carried out when the block ends; a block that raises writes nothing. With several of them
    ``df`` is persisted meanwhile, so that it is evaluated once. An epoch that is run again must write to the
    sinks that it was decided for: a replay that takes another branch stops with ``ReplayMismatchError``. An
    epoch without any write is evaluated all the same, as Spark's state needs it.

    ``adopt`` takes over what Spark noted without onceonly before this run began, ``history`` is how many epochs keep
    their details, ``commit_timeout_s`` bounds the retries of one commit phase in seconds, ``call_timeout_s`` each call
    of a sink on the driver; ``epoch_timeout_s`` is how long an epoch may take from its plan to its decision, None for
    as long as it takes; ``replay`` is ``auto``, ``stop`` or ``tell``: what becomes of the query where an epoch that was
    decided is run again with other rows; ``source_changed`` is ``stop`` or ``go-on``: what becomes of it where a source
    would lose rows; ``lag_group`` is the consumer group of Kafka's that shows how far the query is, empty for none;
    ``report`` is a file for the run's report, when the query ends or fails;
    ``metrics_port`` (0 for a free one), ``metrics_host`` and ``metrics_file`` say where its metrics
    are told, ``traces`` is ``otlp`` for a trace of each epoch; ``savepoint_every``, a time, has a
    savepoint made in ``savepoint_place`` so often, of which the newest ``savepoint_keep`` stay.
    """
    with kept_back.noting(df):  # a wrong option, too, may be caught
        if not log:
            raise ConfigurationError(
                f"chk-{batch_id}: onceonly.epoch was given no log: it does not know where decisions are kept",
                next_step="name the query's checkpointLocation: onceonly.epoch(df, batch_id, log=checkpoint)",
            )
        return Epoch(
            df,
            batch_id,
            QuerySettings(
                checkpoint=log,
                adopt=adopt,
                history=history,
                commit_timeout_s=commit_timeout_s,
                call_timeout_s=call_timeout_s,
                epoch_timeout_s=epoch_timeout_s,
                replay=replay_of(replay),
                source_changed=source_changed_of(source_changed),
                lag_group=lag_group,
                report=report,
                telemetry=TelemetrySettings(
                    port=metrics_port, host=metrics_host, file=metrics_file, traces=traces
                ),
                savepoints=savepoints.keeping(
                    {
                        savepoints.EVERY: savepoint_every,
                        savepoints.PLACE: savepoint_place,
                        savepoints.KEEP: str(savepoint_keep) if savepoint_every or savepoint_place else "",
                    }
                ),
            ),
        )


@dataclass(frozen=True, slots=True)
class _Write:
    df: DataFrame
    name: str
    sink: ForeachBatch


class Epoch:
    """One try at an epoch. Driver's Python, in Spark's callback thread; use it as a context manager."""

    def __init__(self, df: DataFrame, batch_id: int, settings: QuerySettings) -> None:
        self._is_client = connect.is_client(df.sparkSession)
        if self._is_client:
            called.require()
            beside.require_driver(settings, "")
        lag.note(settings)
        saving.note(settings)
        self._df = df
        self._epoch = batch_id
        self._settings = settings
        self._writes: dict[str, _Write] = {}
        self._persisted = False
        self._failed: BaseException | None = None
        watching.ask(settings)
        self._query, self._run = _belongs(df, batch_id, settings.checkpoint)
        reporting.ask(settings.checkpoint, settings.report)
        if self._query not in _begun or _begun[self._query][0] != self._run:
            # The user's function may have returned early in earlier ones.
            before = noted_before(settings.checkpoint)
            first = called.first() if before is None else before + 1
            _begun[self._query] = (self._run, batch_id if first is None else min(first, batch_id))
        self._require_alone()

    def write(self, df: DataFrame, sink: ForeachBatch, *, name: str | None = None) -> None:
        """Write a frame with ``onceonly.sink(…)`` when the block ends; any number of times in one block.

        ``name`` tells sinks of one kind apart (default: the option ``onceonly.sink``, or the sink's own name).
        It stands in handles and in the decision log, so an epoch that is run again must give the same.
        An error that is caught in the block is raised again at its end: nothing is decided without one of its writes.
        """
        try:
            self._note(df, sink, name)
        except BaseException as error:
            kept_back.note(self._df, error)
            self._fail(error)
            raise

    def _note(self, df: DataFrame, sink: ForeachBatch, name: str | None) -> None:
        if self not in _open:
            raise ConfigurationError(
                f"chk-{self._epoch}: epoch.write was called outside its block, where nothing would be written",
                next_step="use it inside: with onceonly.epoch(df, batch_id, log=...) as epoch: epoch.write(...)",
            )
        name = sink.settings.name if name is None else sink_name(name)
        if name in self._writes:
            raise ConfigurationError(
                f"chk-{self._epoch} is written twice to a sink named {name!r}",
                next_step="give the second one a name of its own: epoch.write(df, sink, name=...)",
            )
        sink.require_no_query(self._settings.checkpoint)
        self.add(df, name, sink)

    def add(self, df: DataFrame, name: str, sink: ForeachBatch) -> None:
        """Note a write under a name that is free.

        Raises ``ConfigurationError`` for files in complete mode: a function around ``onceonly.sink`` hides from the
        query's start that they are written.
        """
        if sink.sink_class == BUILT_IN["files"] and output_mode(self._df) == "complete":
            raise no_complete_mode(f"chk-{self._epoch}: the sink {name!r}")
        self._writes[name] = _Write(df, name, sink)

    def _require_alone(self) -> None:
        """See that nothing else in this call writes the epoch: to the log it is a replay, and that writes nothing."""
        is_done = _carried_out.get(self._query) == (self._run, self._epoch)
        own = (self._query, self._run)
        others = [each for each in _open if each is not self and (each._query, each._run) == own]  # noqa: SLF001  of this class
        if is_done or others:
            error = ConfigurationError(
                f"chk-{self._epoch} of query {self._query} {'was' if is_done else 'is'} already written in this call "
                "of the foreachBatch function",
                next_step="put all writes of a call into one onceonly.epoch block",
            )
            for each in others:
                each._fail(error)  # noqa: SLF001  as above: it may be caught in that block
            raise error

    def _fail(self, error: BaseException) -> None:
        """Remember an error for want of which the block would have another write; the first one is told."""
        self._failed = self._failed or error

    def __enter__(self) -> Self:
        # A plan that is made from it now finds it in the cache later; one that the caller keeps is left alone.
        with kept_back.noting(self._df):  # no end of the block would note it
            if not (self._df.storageLevel.useMemory or self._df.storageLevel.useDisk):
                self._df.persist()
                self._persisted = True
        _open.append(self)
        unused.forget_failed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _open.remove(self)
        try:
            if error is not None:
                kept_back.note(self._df, error)
            else:
                self._failed = self._failed or unused.failed_in_thread()
                self.carry_out()
        finally:
            self._release()

    def carry_out(self) -> None:
        """Plan, run the tasks of every write, decide. Raises a typed error; the query's restart resolves the epoch."""
        with kept_back.noting(self._df):
            self._carry_out()
        kept_back.forget(self._df)

    def _carry_out(self) -> None:
        if self._failed is not None:
            logger.warning(
                "chk-%s: this error of a write was caught in the block of its epoch, and it is raised again: the epoch "
                "would be decided without the rows of that write: %s",
                self._epoch,
                self._failed,
            )
            raise self._failed
        self._require_alone()
        if len(self._writes) < 2:  # noqa: PLR2004  what is read once need not be kept
            self._release()
        key = (self._settings, self._query)
        with _coordinators.use(key, self._coordinator, fits=self._fits) as coordinator:
            for write in self._writes.values():
                sink = write.sink
                coordinator.enlist(sink.named(write.name), sink.sink_class, _columns(write.df), sink.letters)
            if self._is_client:
                beside.end_if_asked(coordinator, self._epoch, application(self._df.sparkSession))
            since = _begun[self._query][1]
            plan = coordinator.plan(
                self._epoch,
                sinks=self._writes,
                run=self._run,
                since=since,
                repeats=lambda: self._repeats(coordinator),
            )
            ballots: list[Ballot] = []
            context = None if self._is_client else self._df.sparkSession.sparkContext
            try:
                with no_longer_than_planned(context, plan, query=self._query):
                    for write in self._writes.values():
                        own = coordinator.assignment(plan, write.name, run=self._run)
                        # There no task is told of query and epoch; but the plan is of this very call.
                        ballots += run_tasks(
                            write.df, replace(own, streams=False) if self._is_client else own
                        )
                    if not self._writes:
                        self._df.write.format("noop").mode("overwrite").save()
                coordinator.decide(plan, ballots)
                _carried_out[self._query] = (self._run, self._epoch)
                unused.decided(self._query, self._epoch)
            except BaseException:  # an interrupt, too: its rows must not stay open
                # As Spark does on the format way, also after a failed commit: what is decided stays decided.
                _abort(coordinator, plan, ballots, self._run)
                raise

    def _repeats(self, coordinator: QueryCoordinator) -> bool:
        """Say whether the query's plan and all that was made of its rows here promise the same rows in a replay."""
        try:
            made = [may_differ(write.df._jdf.queryExecution().analyzed()) for write in self._writes.values()]  # noqa: SLF001  classic
        except Exception as error:  # noqa: BLE001  a plan of a kind that nobody has seen yet
            logger.debug("The plan cannot be looked at: %s", error)
            return False
        return not any(made) and repeats.noted(coordinator.checkpoint.files)

    def _coordinator(self) -> QueryCoordinator:
        made = QueryCoordinator(
            self._settings,
            actor="driver",
            application=application(self._df.sparkSession),
            start=self._run,
            span=None if self._is_client else spans.read,
            sources=(lambda _query: None) if self._is_client else spans.read_sources,
        )
        if not spans.asked:  # nobody hears of epochs
            made.keeper = saving.keeper(self._settings.checkpoint, made.query)
        return made

    def _fits(self, coordinator: QueryCoordinator) -> bool:
        """Say whether a coordinator is of this run: before it, anybody may have changed target and checkpoint."""
        return coordinator.start == self._run

    def _release(self) -> None:
        if self._persisted:
            self._persisted = False
            self._df.unpersist()


def _belongs(df: DataFrame, batch_id: int, location: str) -> tuple[str, str]:
    """See that Spark runs this very epoch of the checkpoint's query, before anything is touched.

    Return the query and the run.
    """
    checkpoint = SparkCheckpoint.at(location)
    try:
        owner, newest = background.at_once(checkpoint.files.abreast, checkpoint.query, checkpoint.epoch)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{error.what}{checkpoint_elsewhere(df, location)}", next_step=_SAME
        ) from None
    query, epoch = kept_back.epoch_of(df) or ("", "")
    if not query or query == owner:
        # A thread of the user's has no query, and nobody may look at its error.
        unused.entered(owner, batch_id)
    if query == owner and epoch == str(batch_id) and newest > batch_id:
        raise CheckpointChangedError(
            f"chk-{batch_id} of query {query} was to be written, and the checkpoint {location} is at chk-{newest} by "
            "now: another driver has gone on there; nothing was written",
            next_step="start the query again, as onceonly.supervise does, and let one driver run on a checkpoint",
        )
    if query != owner or epoch != str(batch_id) or newest != batch_id:
        raise ConfigurationError(
            f"the checkpoint {location} is that of query {owner}, chk-{newest}, "
            f"but it was given by query {query}, chk-{batch_id}{checkpoint_elsewhere(df, location)}",
            next_step=_SAME,
        )
    return owner, run_of(df)


def _columns(df: DataFrame) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.dataType.simpleString()) for field in df.schema.fields)


def _abort(coordinator: QueryCoordinator, plan: Plan, ballots: list[Ballot], run: str) -> None:
    """Give up a try; the error that led here matters more than one that follows from it."""
    try:
        coordinator.abort(plan, ballots, run=run)
    except Exception as error:  # noqa: BLE001  see above
        logger.warning("Query %s, chk-%s: abort: %s", coordinator.query, plan.epoch, error)
