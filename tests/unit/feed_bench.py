"""A feed as Spark reads it, without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from onceonly.sources.journal import Journal
from onceonly.spark.feed_source import FeedReader, Range, columns_of
from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Started:
    """What one start has read, and where it ended."""

    end: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [row["id"] for row in self.rows]


def one_start(place: Path, after: dict[str, Any] | None, feed: str = "rabbitmq", **options: str) -> Started:
    """Read a feed as one start of a query with ``availableNow`` does, which goes on ``after`` a checkpoint's offset.

    Dots in the names of options are written as two underscores.
    """
    given = {name.replace("__", "."): value for name, value in options.items()}
    if feed == "rabbitmq":
        given = {"uri": "amqp://h", "queue": "q", **given}
    reader = FeedReader(feed, {"journal": str(place), **given}, columns_of(feed), Hadoop())
    try:
        reader.prepareForTriggerAvailableNow()
        begin = reader.initialOffset() if after is None else after
        end = reader.latestOffset(begin, ReadAllAvailable())
        found = Started(end)
        if end != begin:
            if after is not None:
                reader.commit(begin)
            for share in reader.partitions(begin, end):
                assert isinstance(share, Range)
                for number in range(share.first, share.last + 1):
                    found.rows += Journal.at(str(place)).read(number, share.journal)[1].to_pylist()
            assert reader.latestOffset(end, ReadAllAvailable()) == end
        return found
    finally:
        reader.stop()
