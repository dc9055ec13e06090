"""The queries of this process that are told of: what their starts, Spark's reports and their logs say. Driver's Python.

A look at a log is made when somebody asks (Prometheus, a file that is due), in a thread of its own: a store that hangs
holds up neither the query nor the answer, which then says so.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import logging
import math
import threading
import time
from concurrent.futures import TimeoutError as WaitTimeoutError
from concurrent.futures import wait
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceonly import background
from onceonly.errors import OnceonlyError
from onceonly.log.actions import ActionFiles
from onceonly.log.place import home_of, log_store
from onceonly.model import seconds_of
from onceonly.settings.telemetry import TelemetrySettings
from onceonly.telemetry import lag, spans
from onceonly.telemetry.exposition import Endpoint, Registry
from onceonly.telemetry.figures import Observed, Operator
from onceonly.telemetry.following import Follower
from onceonly.telemetry.otlp import tracer
from onceonly.telemetry.starts import count_start
from onceonly.telemetry.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from onceonly.model import Link, Receipt
    from onceonly.settings.query import QuerySettings
    from onceonly.settings.savepoints import Keeping

log = logging.getLogger("onceonly")

_LOOK_S: Final = 5.0
_STAMP_S: Final = 0.001
"""A stamp is cut to milliseconds."""
_SAVEPOINT_S: Final = 60.0
_FILE_S: Final = 10.0


class Watched:
    """One query, over all its runs in this process. Any thread."""

    def __init__(self, location: str) -> None:
        self.name = ""
        self.asked = TelemetrySettings()
        self.limit_s: float | None = None
        self.savepoints: Keeping | None = None
        self.is_running = False
        self._query = ""
        self._location = location
        self._lock = threading.RLock()
        self._looking: Future[None] | None = None
        self._lags: dict[str, lag.Lag] = {}
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._began = time.time()
        self._follower = Follower(self._location, settled=self._trace)
        self._seen: tuple[Totals, tuple[Link, ...], int] = (Totals(), (), 0)
        self._lags = {}
        self._operators: dict[str, Operator] = {}
        self._spark_s: dict[str, float] = {}
        self._savepoint_at = 0.0
        self._savepoint_due = 0.0

    def begin(self, query: str, name: str) -> None:
        """Take note that a run has begun. The checkpoint may have been made anew since the one before."""
        with self._lock:
            self._query, self.name, self.is_running, self._looking = query, name, True, None
            self._begin_anew()

    def report(self, report: Mapping[str, Any]) -> None:
        """Take what Spark reports of an epoch."""
        began = datetime.fromisoformat(str(report["timestamp"])).timestamp()
        with self._lock:
            for source, position in lag.positions(report).items():
                self._lags.setdefault(source, lag.Lag()).report(began, position)
            self._operators = {
                str(number): Operator(
                    rows=int(each.get("numRowsTotal") or 0),
                    memory_bytes=int(each.get("memoryUsedBytes") or 0),
                )
                for number, each in enumerate(report.get("stateOperators") or ())
            }
            self._spark_s = {
                str(name): float(took_ms) / 1000 for name, took_ms in (report.get("durationMs") or {}).items()
            }
            is_counted = bool(self._seen[2])
        if self.asked.traces or not is_counted:
            self.look()

    def end(self) -> None:
        """Take note that the run is over."""
        with self._lock:
            self.is_running = False
        for _ in range(2 if self.asked.is_asked else 0):  # one that had begun may have missed the last epoch
            wait([self.look()], timeout=_LOOK_S)
        if self.asked.traces:
            tracer().flush()

    def observe(self, looking: Future[None], deadline: float) -> Observed:
        """Say what is known once a look at the log is over, or by the deadline of the monotonic clock."""
        try:
            looking.result(max(0.0, deadline - time.monotonic()))
            is_readable = True
        except (OnceonlyError, WaitTimeoutError) as error:
            log.debug("Metrics: %s", error)
            is_readable = False
        with self._lock:
            totals, chain, starts = self._seen
            return Observed(
                name=self.name,
                now=time.time(),
                totals=totals,
                chain=chain,
                limit_s=self.limit_s,
                is_running=self.is_running,
                began=self._began,
                starts=starts,
                readable=is_readable,
                lags=dict(self._lags),
                operators=dict(self._operators),
                spark_s=dict(self._spark_s),
                savepoint_at=self._savepoint_at,
                savepoint_every_s=self.savepoints.every_s if self.savepoints else None,
            )

    def look(self) -> Future[None]:
        """Begin a look at the log, unless there is one that has not come back."""
        with self._lock:
            if self._looking is None or self._looking.done():
                self._looking = background.begin("onceonly-metrics", self._look_now, self._follower)
            return self._looking

    def _look_now(self, follower: Follower) -> None:
        follower.look()
        starts = self._seen[2] or count_start(self._location, began=self._began).count
        savepoint_at = self._newest_savepoint()
        with self._lock:
            if follower is self._follower:
                self._savepoint_at = savepoint_at
                self._seen = (copy.deepcopy(follower.totals), follower.chain, starts)

    def _newest_savepoint(self) -> float:
        """Return when the newest savepoint was made. Each manifest is read, so not at each look."""
        if self.savepoints is None or time.monotonic() < self._savepoint_due:
            return self._savepoint_at
        self._savepoint_due = time.monotonic() + _SAVEPOINT_S
        from onceonly.savepoints import place as places

        try:
            return places.newest_at(self.savepoints.place, self._query, now=time.time())
        except OnceonlyError as error:
            log.debug("Metrics: %s", error)
            return self._savepoint_at

    def _trace(self, chain: tuple[Link, ...], receipt: Receipt) -> None:
        """Tell of an epoch that this run has settled; or an operator, while the job was down."""
        by_hand = spans.is_by_hand(chain, receipt)
        if self.asked.traces and (seconds_of(receipt.stamp) > self._began - _STAMP_S or by_hand):
            actions = ActionFiles(log_store(self._location)).newest() if by_hand else []
            tracer().export(spans.of_epoch(self._query, self.name, chain, receipt, actions))


class MetricsFile:
    """The file of a job that is gone before anybody asks it. Driver, any thread."""

    def __init__(self, path: str, observe: Callable[[], list[Observed]]) -> None:
        self._path = Path(path)
        self._registry = Registry(observe)
        self._lock = threading.Lock()
        self._begun = -math.inf
        self._is_over = False

    def write(self, *, every_s: float) -> None:
        """Write it in a thread, unless that was done less than ``every_s`` ago. Does not wait."""
        now = time.monotonic()
        if now - self._begun >= every_s:
            self._begun = now
            background.begin("onceonly-metrics", self._write)

    def end(self) -> None:
        """Write it here and now, for the last time."""
        self._write()
        with self._lock:
            self._is_over = True  # a thread that is broken off would leave half a file behind

    def _write(self) -> None:
        with self._lock:
            if self._is_over:
                return
            try:
                self._registry.write(self._path)
            except OnceonlyError as error:
                log.warning("Metrics: %s", error.what)


class _Watching:
    """All queries of this process, by the home of their checkpoints; and what serves and writes their metrics."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, Watched] = {}
        self._endpoint: Endpoint | None = None
        self._files: dict[str, MetricsFile] = {}

    def has(self, location: str) -> bool:
        with contextlib.suppress(OnceonlyError):  # an address that is refused, later
            return home_of(location) in self._queries
        return False

    def of(self, location: str) -> Watched:
        with self._lock:
            return self._queries.setdefault(home_of(location), Watched(location))

    def free_name(self, watched: Watched, name: str, query: str) -> str:
        """Return the name, unless a living query has it; one that is over gives it up."""
        with self._lock:
            others = [each for each in self._queries.values() if each is not watched and each.name == name]
        for each in others:
            if not each.is_running:
                each.name = ""
        return query if not name or any(each.is_running for each in others) else name

    def require(self, asked: TelemetrySettings) -> None:
        """Get ready for what is asked. Raises a typed error."""
        if asked.traces:
            tracer()
        if asked.file:
            with self._lock:
                if asked.file not in self._files:
                    self._files[asked.file] = MetricsFile(asked.file, partial(self._of_file, asked.file))
        if asked.port is not None:
            with self._lock:
                endpoint = self._endpoint = self._endpoint or Endpoint(Registry(self._served))
            endpoint.open(asked.host, asked.port)

    def served_at(self) -> str:
        endpoint = self._endpoint
        return f"http://{endpoint.host}:{endpoint.port}/metrics" if endpoint else ""

    def file(self, path: str) -> MetricsFile:
        return self._files[path]

    def end(self) -> None:
        """End what is watched of every query as the process ends: Spark may not have said that it is over."""
        for query in [each for each in list(self._queries.values()) if each.is_running]:
            query.end()
        for file in list(self._files.values()):
            file.end()

    def _served(self) -> list[Observed]:
        return self._observed(lambda asked: asked.port is not None)

    def _of_file(self, path: str) -> list[Observed]:
        return self._observed(lambda asked: asked.file == path)

    def _observed(self, wanted: Callable[[TelemetrySettings], bool]) -> list[Observed]:
        with self._lock:
            found = [each for each in self._queries.values() if each.name and wanted(each.asked)]
        # All look at once: of many stores that hang, the answer waits as long as of one.
        looks = [each.look() for each in found]
        deadline = time.monotonic() + _LOOK_S
        return [each.observe(look, deadline) for each, look in zip(found, looks, strict=True)]


