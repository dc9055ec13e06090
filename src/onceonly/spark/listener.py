"""Writes down what Spark reports of each epoch, and shows that a run is alive while its query is.

Spark calls it over Py4J, in threads of the driver's Python: once when a query starts (its ``start()`` waits for
that), then after each epoch and at the end, beside the query. A failure here is logged and never the query's.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import weakref
from concurrent.futures import TimeoutError as WaitTimeoutError
from concurrent.futures import wait
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from onceonly import background, events
from onceonly.checkpoint.files import files_of
from onceonly.coordinator import repeats
from onceonly.errors import OnceonlyError
from onceonly.log.identity import FOLDER, NAME
from onceonly.log.place import log_store
from onceonly.log.presence import Presence
from onceonly.log.progress import OperatorReport, Progress, SourceReport
from onceonly.log.runs import Run, RunFiles
from onceonly.log.stops import StopFiles
from onceonly.log.stored_progress import progress_in
from onceonly.spark import lag, reporting, saving, spans, stopping
from onceonly.spark.plans import may_differ
from onceonly.telemetry import watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

    from onceonly.guards.lag import Keeper
    from onceonly.log.heartbeat import Heartbeat

log = logging.getLogger("onceonly")

# What stands before the options in "KafkaV2[Subscribe[events]]", "FileStreamSource[file:/in]", "name(…)".
_SHORT_NAME = re.compile(r"[A-Za-z0-9_.$]{1,64}")

_STORE_S = 2.0

_installed: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def install(spark: SparkSession) -> None:
    """Add the listener to a session. Driver, idempotent; never fails: a session without it works as well."""
    if spark in _installed:
        return
    try:
        listener = _Listener(spark)
        spark.streams.addListener(listener)
        spans.asked.append(listener.asked)
        stopping.install()
        _installed.add(spark)
    except Exception as error:  # noqa: BLE001  only the view of the operator is poorer
        log.debug("No streaming listener: %s", error)


class _Watched:
    """One run of one query."""

    def __init__(
        self,
        location: str,
        run: str,
        query: str = "",
        end: Callable[..., None] = lambda _note: None,
        name: str = "",
        spark: str = "",
    ) -> None:
        self.location = location
        self.query = query
        self.checkpoint = files_of(location)
        self.path = self.checkpoint.folder
        place = self.path or log_store(location)
        self.reports = progress_in(place)
        self.presence: Presence | Heartbeat | None = None
        self.run = Run(run=run, began=events.stamp(), name=name, spark=spark)
        self._runs = RunFiles(place)
        self._stops = StopFiles(place)
        self._end = end
        self._over = threading.Event()
        self._said: Future[None] | None = None
        self._lag: Keeper | None = None
        self._lock = threading.Lock()

    def begin(self, why: str | None) -> None:
        """Leave word of the run; ``why`` says what in its plan may give other rows in a replay, None: unknown."""
        self.is_ours()
        repeats.note(self.checkpoint, why)

    def is_ours(self) -> bool:
        """Whether the checkpoint has our log by now; its planner makes it in the first epoch."""
        with self._lock:
            if self.presence is None and self.checkpoint.text(f"{FOLDER}/{NAME}") is not None:
                self.presence = Presence.hold(self.location, actor="driver")
                self._note(self.run)
                background.begin("onceonly-stop", self._hear)
            return self.presence is not None

    def show_lag(self, *, starts: bool = False) -> None:
        """Have its positions shown, where that is wanted: from its start, or from when it is first asked for."""
        if self._lag is not None:
            self._lag.moved()
        else:
            self._lag = lag.keeper(self.location, self.query, starts=starts)

    def _hear(self) -> None:
        every_s = stopping.EVERY_S if self.path is not None else stopping.EVERY_STORED_S
        if stopping.heard(self._stops, self.run, self._over, every_s):
            self._end(self.close)

    def close(self) -> None:
        """The run is over, also one that made the log since it was looked for last."""
        self._over.set()
        if self._lag is not None:
            self._lag.end()
        if self.is_ours() and self.presence is not None:
            self.presence.close()
            self._note(replace(self.run, ended=events.stamp().at))
            self.reports.close()
            if self._said is not None:
                wait([self._said], timeout=_STORE_S)

    def _note(self, run: Run) -> None:
        """Leave word of the run. A store is not waited for, and what is said last stands there in the end."""
        before = self._said

        def note() -> None:
            if before is not None:
                wait([before])
            with contextlib.suppress(OnceonlyError):  # for people: the reports of epochs go on
                self._runs.put(run)

        if self.path is not None:
            note()
        else:
            self._said = background.begin("onceonly-run", note)


class _Listener(StreamingQueryListener):
    """What Spark sees; ``_Proxy`` brings the events."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = weakref.ref(spark)
        self._runs: dict[str, _Watched] = {}
        self._lock = threading.Lock()

    @property
    def _jlistener(self) -> Any:  # noqa: ANN401  a Java object
        # PySpark's own wrapper asks the JVM some hundred times for one progress report; ours asks once.
        if not hasattr(self, "_jlistenerobj"):
            spark = self._session()
            assert spark is not None  # noqa: S101  it is being given this listener
            self._jlistenerobj = spark.sparkContext._jvm.PythonStreamingQueryListenerWrapper(_Proxy(self))  # type: ignore[union-attr]  # noqa: SLF001
        return self._jlistenerobj

    def started(self, jevent: Any) -> None:  # noqa: ANN401
        """Find the checkpoint of the query. The query's ``start()`` waits."""
        spark = self._session()
        if spark is None:
            return
        query = spark._jsparkSession.streams().get(jevent.id())  # noqa: SLF001
        location = str(query.streamingQuery().resolvedCheckpointRoot())
        run = str(jevent.runId().toString())
        end = partial(stopping.end, query.streamingQuery(), spark)
        name = str(jevent.name() or "")
        version = str(spark._jsparkSession.version())  # noqa: SLF001
        watched = _Watched(location, run, str(jevent.id().toString()), end, name, version)
        stopping.tells(run, query, watched.is_ours)
        why = _may_differ(query)
        watching.began(location, watched.query, name)
        with self._lock:
            self._runs[run] = watched
        watched.show_lag(starts=True)
        if watched.path is not None:
            watched.begin(why)
        else:
            # A store may be out of reach, and the query one that is no concern of ours.
            with contextlib.suppress(WaitTimeoutError):
                background.begin("onceonly-watch", watched.begin, why).result(_STORE_S)

    def asked(self, query: str, *, deciding: bool) -> None:
        """Show that a run is alive in its first epoch, too, which may be long; nothing is reported before its end."""
        with self._lock:
            runs = [each for each in self._runs.values() if each.query == query]
        for each in runs:
            if deciding:
                stopping.deciding(each.run.run)
            with contextlib.suppress(OnceonlyError, OSError):  # whoever asks is about to plan or decide
                each.is_ours()

    def progressed(self, jevent: Any) -> None:  # noqa: ANN401
        """Write down one report."""
        report = json.loads(jevent.progress().json())
        with self._lock:
            watched = self._runs.get(report["runId"])
        if watched is not None and watched.is_ours():
            progress = parse(report)
            watched.show_lag()
            watching.reported(watched.location, report)
            saving.epoch_noted(watched.location, watched.query)
            _record(progress, query=str(report["id"]))
            watched.reports.put(progress)  # a full disk shall not take the metrics along

    def ended(self, jevent: Any) -> None:  # noqa: ANN401
        """The run is over."""
        run = str(jevent.runId().toString())
        with self._lock:
            watched = self._runs.pop(run, None)
        # The last one first; where one fails, the others are gone all the same.
        with contextlib.ExitStack() as steps:
            steps.callback(stopping.told, run)
            if watched is not None:
                steps.callback(watching.ended, watched.location)
                steps.callback(reporting.ended, watched.location)
                steps.callback(saving.ended, watched.location, watched.query)
                steps.callback(watched.close)

    # Spark calls the proxy; these only complete the class.
    def onQueryStarted(self, event: object) -> None: ...  # noqa: N802
    def onQueryProgress(self, event: object) -> None: ...  # noqa: N802
    def onQueryIdle(self, event: object) -> None: ...  # noqa: N802
    def onQueryTerminated(self, event: object) -> None: ...  # noqa: N802


