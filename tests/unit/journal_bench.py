"""A small feed, and a journal for it, as tests of journals use them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly import failpoints
from onceonly.sources.journal import Journal, Limits, Reader, Writer
from onceonly.sources.journal.feeds import table
from onceonly.sources.journal.segments import SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa
    import pytest

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
        promise="exactly-once",
        wait_s=wait_s,
    )


def held(folder: Path | str, numbers: Iterable[int] | None = None) -> list[str | None]:
    """Return the ids of the rows in a journal, from the oldest on."""
    journal = Journal.at(str(folder))
    identity = journal.identity()
    assert identity is not None
    wanted = journal.numbers(SEGMENTS) if numbers is None else numbers
    return [each for n in wanted for each in journal.read(n, identity.journal)[1].column("id").to_pylist()]


def reader_of(folder: Path | str) -> Reader:
    return Reader(Journal.at(str(folder)), wait_s=0)


def read_upto(folder: Path | str, number: int) -> None:
    """Say for good what was read: the query names it twice, as it does after the next epoch."""
    reader = reader_of(folder)
    if Journal.at(str(folder)).reading() is None:
        reader.initial()
    reader.commit(number)
    reader.commit(number)
    reader.close()


def broken_off(folder: Path | str, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """See that a feed that gives all again after an error at a crash point leaves each row once."""
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{point}=raise")
    failpoints._counts.clear()
    read: list[str | None] = []
    with contextlib.suppress(failpoints.FailpointError), opened(folder) as writer:
        for each in "abc":
            writer.append(rows(each))
        read_upto(folder, 2)
        read = held(folder, [1, 2])
        writer.tidy(now=True)
    assert failpoints._counts
    with opened(folder) as writer:
        for each in "abc":
            writer.append(rows(each))
        writer.tidy(now=True)
    left = held(folder)
    assert sorted({*map(str, read), *map(str, left)}) == ["a", "b", "c"]
    assert len(left) == len(set(left))
