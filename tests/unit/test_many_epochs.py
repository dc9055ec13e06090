"""A week of epochs, by a clock of the test's own: what each source keeps stays small, and who was away is told."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit import journal_bench
from tests.unit.journal_bench import FEED, OF, rows
from tests.unit.kinesis_double import Stream as KinesisStream
from tests.unit.test_kinesis_source import Query, no_pause  # noqa: F401  a fixture
from tests.unit.test_rabbitmq_stream import OPTIONS, message

from onceonly.errors import ConfigurationError, JournalError, OnceonlyError, SourceChangedError
from onceonly.sources.collection import Collection
from onceonly.sources.http import rows as http_rows
from onceonly.sources.journal import Journal, Reader, Writer
from onceonly.sources.journal.feeds import Gather
from onceonly.sources.kinesis import ranges
from onceonly.sources.kinesis.ranges import KEPT
from onceonly.sources.rabbitmq_stream.messages import FIRST, LAST, Stream
from onceonly.sources.rabbitmq_stream.options import SourceOptions
from onceonly.sources.rabbitmq_stream.planning import Planner
from onceonly_proof.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly.sources.rabbitmq_stream.messages import Message

EPOCHS = pytest.mark.parametrize("epochs", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
EPOCH_S = 6.0
"""A hundred thousand of them are a week."""
LIFE = 1_000
"""So many epochs a start has."""
LIMITS = replace(journal_bench.LIMITS, window_s=600)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time, which the test moves on."""
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


