"""Savepoints of a query that reads Kinesis: they carry where their epoch ended, which the query deletes later."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.kinesis_double import Stream
from tests.unit.operator_bench import BOX, QueryCoordinator, run
from tests.unit.test_kinesis_source import Query, fill

from onceonly import offsets, savepoints
from onceonly.errors import ConfigurationError, SourceChangedError
from onceonly.operations import sources_left
from onceonly.savepoints import place as places
from onceonly.savepoints import starting
from onceonly.sources.kinesis import carried, planning
from onceonly.sources.kinesis.positions import Offset
from onceonly.sources.kinesis.ranges import Ranges

if TYPE_CHECKING:
    from pathlib import Path

KEPT = 4


class Life:
    """A query of Spark's files by hand whose barriers are those of a reader of a stream."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.stream = Stream(2)
        self.reader = Query(self.stream, folder, tasks="2")
        self.spark = QueryCoordinator(folder / "query")
        self.sent: list[bytes] = []
        self.barriers: list[str] = []
        monkeypatch.setattr(self.spark, "barrier", lambda epoch: self.barriers[epoch])

    def epochs(self, count: int) -> None:
        """Read and complete some more."""
        for _ in range(count):
            self.sent += fill(self.stream, range(len(self.sent), len(self.sent) + 7))
            assert self.reader.epoch()
            self.barriers.append(json.dumps(self.reader.offset.json))
            self.spark.complete(len(self.barriers) - 1)
            self.reader.planner.forget(self.reader.offset)

    def savepoint(self, epoch: int | None = None) -> int:
        """Make one; return how many rows the query had read by then."""
        savepoints.create(str(self.spark.path), str(self.folder / "place"), epoch=epoch)
        return len(self.reader.rows)

    def started(self, command: str, *more: str) -> tuple[Query, str]:
        """Start from the savepoint; return what reads on there, and what was told."""
        to = self.folder / f"to{len(list(self.folder.iterdir()))}"
        sink = () if command == "fork" else ("--sink", f"box={BOX}")
        done = run("savepoint", command, self.folder / "place", "--to", to, *sink, *more)
        assert done.returncode == 0, done.stderr
        (newest,) = sorted((to / "offsets").iterdir(), key=lambda path: int(path.name))[-1:]
        (line,) = offsets.barrier(newest.read_text(encoding="utf-8"))
        reader = Query(self.stream, self.folder, tasks="1")
        reader.offset = Offset.of(json.loads(line))
        return reader, done.stdout + done.stderr

    def lose_ranges(self) -> None:
        shutil.rmtree(self.folder / "ranges" / self.reader.offset.reader)


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    monkeypatch.setattr(planning, "KEPT", KEPT)
    monkeypatch.setattr(planning, "_FORGET_EVERY", 1)
    monkeypatch.setattr(planning, "_PROBE_S", 0.0)
    made = Life(tmp_path, monkeypatch)
    made.epochs(3)
    return made


@pytest.mark.parametrize(
    ("command", "more"), [("fork", ()), ("restore", ("--output", "again"))], ids=["fork", "again"]
)
@pytest.mark.parametrize("lost", [False, True])
def test_one_older_than_the_ranges_that_are_kept_is_started_from(
    life: Life, command: str, more: tuple[str, ...], *, lost: bool
) -> None:
    read = life.savepoint()
    life.epochs(3 * KEPT)
    if lost:
        life.lose_ranges()
    begun, told = life.started(command, *more)
    assert f"was put to the ranges at {life.folder / 'ranges'}" in told
    begun.planner.require_kept(begun.offset)
    if not lost:
        life.epochs(KEPT)  # and it deletes what it wants
    assert sorted(life.reader.rows[:read] + begun.drain()) == sorted(life.sent)
    begun.live()
    assert begun.epoch() == []


def test_a_restored_query_starts_whatever_its_former_life_deletes(life: Life) -> None:
    read = life.savepoint()
    life.sent += fill(life.stream, range(len(life.sent), len(life.sent) + 7))
    life.lose_ranges()
    begun, _ = life.started("restore")
    assert begun.offset.reader == life.reader.offset.reader
    Ranges.at(begun.options.ranges, begun.offset.reader).forget(1000)
    assert sorted(life.reader.rows[:read] + begun.drain()) == sorted(life.sent)


