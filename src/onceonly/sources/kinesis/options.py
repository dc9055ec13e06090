"""The options of the Kinesis source."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from onceonly.families import kinesis
from onceonly.families.kinesis import StreamOptions
from onceonly.options import Option, boolean, read_options, some_bytes, whole
from onceonly.sources.kinesis.positions import LATEST, TRIM, Position
from onceonly.stores.opened import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

WHO = "the source kinesis"
TASKS_MAX = 1000
KPL = "kpl"


def _starting(text: str) -> Position:
    """Read ``trim_horizon``, ``latest`` or a time with its zone."""
    if text.strip().lower() in {TRIM, LATEST}:
        return Position(text.strip().lower())
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        raise ValueError(text)
    return Position.since(moment.astimezone(UTC).timestamp())


def _some(text: str) -> int:
    if not whole(text):
        raise ValueError(text)
    return whole(text)


def _aggregated(text: str) -> str:
    if text.strip().lower() not in {"true", "false", KPL}:
        raise ValueError(text)
    return text.strip().lower()


DECLARED = (
    *kinesis.DECLARED,
    Option(
        name="onceonly.ranges",
        doc="a folder that driver and executors share, or an address on a store, for what tells which records each "
        "epoch has read; a query loses its place with it",
        required=True,
    ),
    Option(
        name="startingPosition",
        doc="where a new query begins: trim_horizon, the oldest record that is kept; latest; or a time with its zone",
        default=TRIM,
        read=_starting,
        form="trim_horizon, latest, or a time such as 2026-01-02T03:04:05Z",
    ),
    Option(
        name="maxRecordsPerTrigger",
        doc="about how many records an epoch reads at most",
        read=_some,
        form="a whole number, at least 1",
    ),
    Option(
        name="maxBytesPerShard",
        doc="about how much an epoch reads of one shard; a task holds the records of its shards in memory",
        default="16m",
        read=some_bytes,
    ),
    Option(
        name="maxFetchMs",
        doc="how many milliseconds a task fetches at most, before its first row",
        default="1000",
        read=_some,
        form="a whole number, at least 1",
    ),
    Option(
        name="tasks",
        doc="how many tasks read the shards of an epoch at most",
        default="8",
        read=whole,
        choices=range(1, TASKS_MAX + 1),
    ),
    Option(
        name="aggregated",
        doc="whether records may hold many, as the Kinesis Producer Library (KPL) packs them; each is a row then; with "
        "kpl, less those whose key is another shard's, which the KPL writes again",
        default="false",
        read=_aggregated,
        form="true, false or kpl",
    ),
    Option(
        name="failOnDataLoss",
        doc="whether records that are gone before they were read stop the query; with false, a warning, and on",
        default="true",
        read=boolean,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a query asks of a stream."""

    stream: StreamOptions
    ranges: str
    starting: Position
    records_max: int | None
    shard_bytes_max: int
    fetch_s: float
    tasks: int
    aggregated: bool
    keeps_ranges: bool
    """Whether a message whose hash key is outside of its shard's is left out."""
    fails_on_loss: bool

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """Read them. Raises ``ConfigurationError``."""
        options = read_options(DECLARED, given, who=WHO)
        return cls(
            stream=StreamOptions.of(options, WHO),
            # A relative one would be another in a process that runs elsewhere.
            ranges=place_of(options["onceonly.ranges"], what="the option onceonly.ranges"),
            starting=options["startingPosition"],
            records_max=options["maxRecordsPerTrigger"],
            shard_bytes_max=options["maxBytesPerShard"],
            fetch_s=options["maxFetchMs"] / 1000,
            tasks=options["tasks"],
            aggregated=options["aggregated"] != "false",
            keeps_ranges=options["aggregated"] == KPL,
            fails_on_loss=options["failOnDataLoss"],
        )
