"""The data source behind feeds with a journal: positions on the driver, segments in the executors. PySpark 4.2.

Spark makes the reader in one process beside the driver, which lives as long as the query runs and in which the
receiver lives, too. Executors get the reader with each task, and know of it only where the journal lies.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from onceonly.model import Guarantee
from onceonly.settings.query import PREFIX
from onceonly.sources.asked import ask, kept_by_receiver
from onceonly.sources.journal.feeds import schema_of
from onceonly.sources.journal.place import Journal
from onceonly.sources.journal.reader import (
    Position,
    Reader,
    first_begun,
    require_kept,
    require_unread,
)
from onceonly.sources.journal.receiver import Receiver
from onceonly.sources.known import feed_class
from onceonly.spark.asked import only_streams
from onceonly.spark.shown import without_frames
from onceonly.stores.access import Hadoop
from onceonly.stores.opened import place_of, tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

log = logging.getLogger("onceonly")

_SETTLE_S = 10.0
"""How long ``availableNow`` waits for a feed that never pauses."""


class FeedReading(DataSource):
    """Reading a feed: what a data source for it has. ``options`` may hold secrets and are never shown."""

    feed_name: ClassVar[str]
    hadoop: ClassVar[Hadoop] = Hadoop()

    def schema(self) -> StructType:
        return columns_of(self.feed_name)

    def reader(self, schema: StructType) -> NoReturn:  # noqa: ARG002
        raise only_streams(PREFIX + self.feed_name)

    @without_frames
    def streamReader(self, schema: StructType) -> FeedReader:  # noqa: N802
        return FeedReader(self.feed_name, self.options, schema, self.hadoop)


class FeedFormat(FeedReading):
    """The base of the data sources of feeds that no sink writes."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        return PREFIX + cls.feed_name


def columns_of(feed: str) -> StructType:
    """Return the columns of a feed."""
    return from_arrow_schema(schema_of(feed_class(feed).columns))


def make_feed_format(feed: str, hadoop: Hadoop, written: type[DataSource] | None) -> type[DataSource]:
    """Make the data source class of a feed; ``written`` is that of the sink of this name, which it is then, too.

    It travels by value, as no module holds it.
    """
    bases = (FeedFormat,) if written is None else (FeedReading, written)
    return type(f"{feed.title()}FeedFormat", bases, {"feed_name": feed, "hadoop": hadoop})


class Range(InputPartition):
    """Neighbouring segments of a journal, for one task."""

    def __init__(self, journal: str, first: int, last: int) -> None:
        self.journal = journal
        self.first = first
        self.last = last

    def __repr__(self) -> str:
        return f"Range({self.first} to {self.last})"


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Positions in the journal, and the receiver where it is inside the job."""

    def __init__(self, feed: str, options: Mapping[str, str], schema: StructType, hadoop: Hadoop) -> None:
        tell(hadoop)
        self._asked = ask(feed, options)
        self._hadoop = hadoop
        self._schema = schema
        given = next(text for name, text in options.items() if name.lower() == "journal")
        # A relative one would be another in an executor, which runs elsewhere.
        self._address = place_of(given, what="the journal")
        self._ends = False
        """Whether this start reads what is there at its first look, and no more."""
        self._until: int | None = None
        self._opened: tuple[Reader, Receiver | None] | None = None
        self._has_told = False
        self._begun: Position | None = None
        """Where the query has begun that reads this journal, if Spark asks for that and some was read."""

    def __getstate__(self) -> dict[str, Any]:
        # A task is told nothing of the feed: its options may hold secrets.
        kept = ("_schema", "_hadoop", "_address")
        return {name: self.__dict__[name] for name in kept}

    @without_frames
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._opened is None:  # a start that is refused takes nothing from its feed
            self._begun = first_begun(self._asked.journal)
        if self._begun is not None:
            return self._begun.offset
        self._tell_promise(after=0)
        return self._reader.initial().offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max = self._asked.rows_max
        return ReadMaxRows(rows_max) if rows_max else ReadAllAvailable()

    @without_frames
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if self._begun is not None and Position.of(start) == self._begun:  # no first epoch is run again
            require_unread(self._asked.journal)
        position = self._at(start)
        reader, receiver = self._open()
        if self._ends and self._until is None:
            if receiver is not None:
                receiver.rest(_SETTLE_S)
            self._until = reader.newest()
        newest = reader.newest(after=position.segment)
        end = newest if self._until is None else max(position.segment, self._until)
        writer = receiver.opened() if receiver is not None else None
        if isinstance(limit, ReadMaxRows):
            end = reader.limited(position.segment, end, limit.max_rows, writer.rows if writer else {})
        if end == position.segment:
            if self._until is not None:
                reader.stand(end)  # nobody asks again before the next start
            return start
        return reader.after(position, end, writer.writers if writer else {}).offset

    @without_frames
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to what is there at the first look: what a receiver inside the job has got until its feed pauses.

        Spark has not said yet where the query goes on, and for one that cannot nothing is taken from the feed.
        """
        self._ends = True

    @without_frames
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        position = self._at(start)
        first, last = position.segment, self._at(end).segment
        count = min(self._asked.tasks, last - first)
        cuts = [first + (last - first) * part // count for part in range(count + 1)] if count > 0 else []
        return [Range(position.journal, before + 1, upto) for before, upto in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)  # noqa: S101  Spark hands back what `partitions` gave
        tell(self._hadoop)
        journal = Journal.at(self._address)
        # Spark takes a batch only if its time zones and nullability are exactly these.
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for number in range(partition.first, partition.last + 1):
            _, rows, _ = journal.read(number, partition.journal)
            yield from rows.cast(schema).to_batches()

    @without_frames
    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(self._at(end).segment)

    def stop(self) -> None:
        if self._opened is not None:
            reader, receiver = self._opened
            if receiver is not None:
                receiver.stop()
            reader.close()

    @property
    def _reader(self) -> Reader:
        return self._open()[0]

    def _at(self, offset: dict[str, Any]) -> Position:
        position = Position.of(offset)
        if self._opened is None:  # a start that is refused takes nothing from its feed
            require_kept(self._asked.journal, position)
        self._tell_promise(position.segment)
        self._reader.require(position)
        return position

    def _tell_promise(self, after: int) -> None:
        """Say once in this process's life what holds of what is read in it. Raises as ``kept_by_receiver``."""
        if self._has_told:
            return
        self._open()  # a receiver inside notes what it keeps
        asked = self._asked
        promises = kept_by_receiver(asked, after)
        self._has_told = True
        if set(promises) != {Guarantee.EXACTLY_ONCE}:
            log.warning(
                "onceonly.%s: %s up to the journal %s, exactly once from there.",
                asked.feed.name, " and ".join(promises), asked.journal.where,
            )  # fmt: skip

    def _open(self) -> tuple[Reader, Receiver | None]:
        """Begin to receive and to read, once in this process's life; raise what has ended the receiver."""
        if self._opened is None:
            asked = self._asked
            receiver = None
            if asked.inside:
                receiver = Receiver(asked.feed, asked.journal, asked.limits)
                receiver.start()
                writer = receiver.opened()
            durable = (lambda: writer.newest) if receiver is not None else None
            try:
                self._opened = (Reader(asked.journal, durable=durable), receiver)
            except BaseException:  # it would go on to take rows for nobody
                if receiver is not None:
                    receiver.stop()
                raise
        reader, receiver = self._opened
        if receiver is not None:
            receiver.require_alive()
        return reader, receiver
