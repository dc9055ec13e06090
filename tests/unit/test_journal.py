"""The journal: what is in it stays, byte for byte; what is known is left out; what is not fit is refused by name."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.unit.disk_bench import in_child
from tests.unit.journal_bench import FEED, OF, broken_off, held, opened, read_upto, reader_of, rows

from onceonly import failpoints
from onceonly.durable import disk
from onceonly.errors import (
    ConfigurationError,
    JournalError,
    OnceonlyError,
    SupersededError,
    UnavailableError,
)
from onceonly.operations.journals import drop, drop_reader, look
from onceonly.sources.journal import Journal, Position, claims
from onceonly.sources.journal import writer as writing
from onceonly.sources.journal.segments import CLAIMS, FOLDS, FORMAT, SEGMENTS, decode, encode, name_of
from onceonly.sources.journal.window import Clock, Window
from onceonly.stores.folder import LocalStore
from onceonly_proof.disk import CHANGES, Fault, How

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceonly.sources.journal import Writer


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a place in memory, where there is some: it is synced very often."""
    memory = Path("/dev/shm")  # noqa: S108  made by mkdtemp below it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder) / "journal"


def segment(place: Path, number: int) -> Path:
    return place / name_of(SEGMENTS, number)


def test_rows_are_read_as_often_as_one_likes_and_are_the_same_bytes(place: Path) -> None:
    with opened(place) as writer:
        assert [writer.append(rows("a", "b")), writer.append(rows("c"))] == [2, 1]
        before = {path: path.read_bytes() for path in (place / SEGMENTS).iterdir()}
    with opened(place) as writer:
        assert writer.newest == 2
        assert writer.append(rows("d")) == 1
    assert held(place) == ["a", "b", "c", "d"]
    assert {path: path.read_bytes() for path in before} == before


def test_an_id_is_taken_once_within_a_batch_across_batches_and_across_lives(place: Path) -> None:
    with opened(place) as writer:
        writer.append(rows("a", "b", "a"))
        writer.append(rows("b", "c"))
        assert writer.append(rows("c")) == 0
    with opened(place) as writer:
        assert writer.append(rows("a", "d", "c")) == 1
    assert held(place) == ["a", "b", "c", "d"]


def test_rows_without_an_id_are_never_left_out(place: Path) -> None:
    with opened(place) as writer:
        assert writer.append(rows(None, None)) == 2
        assert writer.append(rows(None)) == 1


def test_the_place_in_the_feed_is_durable_with_its_rows(place: Path) -> None:
    with opened(place) as writer:
        writer.append(rows("a"), "7")
        writer.append(rows("b"))
    with opened(place) as writer:
        assert writer.mark == "7"
        writer.append(rows("c"), "9")
        writer.append(rows("d"))
    read_upto(place, 4)
    with opened(place) as writer:
        writer.tidy(now=True)
    with opened(place) as writer:
        assert writer.mark == "9"


def test_ids_are_forgotten_after_their_time_by_a_clock_that_nobody_sets() -> None:
    now = [0.0]
    window = Window(10, clock=lambda: now[0])
    window.learn(1, [b"a"], 0.0)
    now[0] = 6.0
    window.learn(2, [b"b"], 6.0)
    window.forget()
    assert window.news([b"a", b"b", b"c", b"c", None]) == [False, False, True, False, True]
    now[0] = 12.0
    window.forget()
    assert (window.news([b"a", b"b"]), len(window)) == ([True, False], 1)


def test_the_journals_clock_stands_still_in_long_breaks_and_counts_short_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that ends each answer has a short one after each: its ids would never be forgotten."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock()
    assert (clock.after(7.0), clock.after(3.0)) == (7.0, 7.0)
    for lasts, seconds in ((0.5, 7.5), (3600.0, 8.5), (0.25, 8.75)):
        clock.stop()
        now[0] += lasts
        clock.stop()
        assert clock.seconds() == seconds
        clock.go_on()
        assert clock.seconds() == seconds
    now[0] += 2
    assert clock.seconds() == 10.75


def test_an_id_that_was_learnt_twice_is_forgotten_after_the_second_time() -> None:
    """As those of messages that are left out only where the server says that they come again."""
    now = [0.0]
    window = Window(10, clock=lambda: now[0])
    for number, at_s in ((1, 0.0), (2, 9.0)):
        assert window.news([b"a"], [False]) == [True]
        window.learn(number, [b"a"], at_s)
    now[0] = 11.0
    window.forget()
    assert window.news([b"a"]) == [False]
    now[0] = 20.0
    window.forget()
    assert (window.news([b"a"]), len(window)) == ([True], 0)


