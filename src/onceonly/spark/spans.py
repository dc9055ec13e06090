"""What Spark reads: in the epoch that it runs, by its own memory, and from which sources, by the query's plan.

The first is held against ``offsets/N``, which another driver may have written over since Spark has read or written it.
The driver's Python asks the JVM. The processes that plan and commit on the format way have no way to it, so they ask
the driver's Python by a Unix socket of its machine, whose name comes with the options of the query. Where nobody
answers (another system than Linux, a Spark of another make, a Python that is busy for long), the files alone count.
What sources are told may hold secrets: it goes from one process of a user's to another, and nowhere else.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import struct
import threading
import uuid
from typing import Any, Protocol, TypeVar

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.guards.source import Source
from onceonly.model import Span
from onceonly.spark.plan_sources import sources_of

log = logging.getLogger("onceonly")
T = TypeVar("T")

_TIMEOUT_S = 2.0
_QUERY_BYTES_MAX = 100
_SOURCES = "sources "
"""A word before a query's id that asks for its sources."""
_DECIDING = "deciding "
"""A word before it that tells that the tasks of its epoch are over, and asks what it reads."""
_CREDENTIALS = struct.Struct("3i")  # process, user, group: unix(7)


class Hears(Protocol):
    """Hears of a question about a query."""

    def __call__(self, query: str, *, deciding: bool) -> None: ...


asked: list[Hears] = []
"""Called with the id of a query that is asked about, one of ours, whose log is there, and whether it is about to decide
an epoch. They raise nothing."""


def read(query: str, *, deciding: bool = False) -> Span | None:
    """Say what a query of this process reads in the epoch that it runs; None where it cannot be told. Driver.

    ``deciding`` says that the tasks of that epoch are over: a query that is to end is marked as ended then.
    """
    for hear in asked:
        hear(query, deciding=deciding)
    try:
        from pyspark.sql import SparkSession

        streams, key = _listed(SparkSession._instantiatedSession, query)  # noqa: SLF001  all sessions share one list
        epoch, starts, ends = _running(streams.get(key))
        return Span(epoch=int(epoch), starts=_texts(starts), ends=_texts(ends))
    except Exception as error:  # noqa: BLE001  another version of Spark may have it elsewhere
        log.debug("What Spark reads is not known: %s", error)
        return None


def read_sources(query: str) -> list[Source] | None:
    """Return the sources in the plan of a query of this process; None where it cannot be told. Driver."""
    try:
        from pyspark.sql import SparkSession

        streams, key = _listed(SparkSession._instantiatedSession, query)  # noqa: SLF001  all sessions share one list
        return sources_of(streams.get(key).analyzedPlan())
    except Exception as error:  # noqa: BLE001  another version of Spark may have it elsewhere
        log.debug("The sources of the query are not known: %s", type(error).__name__)
        return None


def ask(address: str, query: str, *, deciding: bool = False) -> Span | None:
    """Ask the driver at its address, as ``read`` does. Planner or commit process; None where it does not answer."""
    return _asked(address, f"{_DECIDING if deciding else ''}{query}", Span)


def ask_sources(address: str, query: str) -> list[Source] | None:
    """Ask the driver at its address for the sources of a query. Planner; None where it does not answer."""
    return _asked(address, f"{_SOURCES}{query}", list[Source])


def _asked(address: str, question: str, into: type[T]) -> T | None:
    if not address:
        return None
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_TIMEOUT_S)
            line.connect(_place(address))
            line.sendall(f"{question}\n".encode())
            with line.makefile("rb") as answer:
                kind: Any = into | None
                told: T | None = decoder(kind).decode(answer.read())
                return told
    except (OSError, msgspec.DecodeError) as error:
        log.debug("The driver does not say what Spark reads: %s", type(error).__name__)
        return None


@functools.cache
def serve() -> str:
    """Answer whoever asks, in a thread, for the life of this process; return the address. Driver, idempotent.

    Empty where there are no such sockets.
    """
    address = uuid.uuid4().hex
    try:
        server = socket.socket(socket.AF_UNIX)
        server.bind(_place(address))
        server.listen()
    except (OSError, AttributeError) as error:
        log.debug("Nobody can ask what Spark reads: %s", error)
        return ""
    threading.Thread(target=_serve, args=(server,), name="onceonly-spans", daemon=True).start()
    return address


def _serve(server: socket.socket) -> None:
    # One after the other, so that one connection to the JVM does.
    while True:
        try:
            line, _ = server.accept()
        except OSError as error:
            log.debug("Nobody can ask what Spark reads any more: %s", error)
            return
        with line, contextlib.suppress(OSError, UnicodeDecodeError):
            _answer(line)


def _answer(line: socket.socket) -> None:
    line.settimeout(_TIMEOUT_S)
    peer = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(peer)[1] == os.getuid():
        with line.makefile("rb") as question:
            text = question.readline(_QUERY_BYTES_MAX).decode().strip()
        query = text.removeprefix(_SOURCES)
        told = text.removeprefix(_DECIDING)
        found = read(told, deciding=told != text) if query == text else read_sources(query)
        line.sendall(msgspec.json.encode(found))


def _place(address: str) -> str:
    # Abstract: no file is left behind by a process that is killed.
    return f"\0onceonly-{address}"


@functools.lru_cache(maxsize=32)
def _listed(session: Any, query: str) -> tuple[Any, Any]:  # noqa: ANN401  a classic session, Java objects
    """Return Spark's list of queries that run, and what one of them has in it for its name."""
    streams = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001
    return streams, session._jvm.java.util.UUID.fromString(query)  # noqa: SLF001


def _running(stream: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401  Java objects
    """Return the number of the epoch that runs, where it starts and where it ends."""
    try:
        running = stream.getLatestExecutionContext()
    except Exception:  # noqa: BLE001  Spark before 4.0 has it all in the query itself; so Py4J's "no such method"
        return stream.currentBatchId(), stream.committedOffsets(), stream.availableOffsets()
    return running.batchId(), running.startOffsets(), running.endOffsets()


def _texts(progress: Any) -> tuple[str, ...]:  # noqa: ANN401  Spark's map of sources to offsets
    found = []
    offsets = progress.valuesIterator()
    while offsets.hasNext():
        found.append(str(offsets.next().json()))
    return tuple(found)
