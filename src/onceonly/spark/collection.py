"""``onceonly.collection``: a streaming DataFrame over a Python sequence.

The rows travel in an option, so that a restarted driver and executors on other machines have them; each task
gets its own share only. It is for tests and first steps, thus for collections that fit into memory easily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from onceonly.errors import ConfigurationError, SetupError
from onceonly.sources.collection import Collection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
except ImportError:  # PySpark before 4.2: `collection` refuses
    ReadAllAvailable = ReadMaxRows = ReadLimit = None  # type: ignore[assignment,misc]
    _AvailableNow = object  # type: ignore[assignment,misc]

NAME = "onceonly.collection"


def collection(
    spark: SparkSession,
    rows: Iterable[Any],
    schema: StructType | str,
    *,
    rows_per_epoch: int | None = None,
    partitions: int = 1,
) -> DataFrame:
    """Return a streaming DataFrame of these rows, in their order, exactly once (R34).

    Driver. ``rows_per_epoch`` limits an epoch (default: all that is there), ``partitions`` says into how many
    slots an epoch is cut. Positions are kept in the query's checkpoint, with a fingerprint of the rows read:
    after a restart give the same rows again; more may follow them. Raises ``ConfigurationError`` for a wrong
    number, and in the query where other rows are given than were read before.
    """
    if ReadLimit is None:
        raise SetupError(
            f"PySpark {pyspark.__version__} tells a Python source no read limit, which onceonly.collection needs",
            next_step="use PySpark 4.2 or newer",
        )
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


class CollectionFormat(DataSource):
    """The data source behind ``collection``; not for direct use."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    def schema(self) -> StructType:
        raise ConfigurationError(
            f"the format {NAME} has no rows of its own",
            next_step="call onceonly.collection(spark, rows, schema)",
        )

    def streamReader(self, schema: StructType) -> CollectionReader:  # noqa: N802
        if "rows" not in self.options:
            self.schema()
        return CollectionReader(
            Collection.decode(self.options["rows"]),
            schema,
            rows_per_epoch=int(self.options["rows_per_epoch"]),
            partitions=int(self.options["partitions"]),
        )


class Share(InputPartition):
    """The rows of one slot."""

    def __init__(self, rows: str) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        return f"Share({len(self.rows)} bytes)"


class CollectionReader(DataSourceStreamReader, _AvailableNow):
    """Positions on the driver, rows in the executors."""

    def __init__(
        self, given: Collection, schema: StructType, *, rows_per_epoch: int, partitions: int
    ) -> None:
        self._given: Collection | None = given
        self._schema = schema
        self._rows_per_epoch = rows_per_epoch
        self._partitions = partitions

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get their share with the partition, not the whole collection with the reader.
        return {**self.__dict__, "_given": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._rows.position(0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows_per_epoch) if self._rows_per_epoch else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        end = len(self._rows)
        if isinstance(limit, ReadMaxRows):
            end = min(end, self._rows.rows_before(start) + limit.max_rows)
        return self._rows.position(end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing to prepare: the collection does not grow while a query runs."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, last = self._rows.rows_before(start), self._rows.rows_before(end)
        pieces = self._rows.split(first, last, self._partitions)
        return [Share(Collection(piece).encode()) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)  # noqa: S101  Spark hands back what `partitions` gave
        table = Collection.decode(partition.rows).table
        # Spark takes a batch only if its time zones and nullability are exactly these.
        yield from table.cast(to_arrow_schema(self._schema, timezone="UTC")).to_batches()

    @property
    def _rows(self) -> Collection:
        assert self._given is not None  # noqa: S101  positions are asked of on the driver only
        return self._given