def test_a_savepoint_of_a_fork_that_has_read_nothing_yet_carries_them_on(life: Life) -> None:
    read = life.savepoint()
    life.epochs(3 * KEPT)
    begun, _ = life.started("fork")
    assert carried.carried(json.dumps(begun.offset.json)).keys() == {
        f"range.{begun.offset.reader}.{begun.offset.number}.{group}.json" for group in range(2)
    }
    life.lose_ranges()
    begun.planner.require_kept(begun.offset)
    assert sorted(life.reader.rows[:read] + begun.drain()) == sorted(life.sent)


def test_ranges_that_were_moved_are_brought_to_where_the_operator_says(life: Life) -> None:
    read = life.savepoint()
    life.sent += fill(life.stream, range(len(life.sent), len(life.sent) + 7))
    ((address, savepoint),) = places.whole(str(life.folder / "place"))
    (line,) = savepoint.barrier
    moved = Query(life.stream, life.folder, **{"onceonly.ranges": str(life.folder / "moved")})
    moved.offset = Offset.of(json.loads(line))
    with pytest.raises(SourceChangedError, match=r"onceonly\.ranges"):
        moved.planner.require_kept(moved.offset)
    held = carried.held(line, starting.ranges_of(savepoint, address))
    moved.planner.require_kept(moved.offset, held)  # what a start from the savepoint will have
    told = sources_left.ranges(savepoint.barrier, {"0:onceonly.ranges": moved.options.ranges})
    same = starting.Beginning(savepoint=savepoint.name, query=savepoint.query, anew=False)
    (said,) = starting.bring(savepoint, address, same, told)
    assert said.endswith(f"the ranges at {life.folder / 'moved'}")
    assert sorted(life.reader.rows[:read] + moved.drain()) == sorted(life.sent)


def test_an_epoch_whose_ranges_are_deleted_is_refused_with_the_range_that_is_possible(life: Life) -> None:
    life.epochs(3 * KEPT)
    newest = len(life.barriers) - 1
    with pytest.raises(
        ConfigurationError, match="chk-2: the range of task 0 of epoch 3 of the source kinesis"
    ) as said:
        life.savepoint(2)
    assert f"name one from {newest - KEPT} to {newest}," in said.value.next_step
    life.savepoint(newest - KEPT)
    with pytest.raises(ConfigurationError):
        life.savepoint(newest - KEPT - 1)


def test_ranges_that_nobody_sees_from_here_are_told(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    """As on another machine than the cluster's; the fork stands on those of its original, as before."""
    (life.folder / "ranges").rename(life.folder / "hidden")
    read = life.savepoint()
    assert f"are not at {life.folder / 'ranges'} as this machine sees it" in caplog.text
    (life.folder / "hidden").rename(life.folder / "ranges")
    begun, told = life.started("fork")
    assert "was put to the ranges" not in told
    assert sorted(life.reader.rows[:read] + begun.drain()) == sorted(life.sent)


def test_ranges_that_this_machine_has_no_way_to_are_told(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    """As those on a store that it has no login for, or whose place an older onceonly has not noted."""
    for place, said in (("ftp://far/ranges", "is on ftp:"), ("", "an older onceonly")):
        caplog.clear()
        assert carried.carried(json.dumps({**life.reader.offset.json, "ranges": place})) == {}
        assert "goes without the ranges of the source kinesis" in caplog.text
        assert said in caplog.text


def test_a_query_that_has_lost_its_ranges_stops_also_where_a_savepoint_has_brought_older_ones(
    life: Life,
) -> None:
    """Its own epoch would be taken for empty, and be read again."""
    life.savepoint()
    life.epochs(1)
    life.lose_ranges()
    ((address, savepoint),) = places.whole(str(life.folder / "place"))
    same = starting.Beginning(savepoint=savepoint.name, query=savepoint.query, anew=False)
    starting.bring(savepoint, address, same, {})
    life.reader.live()
    with pytest.raises(SourceChangedError, match=r"onceonly\.ranges"):
        life.reader.plan()


def test_a_damaged_range_of_a_savepoint_is_not_started_from(life: Life) -> None:
    life.savepoint()
    path = next((life.folder / "place").rglob("range.*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    done = run("savepoint", "fork", life.folder / "place", "--to", life.folder / "to")
    assert done.returncode != 0
    assert "is damaged" in done.stderr
    assert not (life.folder / "to").exists()
