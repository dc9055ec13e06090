"""Sessions of Spark Connect: the driver is a server, often on another machine, and this program is its client.

The formats travel to the server, which plans and decides there as any driver does. What asks the driver's JVM is left
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

from onceonly.errors import SetupError
from onceonly.settings.query import START
from onceonly.spark import asked
from onceonly.stores.access import HADOOP, Hadoop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("onceonly")

_MODULE = "pyspark.sql.connect."


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
    from pyspark.sql.connect.readwriter import DataFrameWriter
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    from onceonly.spark import beside  # PySpark before 4.0 has nothing to make a format of

    asked.wrap_batch(DataFrameWriter)
    beside.install()
    # Nobody answers at the empty address before the dot: the server has no Python of ours that knows its JVM.
    asked.wrap(DataStreamWriter, more=lambda: {START: f".{uuid.uuid4().hex}"}, after=_watch)


def _watch(writer: Any, query: Any) -> None:  # noqa: ANN401  PySpark's
    from onceonly.spark import beside

    with contextlib.suppress(AttributeError):  # a PySpark of another make
        proto = writer._write_proto  # noqa: SLF001
        beside.watch(query, {**dict(proto.options), "queryName": proto.query_name})


def refuse_function(session: object) -> None:
    """See that a function for ``foreachBatch`` runs where the driver is. Raises ``SetupError`` on Spark Connect.

    There it runs in a process beside the driver, whose jobs do not tell for which epoch they run.
    """
    if is_client(session):
        raise SetupError(
            "onceonly.sink and onceonly.epoch cannot write in a foreachBatch function on Spark Connect: its jobs do "
            "not tell for which epoch they run",
            next_step='use the sink as a format, .format("onceonly.kafka"), which works there; or run the job with a '
            "classic session",
        )
