"""The source of streams of RabbitMQ as Spark calls it: places on the driver, messages in the executors. PySpark 4.2.

Spark makes the reader in a process beside the driver, which lives as long as the query runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from onceonly.sources.rabbitmq_stream.messages import Stream
from onceonly.sources.rabbitmq_stream.options import NAME, SourceOptions
from onceonly.sources.rabbitmq_stream.planning import Planner
from onceonly.sources.rabbitmq_stream.positions import Position
from onceonly.sources.rabbitmq_stream.reading import read
from onceonly.sources.rabbitmq_stream.rows import DDL, batches
from onceonly.spark.asked import only_streams
from onceonly.spark.shown import without_frames

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType


class RabbitStreamFormat(DataSource):
    """The format ``onceonly.rabbitmq.stream``. ``options`` may hold secrets and are never shown."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> NoReturn:  # noqa: ARG002
        raise only_streams(NAME)

    @without_frames
    def streamReader(self, schema: StructType) -> RabbitStreamReader:  # noqa: N802
        return RabbitStreamReader(self.options, schema)


class Share(InputPartition):
    """What one task reads: behind the first of two places, up to the second."""

    def __init__(self, start: Position, end: Position) -> None:
        self.start = start
        self.end = end

    def __repr__(self) -> str:
        return f"Share({self.start.next} to {self.end.offset})"


class RabbitStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads in executors."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SourceOptions.of(options)
        self._schema = schema
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @without_frames
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._plan.initial().json

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.rows_max
        return ReadMaxRows(most) if most else ReadAllAvailable()

    @without_frames
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        place = Position.of(start)
        following = self._plan.following(place, most)
        # Spark compares texts: what has not changed is given back as it came.
        return start if following == place else following.json

    @without_frames
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._plan.stop_at_now()

    @without_frames
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        return [Share(*share) for share in self._plan.shares(Position.of(start), Position.of(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)  # noqa: S101  Spark hands back what `partitions` gave
        # Spark takes a batch only if its time zones and nullability are exactly these.
        schema = to_arrow_schema(self._schema, timezone="UTC")
        stream = Stream(self._options, is_known=True)
        try:
            for batch in batches(read(stream, partition.start, partition.end)):
                yield batch.cast(schema)
        finally:
            stream.close()

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    @property
    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner
