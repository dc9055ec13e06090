"""The data source behind ``onceonly.collection``: positions on the driver, rows in the executors. PySpark 4.2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from onceonly.errors import ConfigurationError
from onceonly.sources.collection import Collection

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

NAME = "onceonly.collection"


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


class CollectionReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
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
