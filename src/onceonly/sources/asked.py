"""Making a feed and its journal of the options of a query or of a command. Any process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.options import read_options
from onceonly.sources.journal.options import DECLARED, Limits
from onceonly.sources.journal.place import Journal
from onceonly.sources.known import feed_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.sources.journal.feeds import Feed


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A feed, its journal, and how both are used, as the options of a query or of a command say."""

    feed: Feed
    journal: Journal
    limits: Limits
    inside: bool
    rows_max: int
    tasks: int


def ask(name: str, given: Mapping[str, str]) -> Asked:
    """Read the options of a feed. Pure. Raises ``ConfigurationError``."""
    made = feed_class(name)
    open_ended = {key: text for key, text in given.items() if key.lower().startswith(made.open_ended)}
    plain = {key: text for key, text in given.items() if key not in open_ended}
    options = read_options((*made.declared, *DECLARED), plain, who=f"onceonly.{name}")
    limits = Limits.of(options)
    if limits.segment_bytes < 1 or limits.backlog_bytes < limits.segment_bytes:
        raise ConfigurationError(
            f"segmentBytes={limits.segment_bytes} and backlogBytes={limits.backlog_bytes} leave no room for a segment",
            next_step="leave both out, or make backlogBytes several times segmentBytes",
        )
    feed = made({**options, **open_ended}, limits)
    return Asked(
        feed=feed,
        journal=Journal.at(options["journal"]),
        limits=limits,
        inside=options["receiver"] == "inside",
        rows_max=options["maxRowsPerTrigger"],
        tasks=max(1, options["tasks"]),
    )