class _Proxy:
    """Receives Java's events as they are."""

    def __init__(self, listener: _Listener) -> None:
        self._listener = listener

    def onQueryStarted(self, jevent: Any) -> None:  # noqa: ANN401, N802
        _safely(self._listener.started, jevent)

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: ANN401, N802
        _safely(self._listener.progressed, jevent)

    def onQueryIdle(self, jevent: Any) -> None:  # noqa: ANN401, N802
        """An idle query has nothing to report."""

    def onQueryTerminated(self, jevent: Any) -> None:  # noqa: ANN401, N802
        _safely(self._listener.ended, jevent)

    class Java:
        """Py4J's way to say which interface this fulfils."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def _may_differ(query: Any) -> str | None:  # noqa: ANN401
    """Say what in the query's plan may give other rows in a replay; None where it cannot be told."""
    try:
        return may_differ(query.streamingQuery().analyzedPlan())
    except Exception as error:  # noqa: BLE001  a plan of a kind that nobody has seen yet; then a replay is only told of
        log.debug("The plan cannot be looked at: %s", error)
        return None


def _safely(call: Callable[[Any], None], jevent: Any) -> None:  # noqa: ANN401
    try:
        call(jevent)
    except Exception as error:  # noqa: BLE001  a query must not fail, nor fill the log, because of its picture
        log.debug("Streaming listener: %s", error)


