"""The Kinesis source without Spark: whatever is killed, tried twice, split or trimmed, a replay reads the same."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.kinesis_double import Stream, error

from onceonly.errors import ConfigurationError, SourceChangedError, UnavailableError
from onceonly.families import kinesis
from onceonly.sources.kinesis import planning, ranges
from onceonly.sources.kinesis.options import SourceOptions
from onceonly.sources.kinesis.planning import Planner
from onceonly.sources.kinesis.positions import Offset, forked
from onceonly.sources.kinesis.ranges import KEPT, Ranges
from onceonly.sources.kinesis.reading import Share, Task, shares
from onceonly.sources.kinesis.rows import batches, unpacked
from onceonly.stores.opened import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.stores.port import RewritableStore


class FakeClock:
    """A clock that sleeps in no time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


class Query:
    """A query on a stream: epoch by epoch, as Spark asks."""

    def __init__(self, stream: Stream, folder: Path, **options: str) -> None:
        self.stream = stream
        given = {"stream": "orders", "region": "r", "onceonly.ranges": str(folder / "ranges"), **options}
        self.options = SourceOptions.of(given)
        self.live()
        self.offset = self.planner.initial()
        self.rows: list[bytes] = []

    def live(self) -> None:
        """Begin a new life: nothing is known but the offset."""
        self.planner = Planner(self.options, self.client())

    def client(self) -> kinesis.Stream:
        client = kinesis.Stream(self.options.stream, "the source kinesis", FakeClock())
        client._client = self.stream
        return client

    def plan(self, records_max: int | None = None) -> list[Share]:
        """Plan the next epoch; no shares where there is nothing new. Offsets go through JSON, as Spark keeps them."""
        following = self.planner.following(self.offset, records_max)
        if following is self.offset:
            return []
        self.offset = Offset.of(json.loads(json.dumps(following.json)))
        return shares(self.offset, self.planner.nexts(self.offset), self.planner.keeps_s)

    def read(self, share: Share) -> list[bytes]:
        found = Task(self.options, share, self.client()).records()
        return [record["Data"] for name in sorted(found) for record in found[name]]

    def epoch(self, records_max: int | None = None) -> list[bytes]:
        found = [row for share in self.plan(records_max) for row in self.read(share)]
        self.rows += found
        return found

    def drain(self, records_max: int | None = None) -> list[bytes]:
        """Read epochs until nothing is new."""
        before = self.offset.number
        for _ in range(1000):
            if not self.epoch(records_max) and self.offset.number == before:
                return self.rows
            before = self.offset.number
        raise AssertionError("it never comes to an end")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_PROBE_S", 0.0)


def sides() -> tuple[str, str]:
    """Return a key of the first of two shards, and one of the second."""
    keys = {int(hashlib.md5(key.encode()).hexdigest()[0], 16) >= 8: key for key in "abcdefghijklmnop"}  # noqa: S324
    return keys[False], keys[True]


def fill(stream: Stream, numbers: range, keys: int = 7) -> list[bytes]:
    for number in numbers:
        stream.put(f"k{number % keys}", b"%d" % number)
    return [b"%d" % number for number in numbers]


# --------------------------------------------------------------------------------------------- epochs
def test_every_record_is_read_once_in_the_order_of_its_key(tmp_path: Path) -> None:
    stream = Stream(shards=3)
    wanted = fill(stream, range(100))
    query = Query(stream, tmp_path, tasks="2")
    query.drain()
    wanted += fill(stream, range(100, 150))
    query.drain()
    assert Counter(query.rows) == Counter(wanted)
    for key in range(7):
        mine = [int(row) for row in query.rows if int(row) % 7 == key]
        assert mine == sorted(mine)


def test_an_epoch_reads_about_as_much_as_it_may(tmp_path: Path) -> None:
    stream = Stream(shards=2)
    wanted = fill(stream, range(1000))
    query = Query(stream, tmp_path)
    while found := query.epoch(records_max=100):
        assert len(found) <= 100
    assert Counter(query.rows) == Counter(wanted)


def test_no_shard_waits_for_ever_behind_another_where_an_epoch_may_read_less_than_there_are_shards(
    tmp_path: Path,
) -> None:
    """Its records would expire, though the query runs."""
    stream = Stream(shards=2)
    busy, other = sides()
    stream.put(other, b"waits")
    query = Query(stream, tmp_path, tasks="1")
    for number in range(4):
        stream.put(busy, b"%d" % number)
        assert len(query.epoch(records_max=1)) == 1
    assert b"waits" in query.rows


def test_a_plan_says_how_far_each_shard_was_behind(tmp_path: Path) -> None:
    stream = Stream(shards=2)
    fill(stream, range(1000))
    query = Query(stream, tmp_path)
    query.epoch(records_max=100)
    assert query.offset.behind == {}  # nothing was read before it
    query.epoch(records_max=100)
    assert set(query.offset.behind) == {f"start/{name}" for name in query.offset.start}
    assert all(behind > 0 for behind in query.offset.behind.values())
    query.drain()
    assert query.offset.behind.keys() == {f"start/{name}" for name in query.offset.start}