class Fed:
    """A journal in memory, its writer and the query that reads it, which live as long as each other."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.journal = Journal(self.store, "the journal")
        self.begin()
        self.at = self.reader.initial()

    def begin(self) -> None:
        self.writer = Writer.open(self.journal, LIMITS, feed=FEED, of=OF, wait_s=0)
        self.reader = Reader(self.journal, wait_s=0)

    def epoch(self, number: int) -> None:
        self.writer.append(rows(f"id {number}"), mark=str(number))
        self.reader.require(self.at)
        newest = self.reader.newest(after=self.at.segment)
        assert newest > self.at.segment
        self.at = type(self.at)(self.at.journal, self.at.reader, newest)
        self.reader.commit(newest)


# ------------------------------------------------------------------------------------------- bounded
@EPOCHS
def test_a_journal_of_any_feed_stays_small(clock: list[float], epochs: int) -> None:
    fed, most = Fed(), 0
    for number in range(epochs):
        if number % LIFE == LIFE - 1:
            fed.begin()
        fed.epoch(number)
        clock[0] += EPOCH_S
        most = max(most, len(fed.store.files))
    remembered = LIMITS.window_s / EPOCH_S
    # Folds of the ids that are remembered, as many as there were tidyings, and the newest segments.
    assert most < remembered + 20
    assert len(fed.writer._window) < remembered + 20
    assert max(len(fed.writer._bytes), len(fed.writer.rows), len(fed.writer._folds)) < remembered + 20
    assert fed.at.segment == epochs


@EPOCHS
@pytest.mark.usefixtures("no_pause")
def test_ranges_of_kinesis_stay_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float], epochs: int
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(ranges, "open_store", lambda _address: store)
    stream, most = KinesisStream(2), 0
    query = Query(stream, tmp_path, tasks="2")
    for number in range(epochs):
        stream.put(f"k{number % 7}", b"row")
        if number % LIFE == LIFE - 1:
            query.live()
        assert query.epoch() == [b"row"]
        query.planner.forget(query.offset)
        clock[0] += EPOCH_S
        most = max(most, len(store.files))
    assert most <= 2 * (KEPT + 10) + 1  # of two tasks, forgotten at every tenth epoch; and the mark
    assert len(json.dumps(query.offset.json)) < 700


class Grown(Stream):
    """A stream of so many messages, whose consumers are counted."""

    def __init__(self, **given: str) -> None:
        super().__init__(SourceOptions.of({**OPTIONS, **given}))
        self.first = self.count = 0
        self.open = 0

    def consumer(self, place: Any, window: int, *, goes_on: bool = True) -> Any:  # noqa: ANN401  as the stream's
        self.open += 1
        newest = max(self.count - 1, self.first)
        return Tail(
            self, max({FIRST: 0, LAST: newest}.get(place, place), self.first), window, goes_on=goes_on
        )

    def is_empty(self) -> bool:
        return self.count == self.first


class Tail:
    """A consumer of it, from an offset on."""

    def __init__(self, stream: Grown, at: int, window: int, *, goes_on: bool) -> None:
        self._stream, self._at, self._window, self._goes_on = stream, at, window, goes_on
        self._given = 0
        self.is_open = True

    @property
    def is_full(self) -> bool:
        return not self._goes_on and self._given >= self._window

    def next(self, _wait_s: float) -> Message | None:
        if self.is_full or self._at >= self._stream.count:
            return None
        self._at, self._given = self._at + 1, self._given + 1
        return message(self._at - 1)

    def close(self) -> None:
        self._stream.open -= self.is_open
        self.is_open = False


@EPOCHS
def test_a_stream_of_rabbitmq_is_watched_by_few_consumers(clock: list[float], epochs: int) -> None:
    """It keeps no files at all: what an epoch reads is in its offset."""
    stream = Grown(tasks="2")
    stream.count = 1
    planner, most = planner_of(stream), 0
    at = planner.initial()
    for _ in range(epochs):
        stream.count += 3
        end = planner.following(at)
        assert end.offset == stream.count - 1
        planner.shares(at, end)
        at = end
        clock[0] += EPOCH_S
        most = max(most, stream.open)
    assert most <= 3
    assert len(json.dumps(at.json)) < 150


def planner_of(stream: Grown) -> Planner:
    planner = Planner(stream.options)
    planner._stream = stream
    return planner


@EPOCHS
def test_rows_of_http_without_an_id_are_remembered_in_bounds(
    monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    monkeypatch.setattr(http_rows, "_NAMELESS_MAX", 100)
    gather = Gather({"value": "binary", "arrived": "timestamp", "id": "string", "event": "string"}, LIMITS)
    lines = http_rows.Lines(None, "id", "a server", "")
    for number in range(epochs):
        lines.take(b'{"other":%d}' % number, gather)
        if number % LIFE == 0:
            gather.take(lines.last)
    assert len(lines._nameless._seen) <= 100


@EPOCHS
def test_a_place_in_a_collection_is_as_small_at_its_end(epochs: int) -> None:
    given = Collection(pa.table({"number": range(epochs)}))
    for rows_before in range(epochs):
        place = given.position(rows_before)
        assert given.rows_before(place) == rows_before
    assert len(json.dumps(place)) < 80


# ---------------------------------------------------------------------------------------------- away
def away_from_a_journal() -> Iterator[tuple[OnceonlyError, str]]:
    """Yield what a query is told that goes on where a backup of its checkpoint stood a week ago."""
    fed = Fed()
    for number in range(10):
        fed.epoch(number)
    older = fed.at
    for number in range(10, 200):
        fed.epoch(number)
    fed.writer.tidy(now=True)
    with pytest.raises(JournalError) as told:
        Reader(fed.journal, wait_s=0).require(older)
    yield (
        told.value,
        r"read up to segment 199 for good, and the query goes on after 10: what lies between is deleted",
    )
    fed.store.delete("reading")
    with pytest.raises(JournalError) as told:
        Reader(fed.journal, wait_s=0).require(older)
    yield told.value, r"keeps no segments before 200, and the query goes on after 10"


def away_from_a_stream() -> Iterator[tuple[OnceonlyError, str]]:
    stream = Grown()
    stream.count = 20
    planner = planner_of(stream)
    at = planner.following(planner.initial())
    stream.first, stream.count = 5_000, 6_000
    for look in (planner_of(stream).following, planner_of(stream).require_kept):
        with pytest.raises(SourceChangedError) as told:
            look(at)
        yield told.value, r"keeps no messages from offset 20 to 4999: its retention took them"


def away_from_kinesis(folder: Path) -> Iterator[tuple[OnceonlyError, str]]:
    stream = KinesisStream()
    query = Query(stream, folder)
    for number in range(20):
        stream.put("k", b"%d" % number)
    query.epoch()
    for number in range(20):
        stream.put("k", b"%d" % number)
    shard = next(iter(stream.shards.values()))
    shard.trimmed = 30
    stream.at += 25 * 3600
    stream.age += 1
    query.live()
    with pytest.raises(SourceChangedError) as told:
        query.epoch()
    yield (
        told.value,
        r"its record 0+20, up to which was read, is gone, and the next that is kept came on \d{4}-",
    )


def away_from_a_collection() -> Iterator[tuple[OnceonlyError, str]]:
    place = Collection(pa.table({"number": [1, 2, 3]})).position(3)
    with pytest.raises(ConfigurationError) as told:
        Collection(pa.table({"number": [3]})).rows_before(place)
    yield told.value, r"stands after 3 rows of another collection than the 1 given now"


@pytest.mark.usefixtures("no_pause")
def test_who_was_away_for_longer_than_rows_are_kept_is_told_what_is_gone(tmp_path: Path) -> None:
    found = [
        *away_from_a_journal(), *away_from_a_stream(), *away_from_kinesis(tmp_path), *away_from_a_collection(),
    ]  # fmt: skip
    for error, says in found:
        assert re.search(says, error.what), error.what
        assert error.next_step


def test_who_was_away_for_shorter_goes_on(clock: list[float]) -> None:
    fed = Fed()
    for number in range(50):
        fed.epoch(number)
    clock[0] += 7 * 24 * 3600
    fed.begin()
    fed.epoch(50)
    assert fed.at.segment == 51

    stream = Grown()
    stream.count = 20
    at = planner_of(stream).initial()
    stream.count = 100_000
    planner = planner_of(stream)
    assert planner.following(at).offset >= 199
    assert planner.following(at, 10).offset == 9
