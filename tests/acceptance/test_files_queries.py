"""The file sink in real queries, on both ways: exactly once through crashes, and hard cases that lose nothing."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import limited_files
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

import onceonly
import ways
from onceonly import errors, failpoints, files
from ways import ROWS, WAIT_S, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

spark = ways.spark  # a fixture
pytestmark = pytest.mark.acceptance

# The protocol's own steps are test_ways_exactly_once.py's; these are the ones that change a target.
STEPS = (
    "slot.during_write@5",
    "slot.after_prepare@8",
    "link.after_put@2",
    "commit.before_handle@5",
    "commit.after_handle@6",
    "complete.before@3",
    "receipt.before_put@3",
    "sweep.before@5",
)


class FileWay(Way):
    """A query that writes files; ``out`` is its target."""

    def start(
        self,
        df: DataFrame,
        *,
        name: str = "q",
        mode: str = "append",
        trigger: dict[str, str] | None = None,
        **options: str,
    ) -> StreamingQuery:
        given = {
            "checkpointLocation": str(self.folder / name / "checkpoint"),
            "path": str(self.out(name)),
            **options,
        }
        sink = given.pop("sink", "onceonly.files")
        now: Any = {"availableNow": True}
        writer = df.writeStream.outputMode(mode).trigger(**(trigger or now))
        if self.kind == "format":
            return writer.format(sink).options(**given).start()
        writer = writer.option("checkpointLocation", given["checkpointLocation"])
        return writer.foreachBatch(onceonly.sink(sink, **given)).start()

    def ids(self, name: str = "q") -> list[int]:
        """What the manifests give, which is what a bare reader finds after the query's end."""
        whole = sorted(row.id for row in files.read(self.spark, str(self.out(name))).select("id").collect())
        bare = sorted(row.id for row in self.bare(name).select("id").collect())
        assert whole == bare
        return whole

    def bare(self, name: str = "q") -> DataFrame:
        return self.spark.read.schema("id long, app string").parquet(str(self.out(name)))

    def exactly(self, rows: int = len(ROWS), name: str = "q") -> bool:
        staging = self.out(name) / "_onceonly" / "staging"
        left = [path for path in staging.rglob("*") if path.is_file()]
        return self.ids(name) == list(range(rows)) and left == []


@pytest.fixture(params=["format", "foreach"])
def way(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FileWay]:
    made = FileWay(spark, tmp_path, request.param, monkeypatch)
    yield made
    for query in spark.streams.active:
        query.stop()
    made.arm("")


@contextmanager
def polled(target: Path, rows_per_epoch: int) -> Iterator[list[int]]:
    """Read the target all the while: never a part of a file, by the manifests never a part of an epoch.

    Gives the numbers of whole epochs that were seen.
    """
    done, seen, wrong = threading.Event(), [], []

    def poll() -> None:
        while not done.wait(0.01):
            try:
                for path in target.glob("app=*/part-*"):
                    assert pq.ParquetFile(path).read().num_rows > 0
                if (target / "_onceonly").is_dir():
                    epochs = files.committed(str(target))
                    assert {epoch.rows for epoch in epochs} <= {rows_per_epoch}
                    for epoch in epochs:
                        assert sum(
                            pq.ParquetFile(target / file.path).metadata.num_rows for file in epoch.files
                        )
                    seen.append(len(epochs))
            except Exception as error:  # noqa: BLE001  told below
                wrong.append(error)
                return

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
    assert wrong == []