_watching = _Watching()
atexit.register(_watching.end)


def ask(settings: QuerySettings) -> None:
    """Take what is asked for a query, before its first epoch; idempotent. Driver.

    Raises ``SetupError`` that names a missing extra, ``ConfigurationError`` where a port cannot be had.
    """
    asked = settings.telemetry
    if asked.is_asked:
        _watching.require(asked)
    elif not _watching.has(settings.checkpoint):
        return
    watched = _watching.of(settings.checkpoint)
    watched.asked, watched.limit_s = asked, settings.commit_timeout_s
    watched.savepoints = settings.savepoints


def served_at() -> str:
    """Return the address of this process' metrics, empty where it serves none. Driver."""
    return _watching.served_at()


def began(location: str, query: str, name: str) -> None:
    """Take note that a run of a query has begun. Driver."""
    watched = _watching.of(location)
    watched.begin(query, _watching.free_name(watched, name, query))


def reported(location: str, report: Mapping[str, Any]) -> None:
    """Take Spark's report of an epoch. Driver; does not wait."""
    watched = _watching.of(location)
    if watched.asked.is_asked:
        watched.report(report)
        if watched.asked.file:
            _watching.file(watched.asked.file).write(every_s=_FILE_S)


def ended(location: str) -> None:
    """Take note that a run is over; write its file, and send its traces, for the last time. Driver."""
    watched = _watching.of(location)
    watched.end()
    if watched.asked.file:
        _watching.file(watched.asked.file).write(every_s=0)
