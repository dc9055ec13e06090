"""Ending a query in order when an operator has asked for it: after the epoch in flight, which goes to its end.

Spark's ``stop()`` breaks an epoch off. Where an ``availableNow`` query has read all, Spark only writes down that the
query is over, and looks at that between two epochs; the same is done here, once an epoch's tasks are over. Then
Spark calls a query ended whose last epoch is still running, so PySpark's ``isActive`` and ``awaitTermination`` are
wrapped: they wait until that has ended, so that no program goes on before. On Spark Connect nobody of ours is where the
driver is.

Spark tells its listeners of an end after it has woken who waits for it. Most programs end there, before what is done at
a query's end (its last word, its report) and with a stack trace of Py4J's; so who waits is held until it was told.
Others leave a query running: they stop their session, or just end. Spark then drops the query and tells nobody; so
``SparkContext.stop`` and the end of the process stop the queries of ours before.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import time
from concurrent.futures import wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from onceonly import background, events
from onceonly.errors import OnceonlyError
from onceonly.log.place import log_store
from onceonly.log.stops import StopFiles
from onceonly.spark import saving
from onceonly.spark.connect import is_client

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from onceonly.log.runs import Run

log = logging.getLogger("onceonly")

EVERY_S: Final = 1.0
EVERY_STORED_S: Final = 4.0
"""How often a request is looked for, in a folder and on a store, which takes its price for each look."""
_POLL_S: Final = 0.1
_NOTED_S: Final = 2.0
"""How long a program that has waited for the end of its query waits more until that is written down."""
_STATES: Final = (
    "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$",  # from 4.1 on
    "org.apache.spark.sql.execution.streaming.TERMINATED$",
)

_TOLD_S: Final = 5.0
"""How long it is waited for that Spark tells its listeners of an end."""
_STOPPED_S: Final = 20.0
"""How long a session or a program that ends below a query waits until that has stopped."""

_IDLE_MIN: Final = 10
"""How many looks in a row find an idle query without an epoch: one that is busy is not without one for as long."""
_wanted: dict[str, Callable[[], None]] = {}
"""What marks a query as ended that is to end, by run."""
_ending: set[str] = set()
"""The runs whose last epoch is being waited for."""
_untold: dict[str, tuple[Any, Callable[[], bool]]] = {}
"""The queries, by run, whose end is going to be told: Java's, and whether it is one of ours by now."""


def install() -> None:
    """Let a query be active until its last epoch has ended. Driver, once a process; never fails."""
    try:
        _wrap()
    except Exception as error:  # noqa: BLE001  a PySpark of another make: only this help is missing
        log.debug("Queries that are asked to end are inactive too early: %s", error)


@functools.cache
def _wrap() -> None:
    from pyspark import SparkContext
    from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

    is_active: Any = vars(StreamingQuery)["isActive"].fget
    await_end: Any = StreamingQuery.awaitTermination
    await_any: Any = StreamingQueryManager.awaitAnyTermination
    stop: Any = SparkContext.stop

    @functools.wraps(is_active)
    def active(self: Any) -> bool:  # noqa: ANN401  PySpark's own
        return bool(is_active(self)) or _is_ending(self)

    @functools.wraps(await_end)
    def awaited(self: Any, timeout: float | None = None) -> bool | None:  # noqa: ANN401  PySpark's own
        deadline = time.monotonic() + (_NOTED_S if timeout is None else timeout)
        with _until_told():
            done: bool | None = await_end(self, timeout)
        while done is not False and _is_ending(self):
            if time.monotonic() > deadline:
                return None if timeout is None else False
            time.sleep(_POLL_S)
        return done

    @functools.wraps(await_any)
    def awaited_any(self: Any, timeout: float | None = None) -> bool | None:  # noqa: ANN401  PySpark's own
        with _until_told():
            done: bool | None = await_any(self, timeout)
        return done

    @functools.wraps(stop)
    def stopped(self: Any) -> None:  # noqa: ANN401  PySpark's own
        end_all()
        stop(self)
        # Spark's machines are free by now. As the interpreter ends, no thread could be begun any more.
        saving.finish()

    StreamingQuery.isActive = property(active)  # type: ignore[method-assign,assignment]
    StreamingQuery.awaitTermination = awaited  # type: ignore[method-assign]
    StreamingQueryManager.awaitAnyTermination = awaited_any  # type: ignore[method-assign]
    SparkContext.stop = stopped  # type: ignore[method-assign]
    atexit.register(end_all)  # later than those who are told of an end, and so before them