def test_an_id_that_comes_again_is_remembered_for_as_long_as_it_does(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a line without an id, which a server sends again at each connection until it has another one with an id."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def again(writer: Writer) -> None:
        for _ in range(40):
            now[0] += 60
            assert writer.append(rows("a", "a")) == 0
        assert len(writer._window._learnt) < 6

    with opened(place, window_s=600) as writer:
        writer.append(rows("a"))
        again(writer)
        writer.append(rows("b"))
        read_upto(place, 2)
        writer.tidy(now=True)
        assert held(place) == ["b"]
        again(writer)
    with opened(place, window_s=600) as writer:
        again(writer)
        now[0] += 601
        assert writer.append(rows("a")) == 1


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_an_id_that_comes_again_is_remembered_as_long_by_the_next_writer(
    place: Path, monkeypatch: pytest.MonkeyPatch, *, is_read: bool, is_killed: bool
) -> None:
    """As the first line of a stream, which comes at each connection before others that are new."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    number = 0
    for _ in range(6):
        writer = opened(place, window_s=600)
        for _ in range(9):
            now[0] += 250
            number += 1
            assert writer.append(rows("first", f"id {number}")) == (2 if number == 1 else 1)
            if is_read:
                read_upto(place, number)
                writer.tidy(now=True)
        if is_killed:
            writer._hold.close()
        else:
            writer.close()
    assert len(list((place / FOLDS).iterdir())) < 10
    with opened(place, window_s=600) as writer:
        now[0] += 601
        writer.tidy(now=True)
        assert writer.append(rows("first")) == 1


def test_ids_are_forgotten_after_their_time_by_writers_that_never_live_so_long(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a query that a scheduler starts for a minute: each knows what the others knew, and no more."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for number in range(1, 40):
        with opened(place, window_s=600) as writer:
            now[0] += 60
            again = [f"id {number - ago}" for ago in range(1, min(number, 9))]
            assert writer.append(rows(f"id {number}", *again)) == 1
            read_upto(place, number)
            writer.tidy(now=True)
            assert len(writer._window) < 20
    assert len(list((place / FOLDS).iterdir())) < 15


def test_ids_that_an_older_version_has_learnt_without_their_time_are_remembered_as_long(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with opened(place, window_s=600) as writer:
        now[0] += 5000
        writer.append(rows(None))
    with opened(place, window_s=600) as older:
        monkeypatch.setattr(older.clock, "seconds", lambda: 0.0)
        older.append(rows("a"))
    with opened(place, window_s=600) as writer:
        now[0] += 60
        assert writer.append(rows("a", "b")) == 1


def test_what_is_read_for_good_is_taken_away_and_its_ids_and_numbers_are_not(place: Path) -> None:
    with opened(place) as writer:
        for each in "abcde":
            writer.append(rows(each))
        read_upto(place, 4)
        writer.tidy(now=True)
        assert held(place) == ["e"]
        assert writer.append(rows("b", "e", "f")) == 1
    read_upto_again = reader_of(place)
    read_upto_again.commit(6)
    read_upto_again.commit(6)
    read_upto_again.close()
    with opened(place) as writer:
        assert writer.append(rows("a", "c", "f", "g")) == 1
        assert writer.newest == 7
        writer.tidy(now=True)
    assert held(place) == ["g"]


def test_the_newest_epoch_that_was_read_can_be_read_again(place: Path) -> None:
    with opened(place) as writer:
        for each in "abc":
            writer.append(rows(each))
        reader = reader_of(place)
        reader.initial()
        reader.commit(1)
        writer.tidy(now=True)
        assert held(place) == ["a", "b", "c"]
        reader.commit(2)
        writer.tidy(now=True)
        assert held(place) == ["b", "c"]
        reader.close()


def test_a_query_that_takes_one_epoch_a_start_gives_up_what_it_has_read(place: Path) -> None:
    """As one that a scheduler starts with ``availableNow``: Spark calls ``commit`` once in each start."""
    with opened(place) as writer:
        writer.append(rows("1"))
        reader = reader_of(place)
        start = reader.initial()
        reader.require(start)
        reader.close()
        for number in range(2, 6):
            writer.append(rows(str(number)))
            reader = reader_of(place)
            reader.require(Position(start.journal, start.reader, number - 1))
            reader.commit(number - 1)
            reader.close()
            writer.tidy(now=True)
            # The epoch before the newest may come again, where a power cut took what Spark has noted since.
            assert held(place) == [str(each) for each in range(max(number - 1, 1), number + 1)]


def test_what_an_earlier_start_named_is_kept_where_its_epoch_comes_again(place: Path) -> None:
    with opened(place) as writer:
        for each in "abcde":
            writer.append(rows(each))
        reader = reader_of(place)
        start = reader.initial()
        for end in (1, 2):
            reader.commit(end)
        reader.close()
        for began, end in ((1, 3), (2, 2)):
            reader = reader_of(place)
            reader.require(Position(start.journal, start.reader, began))
            reader.commit(end)
            reader.close()
            writer.tidy(now=True)
            assert held(place) == ["b", "c", "d", "e"]


def test_many_epochs_leave_few_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_TIDY_S", 0.0)
    now = itertools.count(int(time.monotonic()) + 1)
    with opened(place, window_s=0.0) as writer:
        monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
        reader = reader_of(place)
        reader.initial()
        for number in range(1, 400):
            writer.append(rows(str(number)))
            reader.commit(number)
        reader.close()
    assert sum(1 for path in place.rglob("*") if path.is_file()) < 30


def test_a_journal_that_is_full_says_so_until_something_is_read(place: Path) -> None:
    with opened(place, backlog_bytes=3 * 4096) as writer:
        for each in "abc":
            assert not writer.is_full()
            writer.append(rows(each))
        assert writer.is_full()
        read_upto(place, 2)
        assert not writer.is_full()
    with opened(place, backlog_bytes=4096) as writer:
        assert writer.is_full()


def test_a_full_journal_of_which_all_was_read_takes_more_until_that_is_given_up(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that a receiver has filled before the first start: one epoch reads all, and Spark plans none after it."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with opened(place, backlog_bytes=3 * 4096) as writer:
        for each in "abc":
            writer.append(rows(each))
        reader = reader_of(place)
        start = reader.initial()
        reader.require(start)
        assert reader.newest(start.segment) == 3
        assert (reader.newest(3), writer.is_full()) == (3, True)  # it may still be writing what it has read
        for each, after in (("d", 3), ("e", 4)):
            now[0] += 1
            assert (reader.newest(after), writer.is_full()) == (after, False)
            writer.append(rows(each))
            assert writer.is_full()
            assert reader.newest(after) == after + 1
            reader.commit(after)
        assert not writer.is_full()
        assert held(place) == ["d", "e"]
        reader.close()


def test_a_query_that_has_read_all_goes_on_though_that_cannot_be_noted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with opened(place) as writer:
        writer.append(rows("a"))
        reader = reader_of(place)
        reader.initial()

        def refuse(*_: object) -> None:
            raise UnavailableError("the disk is full", next_step="make room")

        with monkeypatch.context() as patched:
            patched.setattr(reader._journal, "note_reading", refuse)
            now[0] += 1
            assert reader.newest(1) == 1
        now[0] += 1
        assert reader.newest(1) == 1
        noted = Journal.at(str(place)).reading()
        assert noted is not None
        assert noted.stood == 1
        reader.close()


def test_a_disk_that_is_nearly_full_is_told_before_anything_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place) as writer:
        writer.append(rows("a"))
        real = os.statvfs(place)
        monkeypatch.setattr(
            os, "statvfs", lambda _: os.statvfs_result((real.f_bsize, 1, *(0,) * 8, 255)[:10])
        )
        with pytest.raises(UnavailableError, match="nearly full"):
            writer.append(rows("b"))
    assert held(place) == ["a"]


def test_only_one_process_writes_and_only_one_query_reads(place: Path) -> None:
    with opened(place):
        with pytest.raises(ConfigurationError, match=f"another process writes .* process {os.getpid()}"):
            opened(place)
        reader = reader_of(place)
        with pytest.raises(ConfigurationError, match="another query reads"):
            reader_of(place)
        reader.close()
        reader_of(place).close()


def test_without_locks_the_writer_whose_number_is_taken_stops(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "lock", lambda *_: None)
    with opened(place) as older, opened(place) as newer:
        newer.append(rows("a"))
        with pytest.raises(SupersededError, match="segment 1"):
            older.append(rows("a"))
    assert held(place) == ["a"]


def test_without_locks_the_query_that_began_to_read_before_stops(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a fork and its original on a store: what the older one has not read is not deleted by its late note."""
    monkeypatch.setattr(Journal, "lock", lambda *_: None)
    with opened(place) as writer:
        for each in "abcd":
            writer.append(rows(each))
        older, newer = reader_of(place), reader_of(place)
        start = older.initial()
        older.require(start)
        older.commit(1)
        newer.require(start)
        newer.commit(1)
        late = Journal.at(str(place)).reading()
        assert late is not None
        assert older._claim is not None
        older._claim._looked_at -= 60
        for refused in (older.newest, lambda: older.commit(3)):
            with pytest.raises(SupersededError, match=r"reads the journal .* now; this one has stopped"):
                refused()
        Journal.at(str(place)).note_reading(msgspec.structs.replace(late, upto=3, claim=late.claim - 1))
        writer.tidy(now=True)
        assert held(place) == ["a", "b", "c", "d"]
        newer.commit(2)
        writer.tidy(now=True)
        assert held(place) == ["b", "c", "d"]
        assert newer.newest() == 4


def test_a_query_may_begin_to_read_while_a_receiver_opens_the_journal(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place) as writer:
        writer.append(rows("a"))
    link, opens = os.link, [lambda: opened(place).close()]

    def between(source: Path, final: Path) -> None:
        if opens and CLAIMS in str(final):
            opens.pop()()
        link(source, final)

    monkeypatch.setattr(os, "link", between)
    assert reader_of(place).initial().segment == 0
    assert not opens


def test_a_query_that_is_refused_stops_nobody(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "lock", lambda *_: None)
    monkeypatch.setattr(claims, "_LOOK_S", 0.0)
    with opened(place) as writer:
        for each in "abcd":
            writer.append(rows(each))
        reader = reader_of(place)
        start = reader.initial()
        for end in (1, 2, 3):
            reader.commit(end)
        with pytest.raises(JournalError, match="was read up to segment 2"):
            reader_of(place).require(start)
        with pytest.raises(JournalError, match="by another query"):
            reader_of(place).initial()
        assert reader.newest() == 4
        drop_reader(str(place))
        with pytest.raises(SupersededError):
            reader.newest()


def test_a_writer_whose_journal_was_dropped_stops_and_its_rest_can_be_dropped(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a store, where no lock refuses to drop it: what was acknowledged since would be found by nobody."""
    monkeypatch.setattr(Journal, "lock", lambda *_: None)
    monkeypatch.setattr(writing, "_TIDY_S", 0.0)
    with opened(place) as writer:
        writer.append(rows("a"))
        journal = Journal.at(str(place))
        for name in (name_of(SEGMENTS, 1), "journal"):
            journal.store.delete(name)
        monkeypatch.setattr(writing, "_TIDY_S", 60.0)
        writer.append(rows("b"))
        monkeypatch.setattr(writing, "_TIDY_S", 0.0)
        with pytest.raises(JournalError, match="was dropped"):
            writer.append(rows("c"))
    with pytest.raises(JournalError, match="'journal' is gone"):
        opened(place)
    drop(str(place))
    opened(place).close()


def test_a_lock_that_cannot_be_opened_is_told(place: Path) -> None:
    opened(place).close()
    (place / "writer.lock").unlink()
    (place / "writer.lock").mkdir()
    with pytest.raises(UnavailableError, match=r"writer\.lock could not be opened: Is a directory"):
        opened(place)


def test_only_its_user_can_read_it(place: Path) -> None:
    opened(place).close()
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o755)
    with pytest.raises(ConfigurationError, match="can be read by other users"):
        opened(place)


def test_a_journal_belongs_to_one_feed(place: Path) -> None:
    opened(place).close()
    with pytest.raises(JournalError, match=f"holds rows of {FEED} {OF}, not of {FEED} another"):
        Journal.at(str(place)).make(FEED, "another")


def test_a_long_journal_on_a_distant_store_is_opened_planned_and_taken_away_by_several_requests_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, those of a week would take hours, in which nothing is taken from the feed."""
    with opened(place) as writer:
        for each in "abcdefgh":
            writer.append(rows(each))
    together = threading.Barrier(4, timeout=20)

    def beside(name: str) -> Callable[..., object]:
        real = getattr(LocalStore, name)

        def call(self: LocalStore, at: str, *more: int) -> object:
            if at.startswith(SEGMENTS):
                together.wait()
            return real(self, at, *more)

        return call

    monkeypatch.setattr(LocalStore, "abreast", 4)
    for name in ("get", "get_first", "delete"):
        monkeypatch.setattr(LocalStore, name, beside(name))
    with opened(place) as writer:
        assert (writer.newest, writer.append(rows(*"abcdefghi"))) == (8, 1)
        reader = reader_of(place)
        assert reader.limited(0, 8, 7, {}) == 7
        reader.close()
        read_upto(place, 9)
        writer.tidy(now=True)
        assert [path.name for path in segment(place, 9).parent.iterdir()] == [segment(place, 9).name]
        for each in "jkl":
            writer.append(rows(each))
        assert look(str(place)).segments == 4
    drop(str(place))
    assert not place.exists()


def test_a_long_journal_that_is_read_at_last_is_taken_away_a_part_at_a_time(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its feed would be left alone until all is deleted."""
    monkeypatch.setattr(writing, "_TIDY_MOST", 2)
    with opened(place) as writer:
        for each in "abcdef":
            writer.append(rows(each))
        read_upto(place, 6)
        for left in ("cdef", "ef", "f"):
            writer.tidy(now=True)
            assert held(place) == list(left)
    with opened(place) as writer:
        assert writer.append(rows(*"abcdefg")) == 1


def test_a_query_begins_where_the_journal_begins_and_no_other_takes_its_place(place: Path) -> None:
    with opened(place) as writer:
        writer.append(rows("a"))
    reader = reader_of(place)
    first = reader.initial()
    assert reader.initial() == first
    assert first.segment == 0
    assert Position.of(first.offset) == first
    for _ in range(2):
        reader.commit(1)
    with pytest.raises(JournalError, match="by another query"):
        reader.initial()
    reader.close()
    other = reader_of(place)
    with pytest.raises(JournalError, match="by another query"):
        other.require(Position(first.journal, "another", 0))
    with pytest.raises(JournalError, match="made anew"):
        other.require(Position("another", first.reader, 0))
    with pytest.raises(ConfigurationError, match="of another source"):
        Position.of({"rows": 1})
    other.close()


def test_a_new_checkpoint_reads_nothing_that_another_has_read_however_little_that_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a job whose only epoch is in its target when its checkpoint is removed, or another one takes over."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with opened(place) as writer:
        writer.append(rows("a"))
        reader = reader_of(place)
        start = reader.initial()
        reader.require(start)
        now[0] += 1
        assert reader.newest(start.segment) == 1
        reader.stand(start.segment)
        assert reader.initial() == start  # of a start that has died before its first epoch
        reader.stand(1)
        reader.close()
        for _ in range(2):
            reader = reader_of(place)
            with pytest.raises(
                JournalError, match="was read up to segment 1 by another query, or on another"
            ):
                reader.initial()
            reader.close()
        drop_reader(str(place))
        for each in "bc":
            writer.append(rows(each))
        read_upto(place, 2)
        writer.tidy(now=True)
        drop_reader(str(place))
        reader = reader_of(place)
        start = reader.initial()
        assert (start.segment, held(place)) == (2, ["c"])
        reader.stand(2)  # it has waited, and read nothing
        assert reader.initial() == start
        reader.commit(3)
        with pytest.raises(JournalError, match="was read up to segment 3"):
            reader.initial()
        reader.close()


def test_a_query_that_goes_on_before_what_was_read_for_good_is_refused_though_it_stands(place: Path) -> None:
    """As one whose older checkpoint was restored: it would begin, and its rows be deleted while it reads them."""
    with opened(place) as writer:
        for each in "abcd":
            writer.append(rows(each))
        reader = reader_of(place)
        start = reader.initial()
        reader.require(start)
        for end in (1, 2, 3):
            reader.commit(end)
        reader.require(start)  # was seen once: later ones of its life follow
        reader.close()
        assert held(place) == ["a", "b", "c", "d"]
        for segment, is_refused in ((0, True), (1, True), (2, False), (3, False)):
            reader = reader_of(place)
            position = Position(start.journal, start.reader, segment)
            if is_refused:
                with pytest.raises(JournalError, match="was read up to segment 2 for good"):
                    reader.require(position)
            else:
                reader.require(position)
            reader.close()
        writer.tidy(now=True)
        (place / "reading").unlink()
        reader = reader_of(place)
        with pytest.raises(JournalError, match="keeps no segments before 3"):
            reader.require(Position(start.journal, start.reader, 1))
        assert not (place / "reading").exists()
        reader.close()


def test_a_journal_that_went_back_is_told_before_rows_are_passed_over(place: Path) -> None:
    with opened(place) as writer:
        for each in "abc":
            writer.append(rows(each))
    segment(place, 3).unlink()
    reader = reader_of(place)
    start = reader.initial()
    assert reader.newest(after=2) == 2
    for refused in (
        lambda: reader.newest(after=3),
        # Before a writer gives the number anew: a look after that would not see it.
        lambda: reader.require(Position(start.journal, start.reader, 3, "of before")),
    ):
        with pytest.raises(JournalError, match="ends with segment 2, and this query has read up to 3"):
            refused()
    reader.close()


def test_a_journal_that_went_back_and_was_written_on_is_told_before_rows_are_passed_over(
    place: Path, tmp_path: Path
) -> None:
    """As of a receiver beside the job, which begins before the query: by then the journal is as long as before."""
    with opened(place) as writer:
        writer.append(rows("a"))
        shutil.copytree(place, tmp_path / "older")
        writer.append(rows("b"))
        reader = reader_of(place)
        start = reader.initial()
        end = reader.after(start, reader.newest(), writer.writers)
        assert reader.after(start, 2, {}) == end
        assert Position.of(end.offset) == end
        reader.close()
    with opened(place) as writer:
        assert writer.writers[2] == end.writer
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "older", place)
    with opened(place) as writer:
        for each in "cd":
            writer.append(rows(each))
    for before in ((), (start,)):
        reader = reader_of(place)
        for position in before:
            reader.require(position)
        with pytest.raises(JournalError, match="another segment 2 than this query has read"):
            reader.require(end)
        reader.close()
    reader = reader_of(place)
    reader.require(Position(end.journal, end.reader, 2))  # an older version says of no writer
    reader.close()


def test_an_epoch_takes_whole_segments_up_to_its_limit(place: Path) -> None:
    with opened(place) as writer:
        for some in ("ab", "c", "def"):
            writer.append(rows(*some))
        reader = reader_of(place)
        assert [reader.limited(0, 3, most, writer.rows) for most in (1, 2, 3, 5, 6)] == [1, 1, 2, 2, 3]
        assert [reader.limited(0, 3, most, {}) for most in (1, 2, 3, 5, 6)] == [1, 1, 2, 2, 3]
        assert reader.limited(3, 3, 1, {}) == 3
        reader.close()


def test_a_query_without_a_receiver_learns_of_a_segment_without_reading_its_rows(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors read them; the driver only asks who wrote a segment, and how many rows it has."""
    asked: list[int] = []
    whole = LocalStore.get

    def first(store: LocalStore, name: str, size: int) -> bytes | None:
        data = whole(store, name)
        asked.append(size)
        return None if data is None else data[:size]

    def refused(store: LocalStore, name: str) -> bytes | None:
        assert not name.startswith(SEGMENTS), name
        return whole(store, name)

    with opened(place) as writer:
        writer.append(rows(*(f"{number:0>100}" for number in range(1000))))
        writer.append(rows("b", "c"))
        name = writer.writers[2]
    monkeypatch.setattr(LocalStore, "get", refused)
    monkeypatch.setattr(LocalStore, "get_first", first)
    reader = reader_of(place)
    begin = reader.initial()
    assert [reader.limited(0, 2, most, {}) for most in (1, 1001, 1002)] == [1, 1, 2]
    end = reader.after(begin, 2, {})
    assert end.writer == name
    reader.close()
    again = reader_of(place)
    again.require(begin)
    again.require(end)
    again.close()
    assert asked == [4096] * 3


@pytest.mark.parametrize("is_older", [False, True])
def test_what_a_segment_says_of_itself_is_known_however_long_it_is_and_whoever_wrote_it(
    place: Path, *, is_older: bool
) -> None:
    with opened(place) as writer:
        writer.append(rows("a", "b"), mark="m" if is_older else "m" * 5000)
        name, identity = writer.writers[1], writer._identity
    if is_older:  # which has not said how many rows there are
        head, read = decode(segment(place, 1).read_bytes(), 1, where="")
        segment(place, 1).write_bytes(encode(msgspec.structs.replace(head, rows=-1), read))
    found = Journal.at(str(place)).head(1, identity)
    assert (found.writer, found.rows, found.mark) == (name, 2, "m" if is_older else "m" * 5000)


def test_a_segment_that_is_cut_at_any_byte_is_refused_by_name(place: Path) -> None:
    with opened(place) as writer:
        writer.append(rows("a"))
    whole = segment(place, 1).read_bytes()
    for size in range(len(whole)):
        segment(place, 1).write_bytes(whole[:size])
        with pytest.raises(JournalError, match=r"00001 (is empty or torn|is torn|has a damaged header)"):
            opened(place)
    segment(place, 1).write_bytes(whole)
    opened(place).close()


def test_a_segment_with_any_byte_changed_is_refused_by_name(place: Path) -> None:
    with opened(place) as writer:
        writer.append(rows("a"))
    whole = segment(place, 1).read_bytes()
    for at in range(len(whole)):
        segment(place, 1).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(JournalError, match=str(segment(place, 1))):
            opened(place)


def test_a_newer_version_is_refused_by_name(place: Path) -> None:
    with opened(place) as writer:
        writer.append(rows("a"))
    data = segment(place, 1).read_bytes()
    segment(place, 1).write_bytes(data.replace(b'"version":1', b'"version":2'))
    with pytest.raises(JournalError, match="format 2, written by a newer onceonly"):
        opened(place)


@pytest.mark.parametrize(
    ("before", "after"),
    [(b'"rows":1', b'"rows":"one"'), (b"\xff\xff\xff\xff", b"\x00\x00\x00\x09")],
    ids=["head", "rows"],
)
def test_a_segment_of_another_version_is_not_called_damaged(before: bytes, after: bytes, place: Path) -> None:
    """Its head, or its rows, say what this version does not know."""
    with opened(place) as writer:
        writer.append(rows("a"))
    body = FORMAT.unseal(segment(place, 1).read_bytes(), kind="segment", where="")
    segment(place, 1).write_bytes(FORMAT.seal("segment", body.replace(before, after, 1)))
    with pytest.raises(
        JournalError, match=r"is whole, and says what .* another version of it wrote it"
    ) as told:
        opened(place)
    assert told.value.next_step is not None
    assert "upgrade onceonly" in told.value.next_step


def test_a_head_of_another_version_is_not_called_damaged_where_it_alone_is_read(place: Path) -> None:
    with opened(place) as writer:
        writer.append(rows("a"))
    identity = Journal.at(str(place)).identity()
    assert identity is not None
    body = FORMAT.unseal(segment(place, 1).read_bytes(), kind="segment", where="")
    segment(place, 1).write_bytes(FORMAT.seal("segment", body.replace(b'"rows":1', b'"rows":"one"')))
    with pytest.raises(JournalError, match="another version of it wrote it"):
        Journal.at(str(place)).head(1, identity.journal)


def test_a_fold_of_another_version_is_not_called_damaged(place: Path) -> None:
    with opened(place) as writer:
        for each in "abc":
            writer.append(rows(each))
        read_upto(place, 2)
        writer.tidy(now=True)
    fold = place / name_of(FOLDS, 2)
    body = FORMAT.unseal(fold.read_bytes(), kind="fold", where="")
    fold.write_bytes(FORMAT.seal("fold", body.replace(b'"at_s":', b'"at_s":[],"was":')))
    with pytest.raises(JournalError, match="another version of it wrote it"):
        opened(place)


def test_a_segment_that_is_gone_or_moved_is_told(place: Path) -> None:
    with opened(place) as writer:
        for each in "abc":
            writer.append(rows(each))
    shutil.copy(segment(place, 1), segment(place, 2))
    with pytest.raises(JournalError, match="holds segment 1"):
        opened(place)
    segment(place, 2).unlink()
    with pytest.raises(JournalError, match=r"segment 2 of the journal .* is gone"):
        opened(place)
    with pytest.raises(JournalError, match="is gone, and it is not read yet"):
        held(place, [2])
    (place / "journal").unlink()
    with pytest.raises(JournalError, match="'journal' is gone"):
        opened(place)


def test_the_newest_segment_is_made_durable_before_anybody_stands_on_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[str] = []
    monkeypatch.setattr(disk, "renew", lambda path, _: renewed.append(path.name))
    with opened(place) as writer:
        writer.append(rows("a"))
        writer.append(rows("b"))
    assert renewed == []
    opened(place).close()
    assert renewed == [segment(place, 2).name]
    reader = reader_of(place)
    assert (reader.newest(), reader.newest()) == (2, 2)
    assert renewed == [segment(place, 2).name] * 2
    reader.close()


def receive(writer: Writer, each: str) -> None:
    """Take a message, and acknowledge it when it is durable."""
    writer.append(rows(each), each)
    told = os.open(os.environ["TOLD"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(told, each.encode())
    os.close(told)


def _sent_again(place: Path) -> None:
    """Take all messages, as a server sends them again whose acknowledgements are lost."""
    with opened(place) as writer:
        for each in "abc":
            writer.append(rows(each), each)
            writer.tidy(now=True)


KINDS = ((How.KILL, 5), (How.REFUSE, 5), (How.LOSE, 5), (How.FULL, 28))


def test_a_call_that_writes_may_fail_and_nothing_is_lost_or_doubled(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the calls every day: each in another way."""
    total = in_child(lambda: _written(place), place, calls=CHANGES).total
    assert total > 20
    for nth in range(1, total + 1, 7):
        _fails(place.parent / str(nth), Fault(nth, *KINDS[nth % 4]), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("how", KINDS, ids=lambda how: str(how[0]))
def test_every_call_that_writes_may_fail_and_nothing_is_lost_or_doubled(
    place: Path, how: tuple[How, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    total = in_child(lambda: _written(place), place, calls=CHANGES).total
    for nth in range(1, total + 1):
        _fails(place.parent / str(nth), Fault(nth, *how), monkeypatch)


def _fails(world: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    told, place = world / "told", world / "journal"
    monkeypatch.setenv("TOLD", str(told))
    end = in_child(lambda: _written(place), place, fault=fault, calls=CHANGES)
    assert end.at is not None or end.status < 0, fault
    again = in_child(lambda: _sent_again(place), place)
    assert again.status == 0, (fault, end, again.said)
    acknowledged = told.read_text() if told.exists() else ""
    seen = held(place)
    assert set(acknowledged) <= set(seen), (fault, end)
    assert sorted(map(str, seen)) == list("abc"), (fault, end, seen)


def _written(place: Path) -> None:
    with opened(place) as writer:
        for each in "ab":
            receive(writer, each)
    with opened(place) as writer:
        receive(writer, "c")


@pytest.mark.parametrize("point", failpoints.OF_JOURNALS)
def test_at_each_crash_point_nothing_is_lost_or_doubled(
    place: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.mkdir(mode=0o700)
    broken_off(place, point, monkeypatch)


def test_a_journal_is_not_made_over_what_a_broken_off_drop_has_left(place: Path) -> None:
    """By the note of what was read, the next one would delete rows that nobody has read."""
    with opened(place) as writer:
        for each in "abc":
            writer.append(rows(each))
        read_upto(place, 2)
        writer.tidy(now=True)
    fold = place / name_of(FOLDS, 2)
    ids = fold.read_bytes()
    for path in (segment(place, 3), fold, place / "journal"):
        path.unlink()
    with pytest.raises(JournalError, match=r"has the file 'reading' but its file 'journal' is gone"):
        opened(place)
    fold.write_bytes(ids)
    with pytest.raises(JournalError, match=r"has folds and the file 'reading' but its file 'journal'"):
        opened(place)
    drop(str(place))
    with opened(place) as writer:
        assert [writer.append(rows(each)) for each in "abc"] == [1, 1, 1]


def test_a_fold_of_another_journal_is_refused(place: Path) -> None:
    for where, ids in ((place, "xyz"), (place.with_name("other"), "abc")):
        with opened(where) as writer:
            for each in ids:
                writer.append(rows(each))
            read_upto(where, 2)
            writer.tidy(now=True)
    shutil.copy(place.with_name("other") / name_of(FOLDS, 2), place / name_of(FOLDS, 2))
    with pytest.raises(JournalError, match=r"folds/.*2 is of another journal"):
        opened(place)


def test_a_fold_of_another_version_or_that_is_torn_is_refused(place: Path) -> None:
    with opened(place) as writer:
        for each in "abc":
            writer.append(rows(each))
        read_upto(place, 2)
        writer.tidy(now=True)
    fold = place / name_of(FOLDS, 2)
    fold.write_bytes(fold.read_bytes()[:-1])
    with pytest.raises(OnceonlyError, match=str(fold)):
        opened(place)
