"""The options of the source of streams of RabbitMQ."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from onceonly.families import rabbitmq
from onceonly.options import Option, boolean, read_options, some_time, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "onceonly.rabbitmq.stream"
EARLIEST, LATEST = "earliest", "latest"
TASKS_MAX: Final = 100
_OFFSETS: Final = 1 << 63
_BEGINNING: Final = datetime.fromtimestamp(0, UTC)


def _starting(text: str) -> str | int | datetime:
    """Read ``earliest``, ``latest``, an offset, or a time with its zone."""
    word = text.strip().lower()
    if word in {EARLIEST, LATEST}:
        return word
    if word.isdecimal() and int(word) < _OFFSETS:
        return int(word)
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None or moment < _BEGINNING:
        raise ValueError(text)
    return moment.astimezone(UTC)


DECLARED: tuple[Option, ...] = (
    rabbitmq.URI,
    Option(name="stream", doc="The stream. It is never made.", required=True),
    Option(
        name="startingOffsets",
        doc="Where a new query begins: `earliest`, the oldest message that is kept; `latest`; the offset of a message; "
        "or a time with its zone, which the server finds to the chunk: some messages of before may come, too.",
        default=EARLIEST,
        read=_starting,
        form="earliest, latest, an offset, or a time such as 2026-01-02T03:04:05Z",
    ),
    Option(
        name="maxRowsPerTrigger",
        doc="How many rows an epoch takes at most; 0 for all that are there.",
        default="0",
        read=whole,
    ),
    Option(
        name="tasks",
        doc="Into how many tasks an epoch is cut at most. Rows have the order of the stream in each.",
        default="1",
        read=whole,
        choices=range(1, TASKS_MAX + 1),
    ),
    Option(
        name="failOnDataLoss",
        doc="Whether messages that are gone before they were read stop the query; with false, a warning, and on.",
        default="true",
        read=boolean,
    ),
    Option(
        name="timeout",
        doc="How long a server that does not answer is tried again.",
        default="2 minutes",
        read=some_time,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a query asks of a stream. ``rows_max`` 0: of any number."""

    uri: str = field(repr=False)
    stream: str
    starting: str | int | datetime
    rows_max: int
    tasks: int
    fails_on_loss: bool
    timeout_s: float

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """Read them. Raises ``ConfigurationError``."""
        options = read_options(DECLARED, given, who=NAME)
        return cls(
            uri=str(options["uri"]),
            stream=options["stream"],
            starting=options["startingOffsets"],
            rows_max=options["maxRowsPerTrigger"],
            tasks=options["tasks"],
            fails_on_loss=options["failOnDataLoss"],
            timeout_s=options["timeout"],
        )
