"""Repartitioning the state of a query that is down, as Spark itself does it (4.2 and newer, RocksDB alone).

Spark calls that API evolving, and it has a private name: it is looked for first, and a typed error says where it is
missing. It appends an epoch without rows to the checkpoint; killed half-way, it is done again with the same number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError, SetupError, UnavailableError
from onceonly.spark.configure import configure

if TYPE_CHECKING:
    from collections.abc import Mapping

_MANAGER = "_streamingCheckpointManager"
_REFUSED = re.compile(r"\[(STATE_REPARTITION_[A-Z_.]+)\]\s*(.+?)(?=\s*SQLSTATE|\n\s*at |\Z)", re.DOTALL)
_NEXT = {
    "LAST_BATCH_FAILED": "start the query, end it by onceonly stop, and try again",
    "LAST_BATCH_ABANDONED_REPARTITION": "give the same number as then; once that is done, another one",
    "UNSUPPORTED_PROVIDER": "Spark can do it for state in RocksDB alone: begin with a new checkpoint and the number "
    "that you want",
    "SHUFFLE_PARTITIONS_ALREADY_MATCH": "nothing: it has this number already",
}


def require() -> None:
    """See that the installed PySpark can do it. Anywhere. Raises ``SetupError``."""
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SetupError(
            "rescaling a query's state is Spark's work, and PySpark is not installed here",
            next_step="run this where the job runs, or: pip install 'onceonly[spark]'",
        ) from error
    if not hasattr(SparkSession, _MANAGER):
        raise SetupError(
            f"PySpark {pyspark.__version__} cannot repartition the state of a query that is down",
            next_step="use PySpark 4.2 or newer for this; a query of an older one begins with a new checkpoint and the "
            "number of partitions that you want",
        )


def repartition(location: str, partitions: int, *, settings: Mapping[str, str], local: bool = True) -> None:
    """Repartition the state at a checkpoint, in a session of its own. Operator's process.

    ``settings`` are Spark's, and ``local`` says that the checkpoint is in a file system. Raises ``SetupError``,
    ``ConfigurationError`` with Spark's own words where it refuses, ``UnavailableError`` for whatever else fails.
    """
    require()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").appName("onceonly rescale")
    builder = configure(builder, rocksdb=True, local_checkpoints=local)
    # What Spark refuses is told in its words: its log would print the same with the stack of its threads.
    for name, value in {"spark.ui.enabled": "false", "spark.log.level": "OFF", **settings}.items():
        builder = builder.config(name, value)
    spark: Any = builder.getOrCreate()
    try:
        spark.streams.active  # noqa: B018  makes what state stores ask, which a first query makes otherwise
        getattr(spark, _MANAGER).repartition(location, partitions)
    except Exception as error:
        raise _told(error, location) from error
    finally:
        spark.stop()


def _told(error: Exception, location: str) -> ConfigurationError | UnavailableError:
    """Return what an exception of Spark's means. Pure."""
    found = _REFUSED.search(str(error))
    if found is None:
        return UnavailableError(
            f"Spark could not rescale {location}: {str(error).strip().splitlines()[0]}",
            next_step="see to what it names and run this again with the same number; or restore the savepoint",
        )
    words = " ".join(found[2].split())
    return ConfigurationError(
        f"Spark does not rescale {location}: {words}",
        next_step=_NEXT.get(found[1].rpartition(".")[2], "nothing was changed"),
    )
