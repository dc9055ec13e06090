"""What a feed whose receiver is another process promises: the receiver notes it in the journal, and its word counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import OnceonlyError
from onceonly.guards.promises import FEEDS
from onceonly.guards.source import Finding, Source
from onceonly.settings.query import GUARANTEE

if TYPE_CHECKING:
    from collections.abc import Sequence


def received(source: Source) -> tuple[Sequence[Source], Finding | None]:
    """Return a source as what its receivers promise, several where these differ; and why they could not be asked.

    Planner or driver; one small file. Others come back as they are.
    """
    outside = source.options.get("receiver", "").strip().lower() == "outside"
    if source.format not in FEEDS or not outside or "journal" not in source.options:
        return (source,), None
    from onceonly.sources.journal.place import Journal

    try:
        promises = Journal.at(source.options["journal"]).receiving()
    except OnceonlyError as error:
        what = f"What the receiver of {source.format} promises is not known, so the query's options count: {error.what}"
        return (source,), Finding(what, next_step=error.next_step)
    return [replace(source, options={**source.options, GUARANTEE: each}) for each in promises] or (
        source,
    ), None
