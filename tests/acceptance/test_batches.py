"""A batch is one epoch of its id: killed at each step and run again, every row is there once, and never others."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ledger_sink
import pytest
from harness import TEXTS, open_transactions, read_committed, visible_files
from job import BATCH

import onceonly
import ways
from onceonly import errors, failpoints
from onceonly.checkpoint.batches import BatchCheckpoint
from onceonly.operations.find import find
from onceonly.operations.look import newest as listed
from onceonly_proof.embedded.s3 import EmbeddedS3
from ways import WAIT_S, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness import Bench
    from pyspark.sql import DataFrame, SparkSession

    from onceonly_proof.embedded.kafka import EmbeddedKafka

spark = ways.spark  # a fixture
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

Rows = Counter[tuple[str, str]]
SINKS = ["kafka", "files", pytest.param("ledger", marks=pytest.mark.long)]
KILLS = [
    "plan.before_resolve", "plan.after_claim", "plan.after_resolve", "slot.after_prepare", "link.before_put",
    "link.during_put", "link.after_put", "commit.before_handle", "commit.after_handle", "complete.before",
    "receipt.before_put", "receipt.after_put", "sweep.before", "commit.before_return",
]  # fmt: skip
ROWS = [(f"k{number % 17}", str(number)) for number in range(400)]


@dataclass
class Target:
    """Where batches of one sink write, and a reader that knows nothing of the sink."""

    way: Way
    sink: str
    servers: str
    topic: str
    fired: Path
    """The folder of the crash points, which are armed by a file: with another environment Spark starts all anew."""
    armed: int = 0

    def arm(self, *points: str) -> Callable[[], bool]:
        """Arm crash points, and no others any more; give what says that the first has been passed."""
        self.armed += 1
        failpoints.arm(self.way.folder / "armed", [f"{point}#{self.armed}" for point in points])
        return ways.hit(self.fired, f"{points[0].partition('=')[0]}#{self.armed}" if points else "")

    @property
    def folder(self) -> Path:
        return self.way.folder / "out"

    @property
    def logs(self) -> Path:
        return self.way.folder / "logs"

    def options(self) -> dict[str, str]:
        return {
            "kafka": {"kafka.bootstrap.servers": self.servers, "topic": self.topic},
            "files": {"path": str(self.folder), "format": "json"},
            "ledger": {"folder": str(self.folder)},
        }[self.sink]

    def frame(self, job: str, rows: int = 40, slots: int = 2) -> DataFrame:
        return self.way.spark.range(0, rows, 1, slots).selectExpr(
            f"'{job}' as key", "cast(id as string) as value"
        )

    def save(self, job: str, df: DataFrame | None = None, **options: Any) -> None:  # noqa: ANN401
        frame = self.frame(job) if df is None else df
        given = {**self.options(), "checkpointLocation": str(self.logs), "onceonly.job": job, **options}
        frame.write.format(f"onceonly.{self.sink}").options(**given).mode("append").save()

    def rows(self) -> Rows:
        if self.sink == "kafka":
            return Counter(read_committed(self.servers, self.topic))
        if self.sink == "ledger":
            return Counter((str(row["key"]), str(row["value"])) for row in ledger_sink.committed(self.folder))
        lines = [line for path in visible_files(self.folder) for line in path.read_bytes().splitlines()]
        return Counter((row["key"], row["value"]) for row in map(json.loads, lines))

    def left_open(self, job: str) -> list[str]:
        query = BatchCheckpoint.at(str(self.logs / job), job).query()
        if self.sink == "kafka":
            return open_transactions(self.servers, query)
        staged = [path for path in self.folder.rglob("*.staged") if path.is_file()]
        return [*map(str, staged), *(ledger_sink.staged(self.folder) if self.sink == "ledger" else [])]


def of(*jobs: str, rows: int = 40) -> Rows:
    return Counter((job, str(number)) for job in jobs for number in range(rows))


@pytest.fixture
def target(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Target]:
    way = Way(spark, tmp_path, "batch", monkeypatch)
    topic = f"batches-{tmp_path.name}"
    kafka.create_topic(topic, partitions=2)
    fired = way.arm(f"@{tmp_path / 'armed'}")
    yield Target(way, request.param, kafka.bootstrap_servers, topic, fired)
    way.disarm()


OF_EACH = pytest.mark.parametrize("target", SINKS, indirect=True)
OF_FILES = pytest.mark.parametrize("target", ["files"], indirect=True)


@OF_EACH
def test_every_row_is_there_once_after_a_process_died_at_each_step(target: Target) -> None:
    """The planner, a task's worker or the commit process is killed, and Spark's driver lives on."""
    jobs = [point.replace("_", "-") for point in KILLS]
    for job, point in zip(jobs, KILLS, strict=True):
        died = target.arm(f"{point}=kill@{2 if point == 'link.during_put' else 1}")
        with pytest.raises(Exception, match=r"(?i)python|worker|crash|EOF|reset|broken pipe"):
            target.save(job)
        assert died()
        target.arm()
        target.save(job)
        assert target.left_open(job) == []
    assert target.rows() == of(*jobs)
    for job in jobs[::5]:
        target.save(job)
    assert target.rows() == of(*jobs)


@OF_EACH
def test_other_rows_columns_or_targets_under_an_id_are_refused_by_name(target: Target) -> None:
    target.save("a")
    for _ in range(2):
        with pytest.raises(errors.ReplayMismatchError, match=r"batch a is done.*other rows") as caught:
            target.save("a", target.frame("a", rows=41))
        assert "onceonly.job" in caught.value.next_step
        assert caught.value.__cause__ is None
    with pytest.raises(
        errors.ConfigurationError, match="value string, and this run has key string, value bigint"
    ):
        target.save("a", target.frame("a").selectExpr("key", "cast(value as bigint) as value"))
    target.save("a", target.frame("a", slots=1))
    target.save("a", target.frame("a", rows=41), **{"onceonly.replay": "tell"})
    assert target.rows() == of("a")
    target.save("b", target.frame("b", rows=41))
    assert target.rows() == of("a") + of("b", rows=41)


@OF_FILES
def test_what_cannot_be_is_refused_by_name_before_a_row_is_read(target: Target, tmp_path: Path) -> None:
    def refuse_to_be_read(_: object) -> object:
        message = "a row was read"
        raise AssertionError(message)

    frame = target.frame("a").rdd.map(refuse_to_be_read).toDF("key string, value string")
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("'onceonly.job' is missing", {"onceonly.job": ""}),
        ("cannot be '../a'", {"onceonly.job": "../a"}),
        ("'onceonly.adopt' is a stream's", {"onceonly.adopt": "true"}),
        ("onceonly.repaly", {"onceonly.repaly": "tell"}),
        ("s3:", {"checkpointLocation": "s3://bucket/logs"}),
    ]
    for words, options in wrong:
        with pytest.raises(errors.ConfigurationError, match=words):
            target.save("a", frame, **options)
    given = {**target.options(), "onceonly.job": "a"}
    with pytest.raises(errors.ConfigurationError, match="'checkpointLocation' is missing"):
        frame.write.format("onceonly.files").options(**given).mode("append").save()
    given["checkpointLocation"] = str(target.logs)
    with pytest.raises(errors.ConfigurationError, match="replaces nothing, as mode overwrite asks"):
        frame.write.format("onceonly.files").options(**given).mode("overwrite").save()
    for mode in ("error", "ignore"):
        with pytest.raises(Exception, match=r"(?i)append"):
            frame.write.format("onceonly.files").options(**given).mode(mode).save()
    assert not target.logs.exists()
    with pytest.raises(errors.ConfigurationError, match=r"'onceonly\.job' is the id of a batch"):
        onceonly.sink("onceonly.files", **given)
    stream = target.way.source().writeStream.format("onceonly.files").options(**given)
    with pytest.raises(errors.ConfigurationError, match=r"'onceonly\.job' is the id of a batch"):
        stream.start()


@OF_FILES
def test_columns_of_partition_by_are_folders_as_they_are_in_a_stream(target: Target) -> None:
    frame = target.way.spark.range(6).selectExpr("cast(id as string) as value", "id % 2 as day")
    given = {**target.options(), "checkpointLocation": str(target.logs), "onceonly.job": "parts"}
    for _ in range(2):
        frame.write.partitionBy("day").format("onceonly.files").options(**given).mode("append").save()
    assert {path.parent.name for path in visible_files(target.folder)} == {"day=0", "day=1"}
    assert onceonly.files.read(target.way.spark, str(target.folder)).count() == 6


@pytest.mark.parametrize("target", ["kafka", "files"], indirect=True)
def test_of_two_runs_at_once_one_wins_and_the_other_says_so(target: Target) -> None:
    prepared = target.arm("slot.after_prepare=pause")
    ended: list[BaseException | None] = []

    def first() -> None:
        try:
            target.save("a", target.frame("a", slots=1))
        except BaseException as error:  # noqa: BLE001  it is looked at below
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=first)
    thread.start()
    ways.until(lambda: prepared() or ended, "the first run to have prepared its rows")
    assert not ended, str(ended[0])
    target.save("a", target.frame("a", slots=1))
    assert target.rows() == of("a")
    (target.fired / "resume").touch()
    thread.join(WAIT_S)
    assert isinstance(ended[0], errors.SupersededError), ended
    assert target.rows() == of("a")
    assert target.left_open("a") == []


@pytest.fixture
def place(target: Target, tmp_path: Path) -> Iterator[str]:
    """Return a folder for logs on a store, which the session is told how to reach."""
    spark = target.way.spark
    told = spark.sparkContext._jsc.hadoopConfiguration()
    with EmbeddedS3(tmp_path / "s3") as s3:
        s3.make_bucket("jobs")
        for name, value in s3.hadoop().items():
            told.set(name, value)
        onceonly.register(spark, ledger_sink.LedgerSink)
        yield "s3a://jobs/logs"
        for name in s3.hadoop():
            told.unset(name)
        onceonly.register(spark, ledger_sink.LedgerSink)


@pytest.mark.long
@OF_FILES
def test_every_row_is_there_once_where_the_log_is_on_a_store(target: Target, place: str) -> None:
    """No part of Spark looks at the store: it needs no connector."""
    points = [
        "plan.after_claim",
        "slot.after_prepare",
        "link.before_put",
        "link.after_put",
        "receipt.after_put",
    ]
    jobs = [point.replace("_", "-") for point in points]
    for job, point in zip(jobs, points, strict=True):
        died = target.arm(f"{point}=kill@1")
        with pytest.raises(Exception, match=r"(?i)python|worker|crash|EOF|reset|broken pipe"):
            target.save(job, checkpointLocation=place)
        assert died()
        target.arm()
        for _ in range(2):
            target.save(job, checkpointLocation=place)
        with pytest.raises(errors.ReplayMismatchError):
            target.save(job, target.frame(job, rows=41), checkpointLocation=place)
    assert target.rows() == of(*jobs)
    assert not target.logs.exists()


@OF_FILES
def test_a_batch_is_listed_as_a_stream_is_and_its_claims_are_no_epochs(target: Target) -> None:
    for _ in range(3):
        target.save("a")
    target.save("b")
    found = find(str(target.logs)).checkpoints
    assert [(each.path.rpartition("/")[2], each.run.word) for each in found] == [("a", "down"), ("b", "down")]
    for each in found:
        assert [row.view.state.value for row in listed(each, limit=None, history=True).epochs] == ["complete"]


@pytest.mark.parametrize(
    ("sink", "kills"),
    [
        pytest.param("kafka", ["slot.after_prepare", "link.after_put"], marks=pytest.mark.long),
        ("files", ["commit.before_return"]),
        *(
            pytest.param(sink, [
                "plan.after_claim", "slot.during_write", "slot.after_prepare", "link.before_put", "link.after_put",
                "plan.before_recommit", "plan.after_recommit", "receipt.before_put", "receipt.after_put",
                "commit.before_return",
            ], marks=pytest.mark.long)
            for sink in ("kafka", "files", "results")
        ),
    ],
)  # fmt: skip
def test_a_backfill_whose_driver_is_killed_and_killed_again_ends_with_every_row_once(
    bench: Bench, sink: str, kills: list[str]
) -> None:
    """One life of one batch, each run of it in a process tree of its own, which SIGKILL ends."""
    bench.args = ["--way", "batch", "--sink", sink, *TEXTS, *bench.with_all_sinks()]
    bench.feed(ROWS)
    for point in kills:
        bench.run_and_kill_at(point)
    for _ in range(2):
        bench.run()
    bench.assert_exactly_once(ROWS, sink)
    query = BatchCheckpoint.at(str(bench.checkpoint / BATCH), BATCH).query()
    assert open_transactions(bench.kafka.bootstrap_servers, query) == []
    bench.feed(ROWS[:1])
    assert "REPLAY_MISMATCH" in bench.run_to_an_error()
    bench.assert_exactly_once(ROWS, sink)


@pytest.mark.long
def test_a_backfill_by_spark_connect_is_run_again_after_a_crash_and_refused_with_other_rows(
    bench: Bench,
) -> None:
    bench.args = ["--connect", "--way", "batch", "--sink", "files", "--files", str(bench.files), *TEXTS]
    bench.feed(ROWS)
    bench.run_and_kill_at("link.after_put")
    bench.run()
    bench.assert_exactly_once(ROWS, "files")
    bench.feed(ROWS[:1])
    assert "REPLAY_MISMATCH" in bench.run_to_an_error()
    bench.assert_exactly_once(ROWS, "files")
