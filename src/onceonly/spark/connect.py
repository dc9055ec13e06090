"""Sessions of Spark Connect: the driver is a server, often on another machine, and this program is its client.

The formats travel to the server, which plans and decides there as any driver does; functions for ``foreachBatch`` do
so, too, with where their query keeps its checkpoint (``called``). What asks the driver's JVM is left
out: Spark's files are not looked through before a start, what Spark reports is not kept beside the decisions, and a
decision compares Spark's files alone with what it has planned, not Spark's memory too.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import uuid
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceonlyError
from onceonly.settings.query import CHECKPOINT, START, with_checkpoint
from onceonly.spark import asked
from onceonly.stores.access import HADOOP, Hadoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

log = logging.getLogger("onceonly")

_MODULE = "pyspark.sql.connect."
_SESSION = "spark.sql.streaming.checkpointLocation"
_ACCUMULATORS = "Plan observed(__python_accumulator__="
_PARAMETERS = ("path", "format", "outputMode", "partitionBy")
"""Of ``start``, besides options and the query's name."""


def is_client(session: object) -> bool:
    """Say whether a session is one of Spark Connect. Pure."""
    return type(session).__module__.startswith(_MODULE)


def application(spark: SparkSession, program: str) -> str:
    """Name the session on the server, as its queries follow one another there. ``program`` is this process's."""
    return hashlib.sha256(f"{spark.session_id} {program}".encode()).hexdigest()[:12]  # type: ignore[attr-defined,unused-ignore]


def hadoop_of(spark: SparkSession) -> Hadoop:
    """Return what the server's session was told of stores, as far as it shows it to a client. Never fails."""
    try:
        told: dict[str, Any] = dict(spark.conf.getAll)  # type: ignore[call-overload,unused-ignore]
    except Exception as error:  # noqa: BLE001  a server of another make
        log.debug("The server's settings are not known: %s", type(error).__name__)
        return Hadoop()
    return Hadoop({name: str(value) for name, value in told.items() if name.startswith(HADOOP)})


@functools.cache
def install() -> None:
    """Let the client's writers tell our formats what Spark does not. Client; idempotent."""
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.readwriter import DataFrameWriter
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    from onceonly.spark import beside  # PySpark before 4.0 has nothing to make a format of

    asked.wrap_batch(DataFrameWriter)
    send = DataStreamWriter.foreachBatch
    beside.install()
    SparkConnectClient.execute_command_as_iterator = _ending_well(  # type: ignore[method-assign]
        SparkConnectClient.execute_command_as_iterator
    )
    # Nobody answers at the empty address before the dot: the server has no Python of ours that knows its JVM.
    asked.wrap(DataStreamWriter, more=lambda: {START: f".{uuid.uuid4().hex}"}, after=_watch)
    DataStreamWriter.start = _carrying(DataStreamWriter.start, send)  # type: ignore[method-assign]


def _watch(writer: Any, query: Any) -> None:  # noqa: ANN401  PySpark's
    from onceonly.spark import beside

    with contextlib.suppress(AttributeError):  # a PySpark of another make
        proto = writer._write_proto  # noqa: SLF001
        beside.watch(query, {**dict(proto.options), "queryName": proto.query_name})


def _ending_well(real: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Let a run of a declarative pipeline that went well end so, whatever Python has written for it.

    When all is done, the server tells of the accumulators of its Python workers, which PySpark's iterator takes for an
    unknown response: ``spark-pipelines`` would end with a stack trace and the code of a failure.
    """

    @functools.wraps(real)
    def iterate(self: Any, *args: Any, **more: Any) -> Iterator[Any]:  # noqa: ANN401  as PySpark's
        try:
            yield from real(self, *args, **more)
        except ValueError as error:
            if _ACCUMULATORS not in str(error):
                raise

    return iterate


def _carrying(real: Callable[..., Any], send: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function for ``foreachBatch`` know, where it is called, for which query that is."""

    @functools.wraps(real)
    def start(self: Any, *args: Any, **more: Any) -> Any:  # noqa: ANN401  as PySpark's
        function = asked.function_of(self)
        if function is None or not self._write_proto.HasField("foreach_batch"):
            return real(self, *args, **more)
        from onceonly.spark import beside, called, guarding

        options = _options(self, more)
        mode = str(more.get("outputMode") or (args[2:3] or (self._write_proto.output_mode,))[0]).lower()
        users = not guarding.is_ours(function)
        carried = called.Carried(
            function,
            checkpoint=_checkpoint(self, options),
            mode=mode,
            hadoop=hadoop_of(self._session),
            guarded=guarding.guarded if users else None,
        )
        send(self, carried)
        query = real(self, *args, **more)
        if not users:
            beside.watch(query, {**function.query_options, **options})
        return query

    return start


def _options(writer: Any, more: Mapping[str, Any]) -> dict[str, str]:  # noqa: ANN401  PySpark's
    """Return what a writer, and its start, were told of a query."""
    proto = writer._write_proto  # noqa: SLF001
    own = {name: str(value) for name, value in more.items() if name not in _PARAMETERS}
    return {**dict(proto.options), "queryName": proto.query_name, **own}


def _checkpoint(writer: Any, options: Mapping[str, str]) -> str:  # noqa: ANN401  PySpark's
    """Return where Spark will have the query's checkpoint; empty where that cannot be told."""
    with contextlib.suppress(
        OnceonlyError
    ):  # a query without a name; whether it is one of ours is not known yet
        session = writer._session.conf.get(_SESSION, None)  # noqa: SLF001
        found = with_checkpoint(options, session)
        return next((text for name, text in found.items() if name.lower() == CHECKPOINT), "")
    return ""
