"""``onceonly.supervise``: starts queries again when they fail, as the user's restart strategy says.

In-process: what dies with the driver's process is started again by whoever runs that process.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from onceonly.errors import (
    TAKEN_OVER,
    OnceonlyError,
    StoppedError,
    SupersededError,
    UnavailableError,
    find_error,
)
from onceonly.log import owners as log_owners
from onceonly.log.actions import OPERATOR
from onceonly.settings.restart import ExponentialDelay
from onceonly.spark.application import application
from onceonly.spark.asked import no_format
from onceonly.spark.gone import gone, session_gone
from onceonly.spark.stopping import asked_to_end

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from onceonly.ports import Clock
    from onceonly.settings.restart import RestartStrategy

    Build: TypeAlias = Callable[[], StreamingQuery | Sequence[StreamingQuery]]

log = logging.getLogger("onceonly")

_POLL_S = 0.1
# All that Spark says where the Python process of a source has died; in a longer message, it is of something else.
_SOURCE_ENDED = re.compile(
    r"terminated with exception: (EOF|Broken pipe|Connection reset)(?= SQLSTATE|\s*$)", re.MULTILINE
)
_NOT_UP = "Python worker failed to connect back"
_TRACE_BEGINS = "Traceback (most recent call last):"
_TRACE = re.compile(re.escape(_TRACE_BEGINS) + r"\n(?:[ \t].*\n|\n)+(\S.*)")
"""A trace of Python in a text, up to the first line of the error itself."""


def supervise(
    *build_queries: Build, restart: RestartStrategy | None = None, clock: Clock | None = None
) -> None:
    """Run queries until they end, and start them again when they fail. Driver; blocks.

    Each ``build_query()`` starts a query and returns it; it is called again for each restart, so it must build
    everything anew (sources, ``onceonly.sink``). Several builders are watched side by side, each with a history
    of its own: one fails and restarts while the others go on. A builder that returns several queries makes them
    one group: when one fails, all are stopped and built again.

    Returns when all queries have ended by themselves (``stop()``, ``availableNow``, ``onceonly stop``). One that fails
    after ``onceonly stop`` has asked it to end is not started again. A failure that no restart
    can heal (configuration, in doubt, superseded, a damaged log, a record that is refused, …) stops all of
    them and is raised as its typed error, without Spark's stack trace. Every other failure is answered by
    ``restart`` (default ``ExponentialDelay()``); when it gives up, the last failure is raised in the same way,
    or as Spark's own exception where it did not come from onceonly. What a first build raises is raised at once, and so
    is ``UnavailableError`` where Spark itself is gone: the session was stopped and a builder uses it, or its JVM has
    died.
    """
    watch: Clock = clock or time
    jobs = [_Job(build, restart or ExponentialDelay(), watch) for build in build_queries]
    try:
        _watch(jobs, watch)
    except Exception as error:
        known = gone(error)
        if known is None:
            raise
        raise known from None
    finally:
        for job in jobs:
            job.stop()


def _watch(jobs: Sequence[_Job], watch: Clock) -> None:
    for job in jobs:
        job.start()
    while True:
        # Every job takes its turn, though an earlier one may still run.
        running = [job.turn() for job in jobs]
        if not any(running):
            return
        watch.sleep(_POLL_S)


class _Job:
    """One builder, the queries it built last, and the failures so far."""

    def __init__(self, build: Build, restart: RestartStrategy, clock: Clock) -> None:
        self._build = build
        self._restart = restart
        self._clock = clock
        self._queries: tuple[StreamingQuery, ...] = ()
        self._failures: list[float] = []
        self._failed: tuple[StreamingQuery, ...] = ()
        self._due: float | None = None

    def start(self) -> None:
        built = self._build()
        self._queries = tuple(built) if isinstance(built, Sequence) else (built,)

    def stop(self) -> None:
        for query in self._queries:
            try:
                if query.isActive:
                    query.stop()
            except Exception as error:
                if gone(error) is None:  # else it has ended with its session
                    raise

    def turn(self) -> bool:
        """Look at the queries once; restart them if it is time. Say whether anything is still to come."""
        if self._due is not None:
            if self._clock.monotonic() < self._due:
                return True
            self._due = None
            if self._shall_end(self._failed):
                return False
            try:
                self.start()
            except Exception as error:
                if session_gone(error) is not None:  # no later start finds another one
                    raise
                self._fail(error)
            return True
        ended = [query for query in self._queries if not query.isActive]
        failures = (query.exception() for query in ended)
        failure = next((failure for failure in failures if failure is not None), None)
        if failure is not None:
            self._fail(failure)
            return True
        return len(ended) < len(self._queries)

    def _fail(self, failure: BaseException) -> None:
        self.stop()
        queries, self._queries = self._queries, ()
        known = _known(failure)
        # What another driver fences, overwrites or goes on after looks like many things: an older checkpoint, too.
        known = next(filter(None, map(superseded, queries)), known)
        healable = known is None or known.restartable
        if isinstance(
            known, StoppedError
        ):  # of a session whose program hears of no request: that is no failure
            log.warning("Not started again: %s.", known.what)
            return
        if healable and self._shall_end(queries):
            log.warning("It had failed before it ended: %s", _first_line(known or failure))
            return
        now = self._clock.monotonic()
        self._failures.append(now)
        self._failed = queries
        # Jitter keeps queries apart; nobody gains from guessing it.
        delay = self._restart.next_delay(self._failures, draw=random.random()) if healable else None  # noqa: S311
        if delay is None:
            raise (known or failure) from None
        log.warning(
            "Restart %d in %.1f s after: %s", len(self._failures), delay, _first_line(known or failure)
        )
        self._due = now + delay

    def _shall_end(self, queries: Sequence[StreamingQuery]) -> bool:
        """Say whether an operator has asked one of these to end: then none is started again."""
        stop = next(filter(None, map(asked_to_end, queries)), None)
        if stop is not None:
            log.warning("Not started again: %s.", stop)
        return stop is not None


def superseded(query: StreamingQuery) -> SupersededError | None:
    """See in its decision log whether another application has taken over a query that has failed. Driver; only looks.

    None where it cannot be told: the next start looks again before it does anything.
    """
    try:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        location = str(query._jsq.streamingQuery().resolvedCheckpointRoot())  # noqa: SLF001
        if session is None:
            return None
        owners, mine = log_owners(location), application(session)
    except Exception as error:  # noqa: BLE001  a look more than is needed
        log.debug("Whether the query was taken over: %s", error)
        return None
    if mine not in owners or owners[-1] == mine:
        return None
    other = "an operator's command" if owners[-1].startswith(OPERATOR) else "another Spark application"
    return SupersededError(
        f"Query {query.id}: {other} ({owners[-1]}) has taken the checkpoint {location} over; this one has stopped.",
        next_step=TAKEN_OVER,
    )


def explain(error: BaseException | str) -> str:
    """Say what an exception of a query means: onceonly's message and next step, without a stack trace.

    Anywhere; pure. For an exception that did not come from onceonly, its first line, and what Python code raised; where
    Spark has not found a format of onceonly's, the name that may be meant.
    """
    known = _known(error) or no_format(str(error))
    return f"{known.code}: {known.what}\nNext: {known.next_step}" if known else _first_line(error)


def _known(error: BaseException | str) -> OnceonlyError | None:
    """Return the onceonly error in an exception of a query, or what a bare word of Spark's means; else None."""
    text = str(error)
    if find_error(error) is None and _NOT_UP in text:
        return UnavailableError(
            f"a Python process has not come up in the time that Spark waits for it: {_NOT_UP}",
            next_step="start the query again, as onceonly.supervise does; if it comes again, see that the machine is "
            "not too busy, and that the Python that PYSPARK_PYTHON names can be started",
        )
    known = find_error(error) or gone(error)
    found = _SOURCE_ENDED.search(text)
    if known is not None or found is None:
        return known
    return UnavailableError(
        f"the Python process of a source has died: Spark says {found[1]}, and no more",
        next_step="start the query again, as onceonly.supervise does; if it comes again, look for that process in the "
        "driver's log and the kernel's (out of memory)",
    )


def _first_line(error: BaseException | str) -> str:
    if isinstance(error, OnceonlyError):
        return error.what
    text = str(error).strip()
    lines = text.splitlines()
    raised = _TRACE.findall(text)
    if raised:  # Spark's first line ends where the trace begins, and says nothing of it
        return f"{lines[0].removesuffix(_TRACE_BEGINS).rstrip()} {raised[-1]}"
    return lines[0] if lines else type(error).__name__
