"""A name for the Spark application that this program is. Driver, also one on Spark Connect."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

from onceonly.spark import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRAM = uuid.uuid4().hex


def application(spark: SparkSession) -> str:
    """Name the Spark application: in it, the runs of a query follow one another, wherever they are planned."""
    if connect.is_client(spark):
        return connect.application(spark, _PROGRAM)
    context = spark.sparkContext
    # Spark's own id of a local application is made of the time in milliseconds: two may have the same.
    return hashlib.sha256(f"{context.applicationId} {context.startTime} {_PROGRAM}".encode()).hexdigest()[:12]
