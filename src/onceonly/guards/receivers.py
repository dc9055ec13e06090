"""What the receivers of a feed promise: they note it in the journal, and their word counts, not the query's options.

One may be another process; and what one inside the query has taken in an earlier life, under other options, may not be
read yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.durable.sealed import UNREADABLE, decoder
from onceonly.errors import OnceonlyError
from onceonly.guards.promises import FEEDS
from onceonly.guards.source import Finding, Source
from onceonly.settings.query import GUARANTEE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.sources.journal.place import Journal


def received(source: Source, starts: Iterable[str]) -> tuple[Sequence[Source], Finding | None]:
    """Return a source as what its receivers promise, several where these differ; and why they could not be asked.

    ``starts`` are the offsets that the epoch begins at, of all sources. Planner or driver; small files. Others come
    back as they are.
    """
    if source.format not in FEEDS or "journal" not in source.options:
        return (source,), None
    from onceonly.sources.journal.place import Journal
    from onceonly.sources.journal.promised import promises

    try:
        journal = Journal.at(source.options["journal"])
        found = promises(journal, _read_upto(journal, starts))
    except OnceonlyError as error:
        what = f"What the receiver of {source.format} promises is not known, so the query's options count: {error.what}"
        return (source,), Finding(what, next_step=error.next_step)
    told = [replace(source, options={**source.options, GUARANTEE: each}) for each in found]
    return told or (source,), None


def _read_upto(journal: Journal, starts: Iterable[str]) -> int:
    """Return the segment up to which a query has read a journal, 0 where it begins."""
    from onceonly.sources.journal.reader import Position

    identity = journal.identity()
    upto = 0
    for text in starts:
        try:
            position = decoder(Position).decode(text)
        except UNREADABLE:  # of another source
            continue
        if identity is not None and position.journal == identity.journal:
            upto = max(upto, position.segment)
    return upto
