"""What is done beside a query of Spark Connect: its client asks for it, and a Python of the server's does it.

On a classic session the driver's Python hears of epochs and of the end. On Spark Connect the client sees the end, and
only the server is sure to reach the checkpoint and its sources. So the client asks, every few seconds, for the schema
of a format (``beside_format``), whose planning looks for a request to end and keeps the group that shows the lag. The
client stops a query that was asked to end as soon as it is idle. One that is busy is ended by its planner, between two
epochs: Spark calls that a failure, the client's ``exception`` and ``awaitTermination`` do not.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
from concurrent.futures import wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onceonly import background, events
from onceonly.durable.sealed import decoder
from onceonly.errors import ConfigurationError, StoppedError, find_error
from onceonly.guards.lag import Keeper
from onceonly.log import lag_state
from onceonly.log.identity import NAME
from onceonly.log.place import log_store, notes_store
from onceonly.log.runs import Run, RunFiles
from onceonly.log.stops import StopFiles
from onceonly.settings.query import (
    CHECKPOINT,
    LAG_GROUP,
    REPORT,
    SOURCE_FORMAT,
    SOURCE_OPTION,
    parse_query,
    with_checkpoint,
)
from onceonly.settings.telemetry import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from onceonly.coordinator.query import QueryCoordinator
    from onceonly.log.stops import Stop
    from onceonly.settings.query import QuerySettings

log = logging.getLogger("onceonly")

FORMAT: Final = "onceonly-beside"
EVERY_S: Final = 4.0
"""How often the client asks: each time costs the server some 50 ms."""
_QUERY, _RUN, _OVER = "query", "run", "over"
_IDLE_MIN: Final = 5
"""How many looks in a row find an idle query without an epoch: one that is busy is not without one for as long."""
_POLL_S: Final = 0.2
_TOLD_S: Final = 5.0
"""How long a program that has waited for the end of its query waits more until that is written down."""
_STOPS_MAX: Final = 3
_SESSION: Final = "spark.sql.streaming.checkpointLocation"

# --- the server's Python -----------------------------------------------------------------------------------

_keepers: dict[tuple[str, str], Keeper] = {}


def answer(given: Mapping[str, str]) -> dict[str, str]:
    """Say whether a run was asked to end, and what is wrong with its group; write down that it is over.

    The server's Python, once a question; idempotent. Raises ``ConfigurationError`` and ``UnavailableError``.
    """
    settings = parse_query(
        {name: text for name, text in given.items() if name == CHECKPOINT or _is_lags(name)}
    )
    run, is_over = decoder(Run).decode(given[_RUN]), _OVER in given
    told = {"asked": "", "lag": "", "next": ""}
    if settings.lag_group:
        key = settings.checkpoint, run.run
        if key not in _keepers:
            _keepers[key] = Keeper(settings, given[_QUERY], lambda: None)
        _keepers[key].moved()
        if is_over:
            _keepers.pop(key).close()
        state = lag_state.read(notes_store(settings.checkpoint))
        told |= {"lag": state.told, "next": state.next_step} if state is not None else {}
    place = log_store(settings.checkpoint)
    if place.get(NAME) is not None:  # its planner makes the log, in the first epoch
        stops, runs = StopFiles(place), RunFiles(place)
        stop = stops.of_id(run.run)
        if stop is not None:
            told["asked"] = stop.sentence
            _see(stops, stop)
        if is_over:
            _note_end(runs, run)
    return told


def _is_lags(name: str) -> bool:
    return name in {LAG_GROUP, SOURCE_FORMAT} or name.startswith(SOURCE_OPTION)


def _see(stops: StopFiles, stop: Stop) -> None:
    if not stop.seen:
        stops.put(replace(stop, seen=events.stamp().at))


def _note_end(runs: RunFiles, run: Run) -> None:
    if runs.of(run.run) is None:
        runs.put(replace(run, ended=events.stamp().at))


def requests(checkpoint: str) -> list[Stop]:
    """Return the newest requests to end. Planner, once an epoch. Raises ``UnavailableError``."""
    return StopFiles(log_store(checkpoint)).newest(_STOPS_MAX)


def refuse_if_asked(asked: Sequence[Stop], checkpoint: str, epoch: int, before: Run | None) -> None:
    """Begin no epoch of a run that was asked to end, and write down that it has ended. Planner, before each claim.

    ``before`` is the run that has decided the epoch before, None where that was another application's. Raises
    ``StoppedError``, and ``UnavailableError``.
    """
    stop = next((each for each in asked if before is not None and each.run == before.run), None)
    if before is None or stop is None:
        return
    place = log_store(checkpoint)
    runs = RunFiles(place)
    if runs.of(before.run) is not None:
        return  # that run is over, and this is another
    _see(StopFiles(place), stop)
    _note_end(runs, before)
    raise StoppedError(
        f"the {stop.sentence}, and has ended before chk-{epoch} was begun",
        next_step="start the query when it shall go on",
    )


def end_if_asked(coordinator: QueryCoordinator, epoch: int, application: str) -> None:
    """Begin no epoch of a query by ``foreachBatch`` that was asked to end. Once an epoch; raises as above."""
    checkpoint = coordinator.settings.checkpoint
    asked = requests(checkpoint)
    if asked:
        refuse_if_asked(asked, checkpoint, epoch, coordinator.run_before(epoch, application))


def require_driver(query: QuerySettings, start: str) -> None:
    """See that there is a Python of the driver's that tells of the query, where that is asked for.

    ``start`` is empty before its dot where there is none. Planner, or a function on Spark Connect; pure. Raises
    ``ConfigurationError``.
    """
    if start.partition(".")[0]:
        return
    if query.report:
        raise _no_driver(f"option {REPORT!r} is", "leave it out; onceonly report CHECKPOINT writes the same")
    if query.telemetry.is_asked:
        raise _no_driver(
            f"options {', '.join(NAMES)} are",
            "leave them out; onceonly metrics show CHECKPOINT tells the metrics from the log",
        )


def _no_driver(what: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(
        f"the {what} for the Python of Spark's driver, which did not start this query: it is one of Spark Connect, or "
        "of another language",
        next_step=next_step,
    )


# --- the client --------------------------------------------------------------------------------------------

_watches: dict[str, Future[None]] = {}
"""The watches of this process, by run."""
_asked: dict[str, str] = {}
"""Who has asked a run to end, in a sentence, by run."""


def watch(query: Any, options: Mapping[str, str]) -> None:  # noqa: ANN401  PySpark's own
    """Ask for a query until it is over, in a thread. Client, once a start; never fails.

    ``options`` are those of its writer, by Spark's names.
    """
    with contextlib.suppress(Exception):  # a PySpark of another make: the query works as well
        given = with_checkpoint(dict(options), query._session.conf.get(_SESSION, None))  # noqa: SLF001
        lower = {name.lower(): text for name, text in given.items()}
        asked = {name: text for name, text in lower.items() if name == CHECKPOINT or _is_lags(name)}
        run = Run(
            run=str(query.runId),
            began=events.stamp(),
            name=query.name or "",
            spark=str(query._session.version),  # noqa: SLF001
        )
        asked |= {_QUERY: str(query.id), _RUN: msgspec.json.encode(run).decode()}
        _watches[run.run] = background.begin("onceonly-beside", _Watch(query, asked).keep)


class _Watch:
    """Asks for one run of a query."""

    def __init__(self, query: Any, asked: Mapping[str, str]) -> None:  # noqa: ANN401  PySpark's own
        self._query = query
        self._asked = asked
        self._told = ""

    def keep(self) -> None:
        try:
            while not self._is_over(EVERY_S):
                if self._ask():
                    self._end()
            self._ask(over=True)
        except Exception as error:  # noqa: BLE001  the session may be gone, and a query must not fail because of this
            log.debug("Nothing is asked for any more beside the query: %s", type(error).__name__)

    def _ask(self, *, over: bool = False) -> bool:
        """Say whether it shall end."""
        reader = self._query._session.read.format(FORMAT).options(**self._asked)  # noqa: SLF001
        try:
            [field] = (reader.option(_OVER, "1") if over else reader).load().schema.fields
            told = json.loads(field.name)
        except Exception as error:
            if self._query._session.is_stopped:  # noqa: SLF001
                raise
            log.debug("The server does not say how it stands beside the query: %s", type(error).__name__)
            return False
        if told["lag"] != self._told:
            self._told = told["lag"]
            words = (self._query.id, self._asked[LAG_GROUP])
            if self._told:
                log.warning(
                    "Query %s: the group %s does not show its lag: %s. Next: %s.",
                    *words,
                    self._told.rstrip("."),
                    told["next"],
                )
            else:
                log.info("Query %s: the group %s shows its lag again.", *words)
        if told["asked"] and self._query.runId not in _asked:
            _asked[self._query.runId] = told["asked"]
            log.warning("The %s; it ends after the epoch in flight.", told["asked"])
        return bool(told["asked"])

    def _end(self) -> None:
        """Stop the query where it has no epoch in flight, and return when it is over: its planner may end it, too."""
        idle = 0
        while not self._is_over(_POLL_S):
            idle = 0 if self._query.status["isTriggerActive"] else idle + 1
            if idle >= _IDLE_MIN:
                self._query.stop()

    def _is_over(self, within_s: float) -> bool:
        """Wait so long for the end of the query, which is told at once."""
        try:
            return bool(_await(self._query, within_s))
        except Exception:  # noqa: BLE001  it has failed, or it cannot be told
            return not _is_active(self._query)


def told_to_end(query: Any) -> str:  # noqa: ANN401  PySpark's own
    """Say that this client has heard that a query's run was asked to end, and by whom; else empty."""
    return _asked.get(str(query.runId), "")


