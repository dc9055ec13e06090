"""``onceonly.collection``: a streaming DataFrame over a Python sequence.

The rows travel in an option, so that a restarted driver and executors on other machines have them; each task
gets its own share only. It is for tests and first steps, thus for collections that fit into memory easily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.sources.collection import Collection
from onceonly.spark.asked import no_read_limits
from onceonly.spark.gone import in_session
from onceonly.spark.versions import has_read_limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@in_session
def collection(
    spark: SparkSession,
    rows: Iterable[Any],
    schema: StructType | str,
    *,
    rows_per_epoch: int | None = None,
    partitions: int = 1,
) -> DataFrame:
    """Return a streaming DataFrame of these rows, in their order, exactly once.

    Driver. ``rows_per_epoch`` limits an epoch (default: all that is there), ``partitions`` says into how many
    slots an epoch is cut. Positions are kept in the query's checkpoint, with a fingerprint of the rows read:
    after a restart give the same rows again; more may follow them. Raises ``ConfigurationError`` for a wrong
    number, and in the query where other rows are given than were read before; ``SetupError`` before PySpark 4.2;
    ``UnavailableError`` where the session was stopped, or Spark is gone.
    """
    if not has_read_limits():
        raise no_read_limits("onceonly.collection")
    from onceonly.spark.collection_source import NAME, CollectionFormat

    if (rows_per_epoch is not None and rows_per_epoch < 1) or partitions < 1:
        raise ConfigurationError(
            f"rows_per_epoch={rows_per_epoch} and partitions={partitions} must be at least 1",
            next_step="leave out rows_per_epoch to read everything in one epoch",
        )
    # Spark itself turns rows of any kind into the schema, and complains where they do not fit.
    frame = spark.createDataFrame(list(rows), schema)
    given = Collection(frame.toArrow())
    spark.dataSource.register(CollectionFormat)
    return (
        spark.readStream.format(NAME)
        .schema(frame.schema)
        .option("rows", given.encode())
        .option("rows_per_epoch", rows_per_epoch or 0)
        .option("partitions", partitions)
        .load()
    )
