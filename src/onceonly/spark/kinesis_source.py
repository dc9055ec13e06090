"""The Kinesis source as Spark calls it: offsets on the driver, records in the executors. PySpark 4.2.

Spark makes the reader in a process beside the driver, which lives as long as the query runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from onceonly.sources.kinesis.options import SourceOptions
from onceonly.sources.kinesis.planning import Planner
from onceonly.sources.kinesis.positions import Offset
from onceonly.sources.kinesis.reading import Share, Task, shares
from onceonly.sources.kinesis.rows import DDL, batches
from onceonly.spark.shown import without_frames
from onceonly.stores.opened import tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from onceonly.stores.access import Hadoop

COLUMNS = DDL
"""What a query reads."""


def make_reader(options: Mapping[str, str], schema: StructType, hadoop: Hadoop) -> KinesisReader:
    """Return the reader of a query. Raises ``ConfigurationError``."""
    return KinesisReader(options, schema, hadoop)


class SharePartition(InputPartition):
    """The share of one task."""

    def __init__(self, share: Share) -> None:
        self.share = share


class KinesisReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads in executors."""

    def __init__(self, options: Mapping[str, str], schema: StructType, hadoop: Hadoop) -> None:
        tell(hadoop)  # which says where a plain path is
        self._options = SourceOptions.of(options)
        self._schema = schema
        self._hadoop = hadoop
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @without_frames
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._plan.initial().json

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.records_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @without_frames
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        offset = Offset.of(start)
        following = self._plan.following(offset, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        # Spark compares texts: what has not changed is given back as it came.
        return start if following is offset else following.json

    @without_frames
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._plan.stop_at_now()

    @without_frames
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        offset = Offset.of(end)
        self._plan.require_replayable(offset)
        plan = self._plan
        return [SharePartition(share) for share in shares(offset, plan.nexts(offset), plan.keeps_s)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SharePartition)  # noqa: S101  Spark hands back what `partitions` gave
        tell(self._hadoop)
        # Spark takes a batch only if its time zones and nullability are exactly these.
        schema = to_arrow_schema(self._schema, timezone="UTC")
        task = Task(self._options, partition.share)
        records = task.records()
        within = task.hash_keys(records)
        for batch in batches(records, aggregated=self._options.aggregated, within=within):
            yield batch.cast(schema)

    @without_frames
    def commit(self, end: dict[str, Any]) -> None:
        self._plan.forget(Offset.of(end))

    @property
    def _plan(self) -> Planner:
        if self._planner is None:
            tell(self._hadoop)
            self._planner = Planner(self._options)
        return self._planner