def tells(run: str, query: Any, is_ours: Callable[[], bool]) -> None:  # noqa: ANN401  a Java object
    """Note that the end of a run is going to be told to this process, by ``told``. Driver, any thread."""
    _untold[run] = query, is_ours


def told(run: str) -> None:
    """Note that all is done that there is to do at the end of a run. Driver, any thread; idempotent."""
    _untold.pop(run, None)


def end_all() -> None:
    """Stop the queries of ours that run, and wait until that was told; not for long. Driver; never fails.

    An epoch in flight is broken off, as it is where Spark goes away below it.
    """

    def end(query: Any, is_ours: Callable[[], bool]) -> None:  # noqa: ANN401  a Java object
        if query.isActive() and is_ours():
            query.stop()

    with _until_told():
        stops = [background.begin("onceonly-end", end, *each) for each in list(_untold.values())]
        wait(stops, timeout=_STOPPED_S)


@contextlib.contextmanager
def _until_told() -> Iterator[None]:
    """Wait, however the block ends, until the ends of all queries that are over by then were told; not for long."""
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the JVM may be gone
            over = [run for run, (query, _) in list(_untold.items()) if not query.isActive()]
            deadline = time.monotonic() + _TOLD_S
            while not _untold.keys().isdisjoint(over) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            for run in over:
                told(run)


def _is_ending(query: Any) -> bool:  # noqa: ANN401  PySpark's own
    return bool(_ending) and str(query.runId) in _ending


def heard(stops: StopFiles, run: Run, over: threading.Event, every_s: float) -> bool:
    """Look for a request until there is one, or the run is ``over``; say which. A thread of the driver's."""
    while not over.wait(every_s):
        try:
            stop = stops.of(run)
        except OnceonlyError as error:  # a store that is away now
            log.debug("Whether run %s shall end is not known: %s", run.run, error)
            continue
        if stop is not None:
            log.warning("The %s; it ends after the epoch in flight.", stop.sentence)
            with contextlib.suppress(OnceonlyError):  # on a disk that is full it ends, too
                stops.put(replace(stop, seen=events.stamp().at))
            return True
    return False


def asked_to_end(query: StreamingQuery) -> str:
    """Say that a query's run was asked to end, and by whom. Driver or client; only looks. Empty where it was not.

    Or where that cannot be told.
    """
    try:
        if is_client(query):
            from onceonly.spark import beside

            return beside.told_to_end(query)
        location = str(query._jsq.streamingQuery().resolvedCheckpointRoot())  # noqa: SLF001
        stop = StopFiles(log_store(location)).of_id(str(query.runId))
    except Exception as error:  # noqa: BLE001  a look more than is needed
        log.debug("Whether the query was asked to end is not known: %s", error)
        return ""
    return stop.sentence if stop is not None else ""


def end(query: Any, session: SparkSession, note: Callable[[], None]) -> None:  # noqa: ANN401  a Java object
    """Let the epoch in flight end, begin none after it, and return when the query is over. Driver, any thread.

    ``note`` is called then, before anybody here sees that the query is over and ends the process. Where Spark is of
    another make, it is stopped between two epochs, as soon as it is seen there.
    """
    run = str(query.runId().toString())
    _ending.add(run)
    _wanted[run] = functools.partial(_mark, query, session._jvm)  # noqa: SLF001
    try:
        thread, idle = query.queryExecutionThread(), 0
        while thread.isAlive():
            idle = 0 if query.status().isTriggerActive() else idle + 1
            if idle >= _IDLE_MIN:
                query.stop()  # wakes it where it waits for its trigger
            time.sleep(_POLL_S)
        note()
    finally:
        _wanted.pop(run, None)
        _ending.discard(run)


def deciding(run: str) -> None:
    """Hear that an epoch of a run is about to be decided: its tasks are over, and the query may be marked as ended.

    Marked before, the job of an epoch that begins was broken off (seen with 4.2). Driver, any thread.
    """
    mark = _wanted.get(run)
    if mark is not None:
        mark()


def _mark(query: Any, jvm: Any) -> None:  # noqa: ANN401
    for name in _STATES:
        try:
            query.state().set(getattr(getattr(jvm, name), "MODULE$"))
        except Exception as error:  # noqa: BLE001  Py4J's, where there is no such class
            log.debug("No %s: %s", name, error)
        else:
            return