def test_a_task_stops_at_the_bytes_of_a_shard(tmp_path: Path) -> None:
    stream = Stream()
    stream.page = 10
    for _ in range(100):
        stream.put("k", bytes(1000))
    query = Query(stream, tmp_path, maxBytesPerShard="20000")
    assert [len(query.epoch()) for _ in range(5)] == [20] * 5


def test_nothing_new_is_no_epoch(tmp_path: Path) -> None:
    stream = Stream()
    query = Query(stream, tmp_path)
    query.drain()
    number = query.offset.number
    assert query.plan() == []
    assert query.offset.number == number
    fill(stream, range(1))
    assert query.epoch() == [b"0"]


# -------------------------------------------------------------------------------------------- replays
def test_a_replay_reads_the_same_whatever_has_come_since(tmp_path: Path) -> None:
    stream = Stream(shards=2)
    fill(stream, range(50))
    query = Query(stream, tmp_path)
    planned = query.plan()
    first = [query.read(share) for share in planned]
    fill(stream, range(50, 90))
    query.live()
    again = shares(query.offset, query.planner.nexts(query.offset))
    assert [query.read(share) for share in again] == first
    query.rows = [row for rows in first for row in rows]
    assert Counter(query.drain()) == Counter(b"%d" % number for number in range(90))


def test_rival_attempts_give_the_same_rows(tmp_path: Path) -> None:
    stream = Stream(shards=2)
    stream.page = 3
    query = Query(stream, tmp_path)
    wanted: list[bytes] = []
    for round_ in range(20):
        wanted += fill(stream, range(round_ * 20, round_ * 20 + 20))
        for share in query.plan():
            found: list[list[bytes]] = []

            def attempt(share: Share = share, found: list[list[bytes]] = found) -> None:
                found.append(query.read(share))

            rivals = [threading.Thread(target=attempt) for _ in range(4)]
            for rival in rivals:
                rival.start()
            more = fill(stream, range(10_000 + round_ * 10, 10_000 + round_ * 10 + 3))
            wanted += more
            for rival in rivals:
                rival.join()
            assert len(found) == 4
            assert all(each == found[0] for each in found)
            query.rows += found[0]
    assert Counter(query.drain()) == Counter(wanted)


def test_an_attempt_that_died_behind_its_put_has_said_what_all_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    [share] = query.plan()
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", "range.after_put=raise")
    with pytest.raises(RuntimeError):
        query.read(share)
    monkeypatch.delenv("ONCEONLY_FAILPOINTS")
    fill(stream, range(10, 20))
    assert query.read(share) == [b"%d" % number for number in range(10)]


def test_what_no_task_has_read_is_empty_for_good_once_the_next_epoch_is_planned(tmp_path: Path) -> None:
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    [late] = query.plan()
    [share] = query.plan()
    assert query.read(late) == []
    assert query.read(share) == [b"%d" % number for number in range(10)]


def test_ranges_that_are_gone_stop_the_query_and_no_row_is_read_again(tmp_path: Path) -> None:
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    query.epoch()
    for path in (tmp_path / "ranges" / query.offset.reader).iterdir():
        path.unlink()
    query.live()
    with pytest.raises(SourceChangedError, match=r"deleted, or onceonly\.ranges is another place"):
        query.plan()
    share = shares(query.offset, {})[0]
    with pytest.raises(SourceChangedError, match=r"onceonly\.ranges"):
        query.read(share)


