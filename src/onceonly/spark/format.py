"""The data source class that Spark sees for a sink.

Spark makes an instance in the planner for each write. Of a stream it sends a pickled instance to the commit process:
whether an instance has travelled tells which of the two it is asked in.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from pyspark.sql.datasource import DataSource

from onceonly.checkpoint.batches import BatchCheckpoint
from onceonly.errors import ConfigurationError
from onceonly.settings.batches import batch_query, job_id
from onceonly.settings.query import (
    JOB,
    PREFIX,
    START,
    SinkSettings,
    no_checkpoint,
    with_checkpoint,
)
from onceonly.settings.registry import SinkClass, find, load, settings_of
from onceonly.sources.known import SOURCES
from onceonly.spark import beside
from onceonly.spark.asked import no_read_limits, only_streams, require_mode, take_partition_by
from onceonly.spark.batch import Batch, BatchWriter, plan_batch
from onceonly.spark.shown import without_frames
from onceonly.spark.versions import has_read_limits
from onceonly.spark.writer import EpochCommitter, Stream, plan_epoch
from onceonly.stores.access import Hadoop
from onceonly.stores.opened import tell

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
    from pyspark.sql.types import StructType

    from onceonly.ports import TwoPhaseCommitSink


_SOURCES = {"kinesis": "onceonly.spark.kinesis_source"}
"""The sinks whose format also reads, and the module that does."""


class SinkFormat(DataSource):
    """The base of all generated formats. ``options`` may hold secrets and are never shown."""

    sink_name: ClassVar[str]
    sink_class: ClassVar[SinkClass]
    application: ClassVar[str]
    checkpoints: ClassVar[str | None] = None
    others: ClassVar[Mapping[str, type[TwoPhaseCommitSink[Any]]]] = {}
    hadoop: ClassVar[Hadoop] = Hadoop()

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)
        self._travelled = False

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_travelled": True}

    @classmethod
    def name(cls) -> str:
        return PREFIX + cls.sink_name

    @without_frames
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """Plan an epoch (planner process), or get ready to decide one (commit process)."""
        tell(self.hadoop)
        options = take_partition_by(self.options, load(self.sink_class).declared, who=self.name())
        start = options.pop(START, "")
        settings = settings_of(with_checkpoint(options, self.checkpoints), self.sink_name, self.sink_class)
        if settings.query is None:
            raise no_checkpoint()
        beside.require_driver(settings.query, start)
        taker = self._taker(settings.sink)
        stream = Stream(settings.query, settings.sink, self.sink_class, self.application, taker, start)
        columns = _columns(schema)
        if self._travelled:
            return EpochCommitter(stream, columns)
        if overwrite:
            require_mode(self.sink_name, "complete")
        return plan_epoch(stream, columns)

    @without_frames
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001
        """Plan a batch. Planner process, once a run."""
        tell(self.hadoop)
        if overwrite:
            raise ConfigurationError(
                f"{self.name()} adds its rows to the target and replaces nothing, as mode overwrite asks",
                next_step="write with .mode('append')",
            )
        options = take_partition_by(self.options, load(self.sink_class).declared, who=self.name())
        job = job_id(options.pop(JOB, None))
        settings = settings_of(options, self.sink_name, self.sink_class)
        query, columns = batch_query(settings, job), _columns(schema)
        batch = Batch(
            checkpoint=BatchCheckpoint.at(query.checkpoint, job, columns),
            query=query,
            sink=settings.sink,
            sink_class=self.sink_class,
            columns=columns,
            letters=self._taker(settings.sink),
        )
        return plan_batch(batch)

    def _taker(self, settings: SinkSettings) -> SinkClass | None:
        """Return the class of the sink that takes the dead letters; None where nothing does."""
        return None if settings.letters is None else find(settings.letters.format, self.others)[1]

    def schema(self) -> str:
        """Return the columns of the source that has this name, too."""
        columns: str = self._source().COLUMNS
        return columns

    def reader(self, schema: StructType) -> NoReturn:  # noqa: ARG002
        self._source()
        raise only_streams(self.name())

    @without_frames
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of that source."""
        made: DataSourceStreamReader = self._source().make_reader(self.options, schema, self.hadoop)
        return made

    def _source(self) -> Any:  # noqa: ANN401  a module
        if self.sink_name not in SOURCES:
            raise ConfigurationError(
                f"{self.name()} is a sink and cannot be read",
                next_step="read what it wrote with Spark's own format (Kafka with isolation level read_committed), "
                "files with onceonly.files.read",
            )
        if not has_read_limits():
            raise no_read_limits(self.name())
        return importlib.import_module(_SOURCES[self.sink_name])


def _columns(schema: StructType) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.dataType.simpleString()) for field in schema.fields)


def make_format(
    name: str,
    sink: SinkClass,
    application: str,
    others: Mapping[str, type[TwoPhaseCommitSink[Any]]] | None = None,
    checkpoints: str | None = None,
    hadoop: Hadoop | None = None,
) -> type[SinkFormat]:
    """Make the data source class of a sink. It travels by value, as no module holds it.

    ``application`` is the same for all formats that one driver program registers; ``others`` are the user's sinks,
    which may take dead letters; ``checkpoints`` is where the session puts checkpoints, None where it does not say.
    ``hadoop`` is how the stores of checkpoints are reached: secrets, which travel in the class alone.
    """
    members = {
        "sink_name": name,
        "sink_class": sink,
        "application": application,
        "others": others or {},
        "checkpoints": checkpoints,
        "hadoop": hadoop or Hadoop(),
    }
    return type(f"{name.title()}Format", (SinkFormat,), members)