def _record(progress: Progress, *, query: str) -> None:
    """Put Spark's own time into the event log, beside the steps of the protocol."""
    if not events.enabled():
        return
    events.record(
        "epoch.reported",
        actor="driver",
        query=query,
        epoch=progress.epoch,
        began=datetime.fromisoformat(progress.timestamp).timestamp(),
        took_ms=progress.duration_ms["triggerExecution"],
    )


def parse(report: Mapping[str, Any]) -> Progress:
    """Take from Spark's report what an operator is shown. Pure; nothing of options or paths."""
    return Progress(
        epoch=int(report["batchId"]),
        run=str(report.get("runId", "")),
        timestamp=str(report.get("timestamp", "")),
        rows=int(report.get("numInputRows") or 0),
        duration_ms=_numbers(report.get("durationMs")),
        sources=tuple(
            SourceReport(
                name=_short(source.get("description")),
                start=_text(source.get("startOffset")),
                end=_text(source.get("endOffset")),
                rows=int(source.get("numInputRows") or 0),
                latest=_text(source.get("latestOffset")),
            )
            for source in report.get("sources") or ()
        ),
        operators=tuple(
            OperatorReport(
                name=_short(operator.get("operatorName")),
                rows_total=int(operator.get("numRowsTotal") or 0),
                rows_updated=int(operator.get("numRowsUpdated") or 0),
                memory_bytes=int(operator.get("memoryUsedBytes") or 0),
                custom=_numbers(operator.get("customMetrics")),
            )
            for operator in report.get("stateOperators") or ()
        ),
    )


def _numbers(found: object) -> dict[str, int]:
    return {str(name): int(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _short(description: object) -> str:
    match = _SHORT_NAME.match(str(description or ""))
    return match[0].rpartition(".")[2] if match else "?"


def _text(offset: object) -> str:
    if offset is None:
        return ""
    return offset if isinstance(offset, str) else json.dumps(offset, separators=(",", ":"))