@pytest.mark.parametrize("behind", [1, 2])
def test_ranges_of_an_older_backup_stop_the_query_and_no_row_is_read_again(
    tmp_path: Path, behind: int, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream()
    query = Query(stream, tmp_path)
    for number in range(4):
        fill(stream, range(10 * number, 10 * number + 10))
        query.epoch()
        if number == 3 - behind:
            shutil.copytree(tmp_path / "ranges", tmp_path / "backup")
    shutil.copytree(tmp_path / "ranges", tmp_path / "newest")
    shutil.rmtree(tmp_path / "ranges")
    shutil.copytree(tmp_path / "backup", tmp_path / "ranges")
    query.live()
    with pytest.raises(SourceChangedError, match="restored from an older copy"):
        query.plan()
    if behind == 1:  # nobody can tell it from an epoch of which nothing was read
        query.options = replace(query.options, fails_on_loss=False)
        query.live()
        assert query.epoch() == [b"%d" % number for number in range(30, 40)]
        assert "restored from an older copy" in caplog.text
    else:
        shutil.rmtree(tmp_path / "ranges")
        shutil.copytree(tmp_path / "newest", tmp_path / "ranges")
        query.live()
        assert query.plan() == []


def test_an_epoch_that_is_read_again_by_a_new_life_needs_no_range_yet(tmp_path: Path) -> None:
    """As the life before was killed when it had planned it, and this one reads nothing of it."""
    stream = Stream()
    query = Query(stream, tmp_path)
    for number in range(3):
        fill(stream, range(10 * number, 10 * number + 10))
        share = query.plan() if number == 2 else query.epoch()
    assert share
    query.live()
    query.planner.require_replayable(query.offset)
    assert query.epoch() == [b"%d" % number for number in range(20, 30)]


def test_a_fork_reads_beside_its_original_also_with_other_tasks(tmp_path: Path) -> None:
    """Whichever of them comes first: neither is kept from going on, and replays of both are exact."""
    stream = Stream(4)
    query = Query(stream, tmp_path, tasks="4")
    sent = fill(stream, range(20))
    query.epoch()
    fork = Query(stream, tmp_path, tasks="1")
    fork.offset, fork.rows = query.offset, list(query.rows)
    for first, second in ((fork, query), (query, fork)) * 2:
        sent += fill(stream, range(len(sent), len(sent) + 20))
        plan = first.plan()
        read = [first.read(share) for share in plan]
        first.rows += [row for rows in read for row in rows]
        sent += fill(stream, range(len(sent), len(sent) + 5))
        second.epoch()
        assert [first.read(share) for share in plan] == read
    for each in (query, fork):
        each.live()
        assert sorted(each.drain()) == sorted(sent)


def test_a_fork_is_independent_of_how_far_its_original_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the original deletes, the fork needs no more after its first epoch; also one that was forked of a fork."""
    monkeypatch.setattr(planning, "KEPT", 10)
    stream = Stream(2)
    query = Query(stream, tmp_path)
    sent = fill(stream, range(20))
    query.epoch()
    forks = []
    text = json.dumps(query.offset.json)
    for name in ("one", "two"):
        fork = Query(stream, tmp_path)
        text = forked(text, name)
        assert text == json.dumps(json.loads(text))
        fork.offset, fork.rows = Offset.of(json.loads(text)), list(query.rows)
        fork.planner.require_kept(fork.offset)
        forks.append(fork)
    assert len({each.offset.reader for each in (query, *forks)}) == 3
    for each in (*forks, query):  # the forks' first epoch
        sent += fill(stream, range(len(sent), len(sent) + 5))
        each.epoch()
    for _ in range(30):
        sent += fill(stream, range(len(sent), len(sent) + 2))
        query.epoch()
        query.planner.forget(query.offset)
    for fork in forks:
        for _ in range(12):
            fork.live()
            fork.epoch(records_max=3)
            fork.planner.forget(fork.offset)
            query.planner.forget(query.offset)
    for each in (query, *forks):
        assert sorted(each.drain()) == sorted(sent)


def test_a_fork_of_a_place_whose_range_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "KEPT", 2)
    stream = Stream()
    query = Query(stream, tmp_path)
    for number in range(12):
        fill(stream, range(number, number + 1))
        query.epoch()
        if number == 0:
            place = Offset.of(json.loads(forked(json.dumps(query.offset.json), "one")))
        query.planner.forget(query.offset)
    for look in (
        Planner(query.options, query.client()).require_kept,
        Planner(query.options, query.client()).following,
    ):
        with pytest.raises(
            SourceChangedError, match="where epoch 1 of the source kinesis ended is not known"
        ):
            look(place)
    with pytest.raises(SourceChangedError, match=r"onceonly\.ranges"):
        query.planner.following(Offset.of({**place.json, "former": "f" * 32}))


def test_offsets_of_other_sources_are_the_same_in_a_fork() -> None:
    for text in ("-", "7", '{"logOffset":3}', '{"journal":"a","reader":"b","segment":1}', '{"t":{"0":3}}'):
        assert forked(text, "one") == text


def test_old_ranges_are_deleted_and_those_of_a_replay_stay(tmp_path: Path) -> None:
    stream = Stream()
    query = Query(stream, tmp_path)
    for number in range(KEPT + 50):
        fill(stream, range(number, number + 1))
        query.epoch()
        query.planner.forget(query.offset)
    left = {path.name for path in (tmp_path / "ranges" / query.offset.reader).iterdir()}
    assert len(left) <= KEPT + 15
    assert f"{query.offset.number:020d}.0.json" in left
    assert f"{query.offset.number - KEPT + 1:020d}.0.json" in left


def test_an_epoch_asks_for_its_ranges_by_name_and_lists_only_where_one_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Counter[str]()

    class Noting:
        def __init__(self, store: RewritableStore) -> None:
            self.store = store

        def __getattr__(self, name: str) -> object:
            if name != "where":
                asked[name] += 1
            return getattr(self.store, name)

    monkeypatch.setattr(ranges, "open_store", lambda address: Noting(open_store(address)))
    stream = Stream(2)
    query = Query(stream, tmp_path)
    for number in range(1, 6):
        fill(stream, range(10 * number, 10 * number + 10))
        asked.clear()
        assert query.epoch()
        query.planner.forget(query.offset)
        # Two tasks look for theirs and for its place, and put it; the planner reads those before, at first the place.
        assert asked == {"get": 5 if number == 1 else 6, "put_if_absent": 2}, number
    fill(stream, range(100, 110))
    late = query.plan()
    fill(stream, range(110, 120))
    asked.clear()
    query.plan()
    assert asked["list_names"] == len(late)


# -------------------------------------------------------------------------------------------- shards
def test_a_place_whose_range_was_deleted_since_is_refused_and_no_row_is_read_twice(tmp_path: Path) -> None:
    """As that of an older savepoint: without its range, nobody knows where its epoch ended."""
    stream = Stream()
    query = Query(stream, tmp_path)
    fill(stream, range(5))
    query.epoch()
    older = query.offset
    query.planner.require_kept(older)
    fill(stream, range(5, 10))
    query.epoch()
    Ranges.at(query.options.ranges, older.reader).forget(older.number + 1)
    query.live()  # which remembers nothing
    for look in (query.planner.require_kept, query.planner.following):
        with pytest.raises(
            SourceChangedError, match="where epoch 1 of the source kinesis ended is not known"
        ):
            look(older)


def test_what_follows_a_place_is_seen_to_be_kept(tmp_path: Path) -> None:
    stream = Stream()
    query = Query(stream, tmp_path)
    fill(stream, range(5))
    query.epoch()
    fill(stream, range(5, 10))
    query.planner.require_kept(query.offset)
    next(iter(stream.shards.values())).trimmed = 7
    stream.at += 25 * 3600
    with pytest.raises(SourceChangedError, match="up to which was read, is gone"):
        query.planner.require_kept(query.offset)


def test_children_follow_their_parents(tmp_path: Path) -> None:
    stream = Stream(shards=2)
    query = Query(stream, tmp_path, tasks="3")
    draw = random.Random(1)
    wanted: list[bytes] = []
    for round_ in range(30):
        wanted += fill(stream, range(round_ * 40, round_ * 40 + 40), keys=11)
        standing = [shard for shard in stream.shards.values() if not shard.closed]
        if round_ % 3 == 0:
            stream.split(draw.choice(standing).name)
        elif round_ % 3 == 1:
            ordered = sorted(standing, key=lambda shard: shard.low)
            at = draw.randrange(len(ordered) - 1)
            stream.merge(ordered[at].name, ordered[at + 1].name)
        query.epoch(records_max=draw.choice([10, 60, 500]))
        if round_ % 4 == 0:
            query.live()
    rows = query.drain()
    assert Counter(rows) == Counter(wanted)
    for key in range(11):
        mine = [int(row) for row in rows if int(row) % 11 == key]
        assert mine == sorted(mine)


def test_a_key_keeps_its_order_over_a_split_and_a_merge(tmp_path: Path) -> None:
    stream = Stream()
    stream.page = 4
    query = Query(stream, tmp_path)
    for number in range(30):
        stream.put("k", b"%d" % number)
        if number == 10:
            stream.split("shardId-000000000000")
        elif number == 20:
            stream.merge("shardId-000000000001", "shardId-000000000002")
    assert query.drain(records_max=5) == [b"%d" % number for number in range(30)]


def test_a_child_is_not_read_before_both_parents_are_at_their_end(tmp_path: Path) -> None:
    stream = Stream(shards=2)
    fill(stream, range(100))
    query = Query(stream, tmp_path, tasks="1")
    query.epoch(records_max=1)
    stream.merge("shardId-000000000000", "shardId-000000000001")
    while "shardId-000000000002" not in query.offset.start:
        share = query.plan(10)[0]
        standing = [shard for name, shard in stream.shards.items() if not shard.parents]
        if "shardId-000000000002" in query.offset.start:
            read = set(query.rows)
            assert all(record["Data"] in read for shard in standing for record in shard.records)
        query.rows += query.read(share)


# ------------------------------------------------------------------------------------- where it begins
def test_it_begins_at_a_time(tmp_path: Path) -> None:
    stream = Stream(at=1_000_000.0)
    fill(stream, range(5))
    stream.split("shardId-000000000000")
    fill(stream, range(5, 10))
    stream.at += 60
    wanted = fill(stream, range(10, 20))
    query = Query(stream, tmp_path, startingPosition="1970-01-12T13:47:10+00:00")
    assert Counter(query.drain()) == Counter(wanted)


def test_it_begins_at_the_newest_record(tmp_path: Path) -> None:
    stream = Stream()
    fill(stream, range(5))
    stream.split("shardId-000000000000")
    stream.at += 60
    query = Query(stream, tmp_path, startingPosition="latest")
    query.epoch()
    wanted = fill(stream, range(5, 9))
    assert Counter(query.drain()) == Counter(wanted)


# ------------------------------------------------------------------------------------------ what fails
def test_expired_iterators_and_throttling_pass(tmp_path: Path) -> None:
    stream = Stream(shards=2)
    stream.page = 5
    wanted = fill(stream, range(100))
    query = Query(stream, tmp_path)
    draw = random.Random(2)
    for _ in range(60):
        faults = ["ExpiredIteratorException", "ProvisionedThroughputExceededException", "InternalFailure"]
        stream.faults = [error(draw.choice(faults)) for _ in range(draw.randrange(3))]
        query.epoch(records_max=30)
        end = query.planner._fixed(query.offset)
        stream.expired |= {each.next for each in end.values() if each.next}
    stream.faults = []
    assert Counter(query.drain()) == Counter(wanted)


def test_records_that_are_gone_before_they_were_read_stop_the_query(tmp_path: Path) -> None:
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    query.drain()
    fill(stream, range(10, 20))
    stream.trim("shardId-000000000000", 15)
    stream.at += 25 * 3600
    stream.expired |= {end.next for end in query.planner._fixed(query.offset).values() if end.next}
    query.live()
    with pytest.raises(SourceChangedError, match=r"up to which was read, is gone.*failOnDataLoss=false"):
        query.epoch()


def test_to_go_on_without_them_is_a_choice(tmp_path: Path) -> None:
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path, failOnDataLoss="false")
    query.drain()
    fill(stream, range(10, 20))
    stream.trim("shardId-000000000000", 15)
    stream.at += 25 * 3600
    stream.expired |= {end.next for end in query.planner._fixed(query.offset).values() if end.next}
    query.live()
    query.rows = []
    assert query.drain() == [b"%d" % number for number in range(15, 20)]


def test_a_shard_of_which_nothing_was_read_yet_is_not_begun_after_longer_than_it_keeps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its oldest record does not tell that there were others: they came while the job was down, and are gone."""
    stream = Stream(2)
    low, high = sides()
    stream.put(low, b"0")
    query = Query(stream, tmp_path)
    query.drain()
    for hours, is_kept in ((23, True), (25, False)):
        stream.at += hours * 3600
        query.live()
        stream.put(low, b"more")
        if is_kept:
            assert query.epoch() == [b"more"]
    stream.put(high, b"lost")
    stream.trim("shardId-000000000001", 1)
    stream.put(high, b"kept")
    with pytest.raises(SourceChangedError, match=r"shard shardId-0+1 .* nothing was read of it yet up to"):
        query.plan()
    query.options = replace(query.options, fails_on_loss=False)
    query.live()
    query.rows = []
    assert sorted(query.drain()) == [b"kept", b"more"]
    assert caplog.text.count("nothing was read of it yet") == 1


@pytest.mark.parametrize("is_new", [False, True])
def test_a_replay_does_not_begin_a_shard_after_longer_than_it_keeps(tmp_path: Path, *, is_new: bool) -> None:
    stream = Stream(2)
    low, _ = sides()
    stream.put(low, b"0")
    query = Query(stream, tmp_path)
    query.drain()
    if is_new:
        stream.split("shardId-000000000001")
        query.epoch()  # to the parent's end
    else:
        stream.put(low, b"1")
    assert query.plan()
    assert query.offset.seen.keys() == query.offset.start.keys()
    query.live()
    query.planner.require_replayable(query.offset)
    stream.at += 25 * 3600
    query.live()
    with pytest.raises(SourceChangedError, match="nothing was read of it yet up to"):
        query.planner.require_replayable(query.offset)


@pytest.mark.parametrize("is_split_again", [False, True])
def test_what_follows_a_parent_is_not_begun_after_longer_than_it_keeps(
    tmp_path: Path, *, is_split_again: bool
) -> None:
    """The job goes down at a parent's end; what its children had is gone, and may be with the children."""
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    query.drain()
    stream.split("shardId-000000000000")
    query.epoch()  # to the parent's end
    assert query.planner._fixed(query.offset)["shardId-000000000000"].is_closed
    low, high = sides()
    stream.put(low, b"lost")
    stream.put(high, b"lost")
    if is_split_again:
        stream.split("shardId-000000000001")
        stream.wait(hours=1)
        stream.split("shardId-000000000002")
    stream.wait(hours=24.5)
    for key in "abcdefghijklmnop":
        stream.put(key, b"kept")
    query.live()
    with pytest.raises(SourceChangedError, match=r"shardId-00.*may have been lost"):
        query.plan()
    query.options = replace(query.options, fails_on_loss=False)
    query.live()
    query.rows = []
    assert query.drain() == [b"kept"] * 16


def test_children_are_as_far_behind_as_their_parent_was(tmp_path: Path) -> None:
    """What they have may be older than when their parent's end was read."""
    for hours, is_kept in ((3, True), (5, False)):
        stream = Stream()
        fill(stream, range(10))
        query = Query(stream, tmp_path)
        stream.split("shardId-000000000000")
        stream.put("a", b"follows")
        stream.wait(hours=20)
        query.epoch()
        stream.wait(hours=hours)
        query.live()
        if is_kept:
            assert query.drain()[-1] == b"follows"
            continue
        with pytest.raises(SourceChangedError, match="may have been lost"):
            query.drain()


def test_a_child_whose_parent_has_expired_unread_is_no_root(tmp_path: Path) -> None:
    """While the job lives, and whatever an older checkpoint does not tell of times."""
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    stream.split("shardId-000000000000")
    stream.split("shardId-000000000001")
    query.epoch()
    stream.shards["shardId-000000000001"].is_expired = True
    with pytest.raises(SourceChangedError, match=r"shardId-000000000001 .* has expired"):
        query.plan()


def test_a_merged_shard_waits_for_a_parent_though_the_other_has_expired_since(tmp_path: Path) -> None:
    stream = Stream(2)
    low, high = sides()
    stream.put(low, b"low")
    wanted = [b"high%d" % number for number in range(50)]
    for each in wanted:
        stream.put(high, each)
    query = Query(stream, tmp_path, tasks="1")
    stream.merge("shardId-000000000000", "shardId-000000000001")
    stream.put(low, b"after")
    query.epoch(records_max=4)
    stream.shards["shardId-000000000000"].is_expired = True
    assert Counter(query.drain(records_max=4)) == Counter([b"low", *wanted, b"after"])


def test_a_stream_that_is_silent_for_longer_than_it_keeps_is_read_on(tmp_path: Path) -> None:
    """All was read of it, and a look shows that nothing has come since; also where a shard is closed then."""
    stream = Stream(2)
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    query.drain()
    for _ in range(40):
        stream.wait(hours=1)
        assert query.plan() == []
    fill(stream, range(10, 20))
    query.drain()
    for _ in range(40):
        stream.wait(hours=1)
        assert query.plan() == []
    stream.split("shardId-000000000001")
    fill(stream, range(20, 30))
    query.drain()
    query.live()  # which asks for what was read last
    stream.wait(hours=20)
    fill(stream, range(30, 40))
    assert sorted(map(int, query.drain())) == list(range(40))


@pytest.mark.parametrize("has_record", [True, False])
def test_a_query_that_a_scheduler_starts_is_not_stopped_by_a_stream_that_is_silent_for_days(
    tmp_path: Path, *, has_record: bool
) -> None:
    """No start finds anything, so none makes an epoch; each has looked. One that has not for too long is stopped."""
    stream = Stream(2)
    low, high = sides()
    stream.put(low, b"low")
    if has_record:
        stream.put(high, b"high")
    query = Query(stream, tmp_path)
    query.drain()
    for _ in range(20):
        stream.wait(hours=3)
        query.live()
        query.planner.stop_at_now()
        assert query.plan() == []
    stream.wait(hours=23)
    stream.put(high, b"next")
    query.live()
    query.planner.stop_at_now()
    assert query.epoch() == [b"next"]
    stream.put(high, b"lost")
    stream.wait(hours=25)
    stream.put(high, b"kept")
    query.live()
    query.planner.stop_at_now()
    with pytest.raises(SourceChangedError, match="may have been lost"):
        query.epoch()


@pytest.mark.parametrize("has_record", [True, False])
def test_a_query_that_is_started_seldom_goes_on_where_the_stream_keeps_records_for_longer(
    tmp_path: Path, *, has_record: bool
) -> None:
    """For as long as the stream has said in the start before, and says now; not only for a day."""
    stream = Stream(2)
    stream.hours = 72
    low, high = sides()
    stream.put(low, b"low")
    if has_record:
        stream.put(high, b"high")
    query = Query(stream, tmp_path)
    query.drain()
    for _ in range(4):
        stream.wait(hours=48)
        query.live()
        query.planner.stop_at_now()
        assert query.epoch() == []
    stream.wait(hours=48)
    stream.put(high, b"next")
    query.live()
    query.planner.stop_at_now()
    assert query.epoch() == [b"next"]
    stream.wait(hours=73)
    query.live()
    query.planner.stop_at_now()
    with pytest.raises(SourceChangedError, match=r"keep them \(72 hours\)"):
        query.epoch()


@pytest.mark.parametrize("is_lowered", [False, True])
@pytest.mark.parametrize("has_record", [True, False])
def test_a_retention_that_was_changed_meanwhile_counts_as_the_shorter_one(
    tmp_path: Path, *, is_lowered: bool, has_record: bool
) -> None:
    """What expired under it does not come back when it is raised. The next start has seen the longer one itself."""
    stream = Stream(2)
    stream.hours = 168 if is_lowered else 24
    low, high = sides()
    stream.put(low, b"low")
    if has_record:
        stream.put(high, b"high")
    query = Query(stream, tmp_path)
    query.drain()
    stream.put(high, b"lost")
    stream.hours = 24
    stream.wait(hours=30)
    stream.hours = 24 if is_lowered else 168
    query.live()
    query.planner.stop_at_now()
    with pytest.raises(SourceChangedError, match=r"keep them \(24 hours\)") as stopped:
        query.epoch()
    assert "retention that is longer than the time between two starts" in stopped.value.next_step
    query.options = replace(query.options, fails_on_loss=False)  # as it says
    query.live()
    query.planner.stop_at_now()
    assert query.drain() == [b"low", *([b"high"] if has_record else [])]
    query.options = replace(query.options, fails_on_loss=True)
    stream.hours = 168
    for hours in (20, 48):
        stream.wait(hours)
        query.live()
        query.planner.stop_at_now()
        assert query.epoch() == []


def test_who_may_not_ask_how_long_records_are_kept_takes_the_shortest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(2)
    stream.hours = 168
    monkeypatch.setattr(stream, "describe_stream_summary", denied)
    low, _ = sides()
    stream.put(low, b"low")
    query = Query(stream, tmp_path)
    query.drain()
    stream.at += 25 * 3600
    query.live()
    with pytest.raises(SourceChangedError, match=r"keep them \(24 hours\)"):
        query.plan()


def denied(**_: Any) -> dict[str, Any]:  # noqa: ANN401  as boto3's
    raise error("AccessDeniedException")


def test_a_replay_of_what_is_gone_stops_the_query(tmp_path: Path) -> None:
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    [share] = query.plan()
    query.read(share)
    stream.trim("shardId-000000000000", 3)
    with pytest.raises(SourceChangedError, match="its retention has passed"):
        query.read(share)


def test_a_replay_with_other_data_is_noticed(tmp_path: Path) -> None:
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    [share] = query.plan()
    query.read(share)
    stream.shards["shardId-000000000000"].records[4]["Data"] = b"another"
    with pytest.raises(SourceChangedError, match="other data"):
        query.read(share)


def test_a_stream_that_was_made_anew_is_noticed(tmp_path: Path) -> None:
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    query.drain()
    query.stream = Stream(at=2_000_000.0)
    query.live()
    with pytest.raises(SourceChangedError, match="deleted and made anew"):
        query.plan()


def test_a_stream_that_is_made_anew_while_the_query_runs_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a server that takes the iterators of the former one: what that held unread would be lost in silence."""
    monkeypatch.setattr(planning, "_LIST_S", 0.0)
    stream = Stream(shards=2)
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    query.drain()
    fill(stream, range(10, 20))
    vars(stream).update(vars(Stream(shards=2, at=2_000_000.0)))
    with pytest.raises(SourceChangedError, match="deleted and made anew while this query ran"):
        query.plan()


def test_a_stream_that_is_throttled_for_good_is_unavailable(tmp_path: Path) -> None:
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path, timeout="5 s")
    [share] = query.plan()
    stream.faults = [error("ProvisionedThroughputExceededException") for _ in range(1000)]
    with pytest.raises(UnavailableError, match="for 5 s"):
        query.read(share)


# ----------------------------------------------------------------------------------------- availableNow
def test_what_comes_later_is_for_the_next_run(tmp_path: Path) -> None:
    stream = Stream(shards=2)
    wanted = fill(stream, range(50))
    query = Query(stream, tmp_path)
    query.planner.stop_at_now()
    stream.at += 60
    later = fill(stream, range(50, 80))
    assert Counter(query.drain(records_max=20)) == Counter(wanted)
    query.live()
    query.planner.stop_at_now()
    assert Counter(query.drain()) == Counter(wanted + later)


@pytest.mark.parametrize(
    ("count", "most"), [(25_000, None), (50, 20)], ids=["pages of the service", "a limit"]
)
def test_a_full_answer_is_not_the_last_one_whatever_it_says_of_what_follows(
    tmp_path: Path, count: int, most: int | None
) -> None:
    """As kinesalite, and what is made of it, say that nothing does."""
    stream = Stream()
    stream.is_vague = True
    wanted = fill(stream, range(count))
    query = Query(stream, tmp_path)
    query.planner.stop_at_now()
    query.drain(most)
    assert len(query.rows) == len(wanted)
    assert set(query.rows) == set(wanted)
    assert not query.plan(most)


def test_it_ends_though_records_never_cease_to_come(tmp_path: Path) -> None:
    stream = Stream()
    wanted = fill(stream, range(50))
    query = Query(stream, tmp_path)
    query.planner.stop_at_now()
    stream.at += 60
    for number in range(50, 1000):
        before = query.offset.number
        query.epoch(records_max=10)
        fill(stream, range(number, number + 1))
        if query.offset.number == before:
            break
    else:
        raise AssertionError("it goes on for ever")
    assert Counter(query.rows) == Counter(wanted)


# ------------------------------------------------------------------------------------------------ rows
def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def aggregate(*messages: tuple[str, bytes] | tuple[str, bytes, str]) -> bytes:
    keys = list(dict.fromkeys(key for key, *_ in messages))
    body = b"".join(_field(1, key.encode()) for key in keys)
    hashes = [each[2] for each in messages if len(each) > 2]
    body += b"".join(_field(2, each.encode()) for each in hashes)
    for key, data, *at in messages:
        explicit = _varint(2 << 3) + _varint(hashes.index(at[0])) if at else b""
        told = (
            _varint(1 << 3) + _varint(keys.index(key)) + explicit + _field(3, data) + _field(4, b"\x0a\x01t")
        )
        body += _field(3, told)
    return b"\xf3\x89\x9a\xc2" + body + hashlib.md5(body, usedforsecurity=False).digest()


def record(data: bytes) -> dict[str, Any]:
    return {"Data": data, "PartitionKey": "outer", "SequenceNumber": "1"}


def test_an_aggregate_is_as_many_rows_as_it_holds() -> None:
    messages = [("a", b"1"), ("b", bytes(300)), ("a", b"")]
    assert unpacked(record(aggregate(*messages))) == [(*each, "") for each in messages]


@pytest.mark.parametrize(
    "data",
    [b"", b"plain", aggregate(("a", b"1"))[:-1], b"\xf3\x89\x9a\xc2" + b"x" * 30,
     b"\xf3\x89\x9a\xc2\xff\xff" + hashlib.md5(b"\xff\xff", usedforsecurity=False).digest()],
)  # fmt: skip
def test_what_is_no_aggregate_is_one_row(data: bytes) -> None:
    assert unpacked(record(data)) == [("outer", data, None)]


@pytest.mark.parametrize(("aggregated", "more"), [("kpl", []), ("true", [b"2", b"3"])])
def test_messages_that_the_producer_has_written_again_to_another_shard_are_left_out(
    tmp_path: Path, aggregated: str, more: list[bytes]
) -> None:
    """A reshard sends an aggregate to a shard that its producer did not expect: it writes those of others again."""
    stream = Stream(2)
    low, high = sides()
    stream.put(low, aggregate((low, b"1"), (high, b"2"), (low, b"3", str((1 << 128) - 1)), (high, b"4", "0")))
    stream.put(low, b"plain")
    query = Query(stream, tmp_path, aggregated=aggregated)
    rows: list[tuple[bytes, int]] = []
    for share in query.plan():
        task = Task(query.options, share, query.client())
        found = task.records()
        for batch in batches(found, aggregated=query.options.aggregated, within=task.hash_keys(found)):
            rows += zip(batch["value"].to_pylist(), batch["subSequenceNumber"].to_pylist(), strict=True)
    assert sorted(value for value, _ in rows) == sorted([b"1", b"4", b"plain", *more])
    assert (b"4", 3) in rows  # a place is that in the record, whatever is left out


def test_an_epoch_never_cuts_an_aggregate(tmp_path: Path) -> None:
    stream = Stream()
    for number in range(10):
        stream.put("k", aggregate(*(("k", b"%d.%d" % (number, place)) for place in range(5))))
    query = Query(stream, tmp_path, aggregated="true")
    rows: list[tuple[bytes, int]] = []
    while planned := query.plan(3):
        for share in planned:
            found = Task(query.options, share, query.client()).records()
            count = 0
            for batch in batches(found, aggregated=True):
                rows += zip(batch["value"].to_pylist(), batch["subSequenceNumber"].to_pylist(), strict=True)
                count += batch.num_rows
            assert count % 5 == 0
    assert rows == [(b"%d.%d" % (number, place), place) for number in range(10) for place in range(5)]


# --------------------------------------------------------------------------------------------- options
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"onceonly.ranges": None}, "onceonly.ranges of the source kinesis is missing"),
        ({"onceonly.ranges": " "}, "is empty"),
        ({"startingPosition": "2026-01-01T00:00:00"}, "a time such as"),
        ({"startingPosition": "earliest"}, "trim_horizon"),
        ({"tasks": "0"}, "1 to 1000"),
        ({"maxRecordsPerTrigger": "0"}, "at least 1"),
        ({"maxBytesPerShard": "0"}, "maxBytesPerShard"),
        ({"aggregated": "yes"}, "true, false or kpl"),
        ({"partitionKey": "k"}, "knows no option partitionkey"),
        ({"stream": ""}, "option stream of the source kinesis is empty"),
        ({"endpoint": "localhost:4567"}, "which is no address"),
        ({"endpoint": "http://localhost:port"}, "which is no address"),
        ({"endpoint": "http://localhost:99999"}, "which is no address"),
        ({"endpoint": "http://"}, "which is no address"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str | None], said: str) -> None:
    given = {"stream": "orders", "onceonly.ranges": "/r", **options}
    with pytest.raises(ConfigurationError, match=said):
        SourceOptions.of({name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize(
    ("offset", "said"), [({}, "none of the source kinesis"), ({"version": 2}, "use the newer onceonly")]
)
def test_an_offset_of_something_else_is_refused(offset: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Offset.of(offset)


def test_damaged_ranges_are_refused(tmp_path: Path) -> None:
    stream = Stream()
    fill(stream, range(10))
    query = Query(stream, tmp_path)
    [share] = query.plan()
    query.read(share)
    path = tmp_path / "ranges" / share.reader / f"{share.number:020d}.0.json"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(Exception, match=r"damaged|torn"):
        Ranges.at(str(tmp_path / "ranges"), share.reader).get(share.number, 0, share.start)


def test_what_no_call_takes_is_refused_at_once() -> None:
    """By boto3 itself, before it asks anybody: no other try would change that."""
    keys = ("k", "s", None)
    options = kinesis.StreamOptions(stream="", region="r", endpoint="http://127.0.0.1:1", keys=keys)
    with pytest.raises(ConfigurationError, match=r"refuses a call: ParamValidation: .*StreamName"):
        kinesis.Stream(options, "a test", FakeClock()).ask("describe_stream_summary")


def test_an_address_where_something_else_answers_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy or a web server does, whose 200 boto3 takes for an answer of the service with nothing in it."""
    stream = Stream()
    monkeypatch.setattr(stream, "describe_stream_summary", lambda **_: {"ResponseMetadata": {}})
    with pytest.raises(
        UnavailableError, match="what answers describe_stream_summary there is no Kinesis"
    ) as told:
        Query(stream, tmp_path)
    assert "see to the options region and endpoint" in told.value.next_step


def test_ranges_at_a_relative_path_are_at_the_same_place_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = SourceOptions.of({"stream": "orders", "region": "r", "onceonly.ranges": "ranges"})
    monkeypatch.chdir("/")
    Ranges.at(options.ranges, "r").begin()
    assert (tmp_path / "ranges" / "r" / "reader.json").exists()
