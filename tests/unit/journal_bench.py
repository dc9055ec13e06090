"""A small feed, and a journal for it, as tests of journals use them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.sources.journal import Journal, Limits, Writer
from onceonly.sources.journal.feeds import table
from onceonly.sources.journal.segments import SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

FEED, OF = "letters", "a test"
COLUMNS = {"value": "binary", "arrived": "timestamp", "id": "string"}
LIMITS = Limits(linger_s=0.0, segment_bytes=1024, backlog_bytes=1024**2, window_s=3600)


def rows(*ids: str | None) -> pa.Table:
    """Return rows whose value tells their id."""
    return table(COLUMNS, [(f"row {each}".encode(), 0, each) for each in ids])


def opened(folder: Path | str, *, wait_s: float = 0, **limits: float) -> Writer:
    """Open the journal in a folder or on a store to write it."""
    return Writer.open(
        Journal.at(str(folder)),
        replace(LIMITS, **limits),  # type: ignore[arg-type]
        feed=FEED,
        of=OF,
        wait_s=wait_s,
    )


def held(folder: Path | str, numbers: Iterable[int] | None = None) -> list[str | None]:
    """Return the ids of the rows in a journal, from the oldest on."""
    journal = Journal.at(str(folder))
    identity = journal.identity()
    assert identity is not None
    wanted = journal.numbers(SEGMENTS) if numbers is None else numbers
    return [each for n in wanted for each in journal.read(n, identity.journal)[1].column("id").to_pylist()]
