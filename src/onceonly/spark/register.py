"""``onceonly.register``: makes the formats known to a Spark session."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyspark

from onceonly.errors import SetupError
from onceonly.settings import registry
from onceonly.spark import connect
from onceonly.spark.application import application
from onceonly.spark.gone import in_session
from onceonly.spark.versions import has_formats, has_read_limits, require_pyspark
from onceonly.stores.opened import tell

log = logging.getLogger("onceonly")

SESSION_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from onceonly.spark.format import SinkFormat
    from onceonly.stores.access import Hadoop

_added: WeakKeyDictionary[SparkSession, object] = WeakKeyDictionary()
"""By which settings a session has its formats: Spark warns of each that it is given again."""


@in_session
def register(spark: SparkSession, *sink_classes: object) -> None:
    """Add the formats of onceonly's sinks (``onceonly.kafka`` …), feeds and ``collection``, and of the given sinks.

    Driver, once a session; registering again replaces what may have changed. A class of ``TwoPhaseCommitSink`` named
    ``ledger`` becomes the format ``onceonly.ledger``; executors must be able to import it, unless it was defined in
    the program itself. What Spark reports of each epoch is kept beside its decision from now on, and ``partitionBy``
    of a ``writeStream`` or ``write`` is handed to these formats, which Spark itself does not do. A session-wide
    checkpoint location is used by queries that have a name, if it is set before; what Hadoop is told of stores
    (``spark.hadoop.fs.s3a.…``) is taken over as it is now. On Spark Connect, the server must be able to import
    onceonly; ``onceonly.spark.connect`` says what is left out there. Where PySpark has no writer for formats of
    Python, as in 3.5, a query with one of these formats is written by ``foreachBatch``, and a warning says so. Raises
    ``ConfigurationError`` for anything else, ``SetupError`` where PySpark is older than 3.5 (on Connect, than 4.0) or
    would start its workers with another Python, ``UnavailableError`` where the session was stopped or Spark is gone.
    """
    require_pyspark()
    names = [*registry.BUILT_IN, *(registry.remember(sink) for sink in sink_classes)]
    if connect.is_client(spark):
        if not has_formats():
            raise SetupError(
                f"on Spark Connect a query is written by a format, and PySpark {pyspark.__version__} has no writer for "
                "those of Python",
                next_step="use PySpark 4.0 or newer, or a classic session",
            )
        connect.install()
        _add_formats(spark, names, connect.hadoop_of(spark))
        return
    _require_same_python(spark)
    from onceonly.spark import asked, listener, starting
    from onceonly.spark.hadoop import hadoop_of

    hadoop = hadoop_of(spark)
    tell(hadoop)
    if has_formats():
        _add_formats(spark, names, hadoop)
    else:
        log.warning(
            "PySpark %s has no writer for formats of Python: a query with a format of onceonly is written by "
            "foreachBatch(onceonly.sink(...)), with the same options and guarantees.",
            pyspark.__version__,
        )
    listener.install(spark)
    starting.install()
    asked.install()


def _add_formats(spark: SparkSession, names: Sequence[str], hadoop: Hadoop) -> None:
    from onceonly.spark.format import make_format

    given = application(spark), registry.given(), spark.conf.get(SESSION_CHECKPOINTS, None), hadoop
    shipped = given, _handed_to_workers(spark)
    is_anew = shipped != _added.get(spark)
    written = {
        name: make_format(name, registry.find(name)[1], *given)
        for name in names
        # A class of the user's may have been changed in its place.
        if is_anew or name not in registry.BUILT_IN
    }
    made: dict[str, type[DataSource]] = {**written}
    if has_read_limits() and is_anew:
        made |= _sources(hadoop, written)
    if connect.is_client(spark) and is_anew:
        from onceonly.spark.beside_format import make_format as make_beside

        made["beside"] = make_beside(hadoop)
    for each in made.values():
        spark.dataSource.register(each)
    _added[spark] = shipped


def _handed_to_workers(spark: SparkSession) -> object:
    """Return what PySpark hands to the workers of a format as it is now: variables, and files that were added."""
    if connect.is_client(spark):
        return None
    context = spark.sparkContext
    return dict(context.environment), tuple(getattr(context, "_python_includes", ()))


def _sources(hadoop: Hadoop, written: Mapping[str, type[SinkFormat]]) -> dict[str, type[DataSource]]:
    """Return the sources by name; a feed whose system is written by a sink, too, is one format for both."""
    from onceonly.sources.known import FEEDS
    from onceonly.spark.collection_source import CollectionFormat
    from onceonly.spark.feed_source import make_feed_format
    from onceonly.spark.rabbitmq_stream_source import RabbitStreamFormat

    feeds = {feed: make_feed_format(feed, hadoop, written.get(feed)) for feed in FEEDS}
    return {"collection": CollectionFormat, "rabbitmq.stream": RabbitStreamFormat, **feeds}


def _require_same_python(spark: SparkSession) -> None:
    """Local workers that run another Python fail with a puzzling 'No module named pyarrow'."""
    import sys

    context = spark.sparkContext
    if not (context.master or "").startswith("local"):
        return
    found = shutil.which(context.pythonExec)
    # A virtual environment's interpreter is a link to the system's, so the folders are compared.
    if found is None or Path(found).absolute().parent != Path(sys.executable).absolute().parent:
        raise SetupError(
            f"Spark would start its Python workers with {found or context.pythonExec}, not {sys.executable}",
            next_step="set os.environ['PYSPARK_PYTHON'] = sys.executable before the session is built",
        )
