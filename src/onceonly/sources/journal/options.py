"""The options that all feeds with a journal share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from onceonly.model import Guarantee
from onceonly.options import Option, size, some_time, span, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

GUARANTEE: Final = "onceonly.guarantee"

DECLARED: tuple[Option, ...] = (
    Option(
        name="journal",
        doc="Where the journal lies: a folder on a local disk or a shared mount, or an address on a store. One for "
        "each query, beside its checkpoint and not in it.",
        required=True,
    ),
    Option(
        name="receiver",
        doc="Who writes the journal: `inside`, a thread beside the driver; or `outside`, the command "
        "`onceonly journal run`, which goes on while the job is down, and whose options say what is promised.",
        default="inside",
        choices=("inside", "outside"),
    ),
    Option(
        name=GUARANTEE,
        doc="`exactly-once`, `at-least-once` or `at-most-once`. Default: the strongest that the feed can keep with the "
        "options given.",
        choices=tuple(Guarantee),
    ),
    Option(
        name="linger",
        doc="How long rows wait for others, so that one sync makes them durable together.",
        default="50 ms",
        read=span,
        form="a time such as 50 ms, or 0 ms",
    ),
    Option(
        name="segmentBytes",
        doc="How large a segment gets before it is written without waiting; also how long a line may be.",
        default="4m",
        read=size,
    ),
    Option(
        name="backlogBytes",
        doc="How much of the disk the journal may take. When it is full, nothing more is taken from the feed.",
        default="1g",
        read=size,
    ),
    Option(
        name="window",
        doc="How long ids are remembered, so that what a feed sends again within this time is left out. Time in which "
        "no receiver runs, or none is connected, or the journal is full, does not count. About 150 bytes of the "
        "receiver's memory for each id.",
        default="10 minutes",
        read=some_time,
    ),
    Option(
        name="maxRowsPerTrigger",
        doc="How many rows an epoch takes at most, in whole segments and at least one; 0 for all that are there.",
        default="0",
        read=whole,
    ),
    Option(
        name="tasks",
        doc="Into how many tasks an epoch is cut at most.",
        default="2",
        read=whole,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How a journal is written."""

    linger_s: float = 0.05
    segment_bytes: int = 4 * 1024**2
    backlog_bytes: int = 1024**3
    window_s: float = 600.0

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Limits:
        """Take them from options that were read."""
        return cls(
            linger_s=options["linger"],
            segment_bytes=options["segmentBytes"],
            backlog_bytes=options["backlogBytes"],
            window_s=options["window"],
        )
