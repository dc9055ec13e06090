"""A journal beside a list: whatever is appended, killed, read, folded and cut, each row is read once and in order."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.journal_bench import held, opened, rows

from onceonly.errors import JournalError
from onceonly.sources.journal import Journal, Position, Reader
from onceonly.sources.journal.segments import SEGMENTS, name_of

if TYPE_CHECKING:
    from onceonly.sources.journal import Writer

IDS = st.lists(st.sampled_from([*"abcdefghijklmnop", *map(str, range(50))]), min_size=1, max_size=4)


class JournalModel(RuleBasedStateMachine):
    """The model is two lists: what is in the journal for good, and what the query has read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp()) / "journal"
        self.taken: list[str] = []
        self.read: list[str | None] = []
        self.ends = [0]
        self.writer: Writer | None = None
        self.reader: Reader | None = None
        self.start: Position | None = None

    @initialize()
    def begin(self) -> None:
        self.writer = opened(self.place)

    def teardown(self) -> None:
        for each in (self.writer, self.reader):
            if each is not None:
                each.close()
        shutil.rmtree(self.place.parent)

    @precondition(lambda self: self.writer is not None)
    @rule(ids=IDS)
    def append(self, ids: list[str]) -> None:
        assert self.writer is not None
        news = [each for each in dict.fromkeys(ids) if each not in self.taken]
        assert self.writer.append(rows(*ids), ids[-1]) == len(news)
        self.taken += news
        assert self.writer.mark == ids[-1]

    @precondition(lambda self: self.writer is not None)
    @rule()
    def kill_the_writer(self) -> None:
        """Its memory is gone and its lock is free."""
        assert self.writer is not None
        self.writer.close()
        self.writer = None

    @precondition(lambda self: self.writer is None)
    @rule()
    def start_a_writer(self) -> None:
        self.writer = opened(self.place)

    @precondition(lambda self: self.writer is not None)
    @rule()
    def tidy(self) -> None:
        assert self.writer is not None
        self.writer.tidy(now=True)

    @rule(rows_max=st.integers(1, 6))
    def read_an_epoch(self, rows_max: int) -> None:
        """Read it twice, as a replay does, and say that the one before is read for good."""
        if self.reader is None:
            self.reader = Reader(Journal.at(str(self.place)), wait_s=0)
            self.start = self.start or self.reader.initial()
            # The newest epoch may be run again: where it began, a query may go on.
            self.reader.require(Position(self.start.journal, self.start.reader, self.ends[-2:][0]))
        start = self.ends[-1]
        end = self.reader.limited(start, self.reader.newest(), rows_max, {})
        first = held(self.place, range(start + 1, end + 1))
        assert held(self.place, range(start + 1, end + 1)) == first
        self.read += first
        self.ends.append(end)
        self.reader.commit(end)

    @precondition(lambda self: self.reader is not None)
    @rule()
    def kill_the_query(self) -> None:
        assert self.reader is not None
        self.reader.close()
        self.reader = None

    @precondition(lambda self: len(self.ends) > 1)
    @rule()
    def replay_the_newest_epoch(self) -> None:
        again = held(self.place, range(self.ends[-2] + 1, self.ends[-1] + 1))
        assert again == self.read[len(self.read) - len(again) :]

    @precondition(lambda self: self.writer is None and self.taken)
    @rule(data=st.data())
    def cut_a_segment(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(Journal.at(str(self.place)).numbers(SEGMENTS)))
        path = self.place / name_of(SEGMENTS, number)
        whole = path.read_bytes()
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        with pytest.raises(JournalError, match=path.name):
            opened(self.place)
        path.write_bytes(whole)

    @invariant()
    def each_row_is_read_once_and_in_order(self) -> None:
        assert self.read == self.taken[: len(self.read)]

    @invariant()
    def what_is_not_read_is_there(self) -> None:
        if self.taken:
            left = held(
                self.place, [n for n in Journal.at(str(self.place)).numbers(SEGMENTS) if n > self.ends[-1]]
            )
            assert self.read + left == self.taken


TestJournal = JournalModel.TestCase
TestJournal.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