@ways.BY_FORMAT_FIRST
def test_a_raise_at_every_step_is_exactly_once_for_every_reader(way: FileWay) -> None:
    fired = way.arm(", ".join(step.replace("@", "=raise@") for step in STEPS))
    lives = []

    def build() -> StreamingQuery:
        lives.append(1)
        return way.start(way.source(), partitionBy="app")

    with polled(way.out(), 10) as seen:
        onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=len(STEPS), delay_s=0))
    assert way.exactly()
    assert {step.partition("@")[0] for step in STEPS} - set(failpoints.fired(fired)) == set()
    assert seen == sorted(seen)
    assert len(set(seen)) > 3


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_a_query_may_be_started_in_a_thread_of_its_own(way: FileWay) -> None:
    with ThreadPoolExecutor(1) as thread:
        query = thread.submit(way.start, way.source(), partitionBy="app").result(WAIT_S)
    query.awaitTermination(WAIT_S)
    assert way.exactly()


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_sparks_file_source_to_files_through_killed_processes(way: FileWay) -> None:
    source = way.folder / "in"
    source.mkdir()
    for start in range(0, len(ROWS), 10):
        lines = (json.dumps({"id": n, "app": app}) for n, app in ROWS[start : start + 10])
        (source / f"{start:03}.json").write_text("\n".join(lines))
    steps = ("slot.during_write@3", "slot.after_prepare@5", "commit.before_handle@2", "receipt.before_put@3")
    fired = way.arm(", ".join(step.replace("@", "=kill@") for step in steps))

    def build() -> StreamingQuery:
        frame = (
            way.spark.readStream.schema("id long, app string")
            .option("maxFilesPerTrigger", 2)
            .json(str(source))
        )
        return way.start(frame.repartition(2), partitionBy="app")

    onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=len(steps), delay_s=0))
    assert {step.partition("@")[0] for step in steps} == set(failpoints.fired(fired))
    assert way.exactly()


def failure_of(query: StreamingQuery) -> errors.OnceonlyError:
    with pytest.raises(Exception, match="ONCEONLY") as caught:
        query.awaitTermination(WAIT_S)
    found = errors.find_error(caught.value)
    assert found is not None, caught.value
    return found


def long_day(frame: DataFrame) -> DataFrame:
    """Row 25 goes to a partition that no folder name can keep."""
    return frame.withColumn(
        "app", F.when(F.col("id") == 25, F.repeat(F.lit("é"), 150)).otherwise(F.col("app"))
    )


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_a_value_that_no_folder_keeps_stops_the_query_and_loses_nothing(way: FileWay) -> None:
    found = failure_of(way.start(long_day(way.source(rows_per_epoch=20)), partitionBy="app"))
    assert isinstance(found, errors.RecordRefusedError)
    assert "the partition column app, 150 characters" in found.what
    assert way.ids() == list(range(20))
    way.run(
        long_day(way.source(rows_per_epoch=20)).withColumn("app", F.substring("app", 1, 20)),
        partitionBy="app",
    )
    assert way.exactly()


@pytest.mark.parametrize("way", ["foreach"], indirect=True)
def test_strange_partition_values_get_safe_names(way: FileWay) -> None:
    strange = ["../../up", "a/b", "..", "nul\0nul", "line\nbreak", "x=y"]
    pick = F.element_at(F.array(*map(F.lit, strange)), (F.col("id") % len(strange) + 1).cast("int"))
    way.run(way.source(rows=30, rows_per_epoch=30).withColumn("app", pick), partitionBy="app")
    assert way.exactly(30)
    rows = files.read(way.spark, str(way.out())).collect()
    assert {(row.id, row.app) for row in rows} == {(n, strange[n % len(strange)]) for n in range(30)}
    assert not (way.folder / "up").exists()
    assert {path.parent for path in way.out().rglob("part-*")} <= set(way.out().iterdir())


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_a_full_disk_stops_the_query_and_loses_nothing(way: FileWay) -> None:
    onceonly.register(way.spark, limited_files.LimitedFiles)
    (way.folder / "q").mkdir()
    way.run(way.source(rows=20, rows_per_epoch=20), sink="onceonly.limited")
    full = way.out().parent / "full"
    full.touch()
    found = failure_of(way.start(way.source(rows_per_epoch=20), sink="onceonly.limited"))
    assert isinstance(found, errors.WriteFailedError)
    assert "no space for" in found.what
    assert found.restartable
    assert way.ids() == list(range(20))
    full.unlink()
    way.run(way.source(rows_per_epoch=20), sink="onceonly.limited")
    assert way.exactly()


def cast_void(frame: DataFrame) -> DataFrame:
    return frame.withColumn("gone", F.lit(None))


