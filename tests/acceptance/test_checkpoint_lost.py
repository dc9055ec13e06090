"""Files of Spark's are lost behind a decision, or say something else: no row is lost or doubled, nobody has to help."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import onceonly
import ways
from ways import ROWS, Way

if TYPE_CHECKING:
    from pathlib import Path

    from harness import Bench
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

spark, way = ways.spark, ways.way  # fixtures
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(480)]

# Behind the link, and behind the receipt: there Spark's own note is all that is missing.
POINTS = ("link.after_put", "commit.before_return")


def put(folder: Path, first: int, count: int, *, age_s: float) -> None:
    """Put files of one row each; Spark takes the oldest first."""
    folder.mkdir(exist_ok=True)
    for number, (n, app) in enumerate(ROWS[first : first + count], start=first):
        path = folder / f"{number:03}.json"
        path.write_text(json.dumps({"id": n, "app": app}))
        then = time.time() - age_s + number
        os.utime(path, (then, then))


def lose(checkpoint: Path, *names: str) -> None:
    """Lose files as a cut of power does, with Spark's checksums of them."""
    for path in (checkpoint / name for name in names):
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def of_files(way: Way) -> DataFrame:
    frame = way.spark.readStream.schema("id long, app string").option("maxFilesPerTrigger", 2)
    return frame.json(str(way.folder / "in"))


@pytest.mark.parametrize("way", ["format", pytest.param("foreach", marks=pytest.mark.long)], indirect=True)
@pytest.mark.parametrize("point", POINTS)
def test_a_file_source_reads_the_decided_files_again_though_spark_has_planned_others(
    way: Way, point: str
) -> None:
    checkpoint = way.folder / "q" / "checkpoint"
    put(way.folder / "in", 4, 4, age_s=1000)
    way.arm(f"{point}=raise@2")
    query = way.start(of_files(way))
    ways.until(lambda: not query.isActive, "the crash")
    assert not (checkpoint / "commits/1").exists()
    lose(checkpoint, "offsets/1", "sources/0/1")
    way.arm("")
    # Older files, which Spark takes for the epoch that it plans anew: with the same text {"logOffset":1}.
    put(way.folder / "in", 0, 4, age_s=5000)
    lives: list[int] = []

    def build() -> StreamingQuery:
        lives.append(1)
        return way.start(of_files(way))

    onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=1, delay_s=0))
    assert len(lives) == 2, "one start sees it, the next goes on"
    assert way.exactly(8)


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_a_barrier_that_is_lost_though_spark_noted_its_epoch_comes_back(way: Way) -> None:
    """Spark would run the epoch before again, and then stumble over the note that is there."""
    checkpoint = way.folder / "q" / "checkpoint"
    way.run(way.source(10, rows_per_epoch=5))
    lose(checkpoint, "offsets/1")
    onceonly.supervise(
        lambda: way.start(way.source(20, rows_per_epoch=5)),
        restart=onceonly.FixedDelay(attempts=2, delay_s=0),
    )
    assert way.exactly(20)


@pytest.mark.parametrize("nth", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_barrier_that_is_written_over_before_it_is_planned_is_not_decided(way: Way, nth: int) -> None:
    """Spark reads what it has written; another driver, which stood still in its rename, wakes up before our planner."""
    offsets = way.folder / "q" / "checkpoint" / "offsets" / str(nth - 1)
    fired = way.arm(f"plan.before_resolve=pause@{nth}")
    query = way.start(way.source(20, rows_per_epoch=5))
    ways.until(ways.hit(fired, "plan.before_resolve"), "the planner")
    text = offsets.read_text()
    head, _, end = text.rpartition("\n")
    assert str(nth * 5) in end
    lose(offsets.parent.parent, f"offsets/{offsets.name}")
    offsets.write_text(f"{head}\n{end.replace(str(nth * 5), str(nth * 5 - 2))}")
    (fired / "resume").touch()
    with pytest.raises(StreamingQueryException, match=r"CHECKPOINT_CHANGED.*Spark reads up to"):
        query.awaitTermination(ways.WAIT_S)
    way.arm("")
    if nth > 1:  # what this source notes of its rows does not fit to the other end
        offsets.write_text(text)
    way.run(way.source(20, rows_per_epoch=5))
    assert way.exactly(20)


KAFKA = [(f"k{number % 3}", str(number)) for number in range(300)]


@pytest.mark.parametrize("point", [POINTS[0], pytest.param(POINTS[1], marks=pytest.mark.long)])
def test_a_kafka_source_reads_the_decided_range_again_though_spark_has_planned_another(
    bench: Bench, point: str
) -> None:
    bench.args = ["--per-epoch", "50"]
    bench.feed(KAFKA)
    bench.run_and_kill_at(point, 2)
    lose(bench.checkpoint, "offsets/1")
    bench.args = ["--per-epoch", "80", "--restart", "1"]
    bench.run()
    bench.assert_exactly_once(KAFKA)


def test_a_start_that_was_moved_back_gives_no_row_twice(bench: Bench) -> None:
    bench.args = ["--per-epoch", "50"]
    bench.feed(KAFKA[:100])
    bench.run()
    offsets = bench.checkpoint / "offsets" / "1"
    text = offsets.read_text()
    head, _, end = text.rpartition("\n")
    (of_source,) = json.loads(end).values()
    moved = {bench.source: {partition: end - 2 for partition, end in of_source.items()}}
    lose(bench.checkpoint, "offsets/1")
    offsets.write_text(f"{head}\n{json.dumps(moved)}")
    bench.feed(KAFKA[100:])
    message = bench.run_to_an_error()
    assert "[ONCEONLY:CHECKPOINT_CHANGED]" in message
    assert "offsets/1 is again as decided" in message
    assert offsets.read_text() == text
    bench.run()
    bench.assert_exactly_once(KAFKA)


def test_a_window_on_rocksdb_with_changelog_goes_on_from_the_decided_range(bench: Bench) -> None:
    changelog = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled=true"
    rows = [(f"k{number % 3}", str(number * 20)) for number in range(300)]
    every = ["--work", "window", "--store", "rocksdb", "--conf", changelog]
    twin = beside(bench)
    for each, point in ((bench, True), (twin, False)):
        each.args = [*every, "--per-epoch", "50"]
        each.feed(rows)
        if point:
            each.run_and_kill_at("link.after_put", 3)
            lose(each.checkpoint, "offsets/2")
            each.args = [*every, "--per-epoch", "50", "--restart", "1"]
        each.run()
    assert sorted(bench.read()) == sorted(twin.read()) != []


@pytest.mark.long
def test_a_window_whose_state_only_a_torn_note_could_name_goes_on(bench: Bench) -> None:
    version = "spark.sql.streaming.stateStore.checkpointFormatVersion=2"
    rows = [(f"k{number % 3}", str(number * 20)) for number in range(300)]
    twin = beside(bench)
    for each, point in ((bench, True), (twin, False)):
        each.args = ["--work", "window", "--store", "rocksdb", "--conf", version, "--per-epoch", "50"]
        each.feed(rows)
        if point:
            each.run_and_kill_at("link.before_check", 3)
            # Spark has synced neither of the two, and the barrier of the epoch after is there.
            assert (each.checkpoint / "offsets" / "2").exists()
            lose(each.checkpoint, "commits/1")
            (each.checkpoint / "commits" / "1").touch()
        each.run()
    assert sorted(bench.read()) == sorted(twin.read()) != []


def beside(bench: Bench) -> Bench:
    """Make another job, whose run is the measure."""
    folder = bench.folder / "twin"
    folder.mkdir()
    return type(bench)(bench.kafka, folder)
