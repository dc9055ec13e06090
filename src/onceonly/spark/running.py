"""What Spark's own list says of the query that a foreachBatch function is called by. Driver's Python.

Local properties are not asked where users may set them: a job group is theirs as much as Spark's.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.log.place import home_of
from onceonly.settings.query import with_checkpoint
from onceonly.spark import called
from onceonly.spark.task import QUERY_PROPERTY, RUN_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

log = logging.getLogger("onceonly")


def run_of(df: DataFrame) -> str:
    """Return the run of the query; empty where Spark does not say."""
    if called.now() is not None:
        return called.run_of(df)
    job_group = df.sparkSession.sparkContext.getLocalProperty(RUN_PROPERTY)
    return _told(df, lambda stream: stream.runId()) or job_group or ""


def output_mode(df: DataFrame) -> str:
    """Return the query's output mode in lower case; empty where Spark does not say."""
    call = called.now()
    if call is not None:
        return call.mode
    return _told(df, lambda stream: stream.outputMode().toString()).lower()


def checkpoint_elsewhere(df: DataFrame, location: str) -> str:
    """Say where Spark keeps the query's checkpoint; nothing where that is ``location``, or Spark does not say."""
    call = called.now()
    there = call.checkpoint if call else _told(df, lambda stream: stream.resolvedCheckpointRoot())
    with contextlib.suppress(ConfigurationError):  # an address that only Java knows
        there = "" if not there or home_of(there) == home_of(location) else there
    return f"; Spark keeps the query's at {there}" if there else ""


def _told(df: DataFrame, read: Callable[[Any], object]) -> str:
    try:
        return str(read(_stream(df)))
    except Exception as error:  # noqa: BLE001  another version of Spark may have it elsewhere
        log.debug("Spark's list does not say it of a query: %s", error)
        return ""


def session_checkpoint(df: DataFrame) -> str | None:
    """Return the checkpoint of the query where the session says where checkpoints lie; None where it does not.

    Raises ``ConfigurationError`` for a query without a name, whose folder no later start would find.
    """
    call = called.now()
    if call is not None:
        return call.checkpoint or None
    session = df.sparkSession.conf.get("spark.sql.streaming.checkpointLocation", None)
    if not session:
        return None
    stream = _stream(df)
    with_checkpoint({"queryname": stream.name() or ""}, session)  # refuses a query without a name
    return str(stream.resolvedCheckpointRoot())


def _stream(df: DataFrame) -> Any:  # noqa: ANN401  a Java object
    context = df.sparkSession.sparkContext
    query = context.getLocalProperty(QUERY_PROPERTY)
    uuid = context._jvm.java.util.UUID.fromString(query)  # type: ignore[union-attr]  # noqa: SLF001
    return df.sparkSession._jsparkSession.sharedState().activeStreamingQueries().get(uuid)  # noqa: SLF001