@pytest.mark.parametrize("way", ["format"], indirect=True)
@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (cast_void, {}, "The column gone is of type void, and parquet files cannot hold that"),
        (None, {"format": "text"}, "exactly one string column besides the partition columns, not id bigint"),
        (None, {"path": "/proc/1/onceonly"}, "/proc/1/onceonly"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_first_record(
    way: FileWay, change: Callable[[DataFrame], DataFrame] | None, options: dict[str, str], said: str
) -> None:
    frame = way.source() if change is None else change(way.source())
    found = failure_of(way.start(frame, **options))  # type: ignore[arg-type]
    assert said in str(found)
    assert not list(way.out().rglob("part-*"))


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_a_target_of_sparks_own_sink_is_refused_and_left_alone(way: FileWay) -> None:
    target = str(way.out())
    theirs = (
        way.source(rows=10).writeStream.format("parquet").option("checkpointLocation", str(way.folder / "c"))
    )
    assert theirs.trigger(availableNow=True).start(target).awaitTermination(WAIT_S)
    before = sorted(way.out().rglob("*"))
    found = failure_of(way.start(way.source()))
    assert isinstance(found, errors.ConfigurationError)
    assert "written by Spark's own file sink" in found.what
    assert sorted(way.out().rglob("*")) == before


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_the_other_guarantees_are_real(way: FileWay, guarantee: str) -> None:
    fired = way.arm("slot.after_prepare=raise@3, commit.after_handle=raise@4")

    def build() -> StreamingQuery:
        return way.start(way.source(), **{"onceonly.guarantee": guarantee})  # type: ignore[arg-type]

    onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=2, delay_s=0))
    assert len(failpoints.fired(fired)) == 2
    whole = sorted(row.id for row in files.read(way.spark, str(way.out())).collect())
    bare = sorted(row.id for row in way.bare().collect())
    assert set(whole) <= set(bare)
    if guarantee == "at-least-once":
        assert len(bare) > len(ROWS)
        assert whole == list(range(len(ROWS))), "by the manifests, each row of the tries that count"
    else:
        assert len(set(bare)) == len(bare) <= len(ROWS)


@pytest.mark.parametrize("way", ["format"], indirect=True)
@pytest.mark.parametrize("how", ["partitionBy", "start"])
def test_partition_by_of_the_query_names_folders(way: FileWay, how: str) -> None:
    given = {"checkpointLocation": str(way.folder / "q" / "checkpoint"), "path": str(way.out())}
    writer = way.source().writeStream.format("onceonly.files").options(**given).trigger(availableNow=True)
    query = writer.partitionBy("app").start() if how == "partitionBy" else writer.start(partitionBy=["app"])
    query.awaitTermination(WAIT_S)
    assert {path.name for path in way.out().iterdir()} == {"_onceonly", "app=app0", "app=app1", "app=app2"}
    assert way.exactly()


def test_complete_mode_is_refused_before_the_first_record(way: FileWay) -> None:
    counts = way.source().groupBy("app").count()
    with pytest.raises(Exception, match="cannot replace what it has written"):
        way.start(counts, mode="complete").awaitTermination(WAIT_S)
    assert not list(way.out().glob("**/part-*"))


def test_a_target_that_was_put_in_the_place_of_another_between_two_starts_is_found_as_it_is(
    way: FileWay,
) -> None:
    """The session's processes outlive a query, and what they knew of the start before is not believed."""
    way.start(way.source(20)).awaitTermination(WAIT_S)
    (way.out() / "_onceonly" / "target-id").write_text("5" * 32)
    way.start(way.source()).awaitTermination(WAIT_S)
    assert way.exactly()


@pytest.mark.parametrize("how", ["epoch", "sink"])
@pytest.mark.parametrize("way", ["foreach"], indirect=True)
def test_complete_mode_is_refused_inside_a_function_of_the_users(way: FileWay, how: str) -> None:
    checkpoint = str(way.folder / "q" / "checkpoint")

    def write(df: DataFrame, batch_id: int) -> None:
        if how == "sink":
            onceonly.sink("onceonly.files", path=str(way.out()), checkpointLocation=checkpoint)(df, batch_id)
            return
        with onceonly.epoch(df, batch_id, log=checkpoint) as epoch:
            epoch.write(df, onceonly.sink("onceonly.files", path=str(way.out())))

    def start(mode: str, frame: DataFrame) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        return writer.outputMode(mode).trigger(availableNow=True).start()

    found = failure_of(start("complete", way.source().groupBy("app").count()))
    assert isinstance(found, errors.ConfigurationError)
    assert "cannot replace what it has written, as complete mode asks" in found.what
    assert not way.out().exists()
    assert start("update", way.source().groupBy("app").count()).awaitTermination(WAIT_S)
    assert list(way.out().glob("part-*"))