_await: Callable[..., Any]
_is_active: Callable[[Any], bool]


@functools.cache
def install() -> None:
    """Let the client's queries that were asked to end be no failures, and be over when that is told. Idempotent."""
    from pyspark.sql.connect.streaming.query import StreamingQuery

    global _await, _is_active
    _await, _is_active = StreamingQuery.awaitTermination, vars(StreamingQuery)["isActive"].fget
    real_exception: Any = StreamingQuery.exception

    @functools.wraps(_await)
    def awaited(self: Any, timeout: int | None = None) -> bool | None:  # noqa: ANN401  PySpark's own
        with _until_told(self):
            try:
                done: bool | None = _await(self, timeout)
            except Exception as error:
                if not isinstance(find_error(error), StoppedError):
                    raise
                done = None if timeout is None else True
        return done

    def active(self: Any) -> bool:  # noqa: ANN401  PySpark's own
        is_active = bool(_is_active(self))
        if not is_active:
            with _until_told(self):
                pass
        return is_active

    @functools.wraps(real_exception)
    def exception(self: Any) -> Any:  # noqa: ANN401  PySpark's own
        error = real_exception(self)
        return None if error is not None and isinstance(find_error(error), StoppedError) else error

    StreamingQuery.awaitTermination = awaited  # type: ignore[method-assign]
    StreamingQuery.isActive = property(active)  # type: ignore[method-assign,assignment]
    StreamingQuery.exception = exception  # type: ignore[method-assign]
    atexit.register(lambda: wait(list(_watches.values()), timeout=_TOLD_S))


@contextlib.contextmanager
def _until_told(query: Any) -> Iterator[None]:  # noqa: ANN401  PySpark's own
    """Wait, however the block ends, until the end of a query that is over is written down; not for long."""
    try:
        yield
    finally:
        watching = _watches.get(str(query.runId))
        with contextlib.suppress(Exception):  # the session may be gone
            if watching is not None and not watching.done() and not _is_active(query):
                wait([watching], timeout=_TOLD_S)
