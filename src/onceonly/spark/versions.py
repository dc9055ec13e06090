"""What the installed PySpark has, found by looking: there is no list of versions.

A format stands on a stream writer that is given Arrow's batches. PySpark has one since 4.1. In 4.0 a batch writer is
given them, and so is a stream writer that is one, too. Without either, as in 3.5, the same word is written by
``foreachBatch``, which is given them by ``mapInArrow``.
"""

from __future__ import annotations

from importlib.util import find_spec

import pyspark

from onceonly.errors import SetupError


def require_pyspark() -> None:
    """See that PySpark has what both ways stand on. Raises ``SetupError``."""
    # The newest of what is used everywhere; a client of Spark Connect alone has no such class.
    context = getattr(pyspark, "SparkContext", None)
    if context is not None and not hasattr(context, "addJobTag"):
        raise SetupError(
            f"PySpark {pyspark.__version__} is too old: it cannot tell the jobs of an epoch from others",
            next_step="use PySpark 3.5 or newer",
        )


def has_formats() -> bool:
    """Say whether a sink can be a format of Spark's; else its word is written by ``foreachBatch``."""
    try:
        from pyspark.sql import datasource
    except ImportError:
        return False
    return hasattr(datasource, "DataSourceStreamArrowWriter") or hasattr(datasource, "DataSourceArrowWriter")


def has_read_limits() -> bool:
    """Say whether a Python source is told how much to read, as ``onceonly.collection`` needs."""
    return find_spec("pyspark.sql.streaming.datasource") is not None
