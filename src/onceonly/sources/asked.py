"""Making a feed and its journal of the options of a query or of a command. Any process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee
from onceonly.options import read_options
from onceonly.sources.journal.options import DECLARED, GUARANTEE, Limits
from onceonly.sources.journal.place import Journal
from onceonly.sources.journal.promised import promises
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
    guarantee: Guarantee | None
    """The one that was asked for, None where what the feed keeps was."""
    rows_max: int
    tasks: int


def ask(name: str, given: Mapping[str, str]) -> Asked:
    """Read the options of a feed. Pure. Raises ``ConfigurationError``."""
    made = feed_class(name)
    open_ended = {key: text for key, text in given.items() if key.lower().startswith(made.open_ended)}
    plain = {key: text for key, text in given.items() if key not in open_ended}
    options = read_options(
        (*made.declared, *DECLARED), plain, who=f"onceonly.{name}", families=made.open_ended
    )
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
        guarantee=None if options[GUARANTEE] is None else Guarantee(options[GUARANTEE]),
        rows_max=options["maxRowsPerTrigger"],
        tasks=max(1, options["tasks"]),
    )


def kept_by_receiver(asked: Asked, after: int) -> tuple[str, ...]:
    """Return what holds up to the journal of what follows a segment: what its receivers say; else the options.

    Raises ``ConfigurationError`` where what was asked for does not hold, ``JournalError``, ``UnavailableError``.
    """
    noted = promises(asked.journal, after)
    if asked.guarantee is not None and any(
        each not in {asked.guarantee, Guarantee.EXACTLY_ONCE} for each in noted
    ):
        if asked.inside:
            raise ConfigurationError(
                f"{asked.feed.of} cannot be read {asked.guarantee.value}: the journal {asked.journal.where} has rows "
                f"that are not read yet, and {' and '.join(each for each in noted if each != asked.guarantee)} "
                "was what held when they were taken",
                next_step="start the query once with receiver=outside, the trigger availableNow and without "
                f"{GUARANTEE}, which reads them and takes nothing more; or leave out {GUARANTEE} here, and what holds "
                "is told",
            )
        raise ConfigurationError(
            f"{asked.feed.of} cannot be read {asked.guarantee.value}: the receiver of the journal "
            f"{asked.journal.where} keeps {' and '.join(noted)}",
            next_step="start `onceonly journal run` with the options that keep it, which counts when what was written "
            f"before is read; or leave out {GUARANTEE} here",
        )
    return noted or (asked.feed.guarantee.value,)
