"""Both ways, on real Spark: every row once, whatever is stopped, raised or run again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import ledger_sink
import pytest
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

import onceonly
import ways
from onceonly import failpoints
from ways import ROWS, hit, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from ways import Way

way, spark = ways.way, ways.spark  # fixtures
pytestmark = pytest.mark.acceptance

# HINTS: PySpark 4.2 takes type hints of a UDF for a choice of its Arrow kinds, and refuses `int`.
# A first failure at each step, in one life of a query after another.
STEPS = (
    "plan.before_resolve@2",
    "plan.after_claim@2",
    "plan.after_resolve@5",
    "slot.before_begin@3",
    "slot.during_write@5",
    "slot.before_prepare@8",
    "slot.after_prepare@11",
    "link.before_put@3",
    "link.after_put@2",
    "commit.before_handle@6",
    "commit.after_handle@7",
    "plan.before_recommit@1",
    "plan.after_recommit@2",
    "receipt.before_put@4",
    "receipt.after_put@6",
    "commit.before_return@5",
)


def test_available_now_then_more_rows_after_a_restart(way: Way) -> None:
    way.run(way.source(rows=25))
    assert way.exactly(25)
    way.run(way.source())
    assert way.exactly()
    way.run(way.source())
    assert way.exactly()


def test_a_named_query_finds_its_decisions_where_the_session_puts_checkpoints(way: Way) -> None:
    checkpoints = way.folder / "checkpoints"
    way.spark.conf.set("spark.sql.streaming.checkpointLocation", str(checkpoints))
    onceonly.register(way.spark, ledger_sink.LedgerSink)

    def run(rows: int) -> None:
        writer = way.source(rows=rows).writeStream.queryName("named").trigger(availableNow=True)
        if way.kind == "format":
            writer = writer.format("onceonly.ledger").option("folder", str(way.out()))
        else:
            writer = writer.foreachBatch(onceonly.sink("onceonly.ledger", folder=str(way.out())))
        query = writer.start()
        assert query.awaitTermination(ways.WAIT_S)
        # What Spark reports is kept beside the decisions, too.
        progress = checkpoints / "named" / "onceonly" / "progress"
        until(lambda: any(progress.glob("*.json")), "the reports of its epochs")

    try:
        run(25)
        assert way.exactly(25)
        run(len(ROWS))
        assert way.exactly()
    finally:
        way.spark.conf.unset("spark.sql.streaming.checkpointLocation")
        onceonly.register(way.spark, ledger_sink.LedgerSink)
    assert [path.name for path in checkpoints.iterdir()] == ["named"]
    assert (checkpoints / "named" / "onceonly" / "links").is_dir()


@ways.BY_FORMAT_FIRST
def test_a_raise_at_every_step_under_supervision(way: Way) -> None:
    fired = way.arm(", ".join(step.replace("@", "=raise@") for step in STEPS))
    lives = []

    def build() -> StreamingQuery:
        lives.append(1)
        return way.start(way.source(rows_per_epoch=6))

    onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=len(STEPS), delay_s=0))
    assert way.exactly()
    missed = {step.partition("@")[0] for step in STEPS} - set(failpoints.fired(fired))
    assert missed == set()
    assert len(lives) == len(STEPS) + 1


@ways.BY_FORMAT_FIRST
def test_stop_in_the_middle_of_an_epoch(way: Way) -> None:
    fired = way.arm("slot.after_prepare=pause@3")
    query = way.start(way.source(), trigger={"processingTime": "0 seconds"})
    until(hit(fired, "slot.after_prepare"), "the pause")
    assert ledger_sink.staged(way.out()) != []
    query.stop()
    way.arm("")
    way.run(way.source())
    assert way.exactly()


def test_an_idle_source_leaves_nothing_open(way: Way) -> None:
    query = way.start(way.source(), trigger={"processingTime": "100 milliseconds"})
    until(lambda: len(way.ids()) == len(ROWS), "all rows")
    until(lambda: query.status["message"].startswith("Waiting"), "an idle source")
    progress = query.lastProgress
    assert way.exactly()
    query.stop()
    way.run(way.source())
    assert way.exactly()
    assert progress is not None
    assert progress["batchId"] == len(ROWS) // 10 - 1


@ways.BY_FORMAT_FIRST
def test_one_query_fails_and_restarts_while_the_other_goes_on(way: Way) -> None:
    poison = way.folder / "poison"
    poison.touch()
    lives: Counter[str] = Counter()

    def failing() -> StreamingQuery:
        lives["failing"] += 1
        if lives["failing"] == 3:
            poison.unlink()
        return way.start(way.source().where(poisoned(str(poison))("id")), name="failing")

    def steady() -> StreamingQuery:
        lives["steady"] += 1
        return way.start(way.source(rows_per_epoch=3), name="steady")

    onceonly.supervise(failing, steady, restart=onceonly.FixedDelay(attempts=2, delay_s=0))
    assert way.exactly(name="failing")
    assert way.exactly(name="steady")
    assert lives == {"failing": 3, "steady": 1}


def poisoned(path: str) -> Callable[[str], Column]:
    """Make a filter that lets everything pass, and fails at row 25 as long as a file is there."""

    @F.udf("boolean")
    def check(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  see HINTS
        import os

        if number == 25 and os.path.exists(path):  # noqa: PTH110  runs in a worker, once a row
            message = "poison"
            raise ValueError(message)
        return True

    return check


# Spark refuses update mode to Python formats.
@pytest.mark.parametrize("way", ["foreach"], indirect=True)
@pytest.mark.parametrize("provider", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_a_windowed_aggregation_in_update_mode(way: Way, provider: str) -> None:
    package = "org.apache.spark.sql.execution.streaming.state."
    way.spark.conf.set("spark.sql.streaming.stateStore.providerClass", package + provider)
    fired = way.arm("slot.after_prepare=raise@3, link.after_put=raise@3, commit.before_return=raise@4")

    def build() -> StreamingQuery:
        seconds = F.timestamp_seconds(F.col("id"))
        windows = (
            way.source()
            .withColumn("at", seconds)
            .withWatermark("at", "30 seconds")
            .groupBy(F.window("at", "20 seconds"), "app")
            .count()
            .select(F.col("window.start").cast("long").alias("start"), "app", "count")
        )
        return way.start(windows, mode="update")

    try:
        onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=3, delay_s=0))
    finally:
        way.spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    assert len(failpoints.fired(fired)) == 3
    assert last_counts(way.out()) == Counter((n // 20 * 20, app) for n, app in ROWS)


def last_counts(out: Path) -> dict[tuple[int, str], int]:
    """The count of each window in the newest epoch that has it; no epoch has it twice."""
    last: dict[tuple[int, str], tuple[int, int]] = {}
    for epoch, row in sorted(ledger_sink.by_epoch(out), key=lambda found: found[0]):
        key = (int(str(row["start"])), str(row["app"]))
        assert last.get(key, (-1, 0))[0] < epoch, f"{key} twice in chk-{epoch}"
        last[key] = (epoch, int(str(row["count"])))
    return {key: count for key, (_, count) in last.items()}


def test_a_frame_is_evaluated_once_an_epoch_also_when_it_drains(way: Way) -> None:
    seen = way.spark.sparkContext.accumulator(0)

    @F.udf("long")
    def counted(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  see HINTS
        seen.add(1)
        return number

    def build() -> StreamingQuery:
        frame: DataFrame = way.source(rows=20).select(counted("id").alias("id"))
        return way.start(frame)

    way.arm("commit.before_return=raise@1")
    onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=1, delay_s=0))
    assert way.exactly(20)
    assert seen.value == 30
