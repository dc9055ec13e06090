"""``onceonly.epoch`` on real Spark: several sinks, one decision, one evaluation."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import ledger_sink
import pytest
from ledger_sink import LedgerSink
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

import onceonly
import ways
from onceonly import failpoints
from ways import ROWS, WAIT_S, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

spark = ways.spark  # a fixture
pytestmark = pytest.mark.acceptance

STEPS = (
    "plan.after_claim@1",
    "slot.during_write@4",
    "slot.after_prepare@5",
    "link.before_put@3",
    "link.after_put@2",
    "commit.after_handle[evens]@3",
    "commit.before_handle[odds]@5",
    "complete.before[odds]@4",
    "receipt.after_put@6",
)


@pytest.fixture
def way(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    made = Way(spark, tmp_path, "foreach", monkeypatch)
    yield made
    for query in spark.streams.active:
        query.stop()
    made.arm("")


def ledger(way: Way, name: str, **options: str) -> Any:  # noqa: ANN401  what onceonly.sink gives
    return onceonly.sink(LedgerSink, folder=str(way.out(name)), **options)


def start(
    way: Way, df: DataFrame, write: Callable[[DataFrame, int], None], mode: str = "append"
) -> StreamingQuery:
    writer = df.writeStream.outputMode(mode).option("checkpointLocation", checkpoint(way))
    return writer.trigger(availableNow=True).foreachBatch(write).start()


def checkpoint(way: Way) -> str:
    return str(way.folder / "checkpoint")


def odds_and_evens(way: Way) -> Callable[[DataFrame, int], None]:
    odds, evens = ledger(way, "odds"), ledger(way, "evens")

    def write(df: DataFrame, number: int) -> None:
        with onceonly.epoch(df, number, log=checkpoint(way)) as epoch:
            epoch.write(df.where("id % 2 = 1"), odds, name="odds")
            epoch.write(df.where("id % 2 = 0"), evens, name="evens")

    return write


def assert_all_once(way: Way, rows: int = len(ROWS)) -> None:
    assert way.ids("odds") == list(range(1, rows, 2))
    assert way.ids("evens") == list(range(0, rows, 2))
    assert ledger_sink.staged(way.out("odds")) == ledger_sink.staged(way.out("evens")) == []


def test_a_raise_at_every_step_leaves_both_sinks_whole(way: Way) -> None:
    fired = way.arm(", ".join(step.replace("@", "=raise@") for step in STEPS))
    lives = []

    def build() -> StreamingQuery:
        lives.append(1)
        return start(way, way.source(rows_per_epoch=6), odds_and_evens(way))

    onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=len(STEPS), delay_s=0))
    assert_all_once(way)
    assert {step.partition("@")[0] for step in STEPS} == set(failpoints.fired(fired))
    assert len(lives) == len(STEPS) + 1


def test_the_frame_is_evaluated_once_for_both_sinks_also_in_a_drain(way: Way) -> None:
    seen = way.spark.sparkContext.accumulator(0)

    @F.udf("long")
    def counted(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  PySpark refuses hints here
        seen.add(1)
        return number

    def build() -> StreamingQuery:
        frame = way.source(rows=20).select(counted("id").alias("id"))
        return start(way, frame, odds_and_evens(way))

    way.arm("commit.before_return=raise@1")
    onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=1, delay_s=0))
    assert_all_once(way, 20)
    assert seen.value == 30  # the first epoch is run twice
    assert way.spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


def test_a_block_that_raises_has_written_nothing_and_keeps_nothing(way: Way) -> None:
    def write(df: DataFrame, number: int) -> None:
        with onceonly.epoch(df, number, log=checkpoint(way)) as epoch:
            epoch.write(df, ledger(way, "odds"))
            message = "a thought too late"
            raise ValueError(message)

    query = start(way, way.source(), write)
    with pytest.raises(Exception, match="a thought too late"):
        query.awaitTermination(WAIT_S)
    assert not way.out("odds").exists()
    assert way.spark.sparkContext._jsc.getPersistentRDDs().isEmpty()
    start(way, way.source(), odds_and_evens(way)).awaitTermination(WAIT_S)
    assert_all_once(way)


def test_an_epoch_without_a_write_keeps_the_state_whole(way: Way) -> None:
    def write(df: DataFrame, number: int) -> None:
        with onceonly.epoch(df, number, log=checkpoint(way)) as epoch:
            if number % 2:
                epoch.write(df, ledger(way, "odds"), name="odds")

    counts = way.source(rows_per_epoch=10).groupBy("app").count()
    start(way, counts, write, mode="update").awaitTermination(WAIT_S)
    last: dict[str, int] = {}
    for row in ledger_sink.committed(way.out("odds")):
        last[str(row["app"])] = max(last.get(str(row["app"]), 0), int(str(row["count"])))
    assert last == Counter(app for _, app in ROWS)


def test_two_writes_of_one_name_are_refused_and_nothing_is_written(way: Way) -> None:
    def write(df: DataFrame, number: int) -> None:
        with onceonly.epoch(df, number, log=checkpoint(way)) as epoch:
            epoch.write(df, ledger(way, "odds"))
            epoch.write(df, ledger(way, "evens"))

    query = start(way, way.source(), write)
    with pytest.raises(Exception, match="written twice to a sink named 'ledger'") as caught:
        query.awaitTermination(WAIT_S)
    assert "name of its own" in onceonly.explain(caught.value)
    assert not way.out("odds").exists()


def test_a_second_block_in_one_call_is_refused_and_not_taken_for_a_replay(way: Way) -> None:
    def write(df: DataFrame, number: int) -> None:
        for name in ("odds", "evens"):
            with onceonly.epoch(df, number, log=checkpoint(way)) as epoch:
                epoch.write(df, ledger(way, name))

    query = start(way, way.source(), write)
    with pytest.raises(Exception, match="already written in this call") as caught:
        query.awaitTermination(WAIT_S)
    assert "one onceonly.epoch block" in onceonly.explain(caught.value)
    assert not way.out("evens").exists()


def test_a_write_outside_the_block_is_refused_and_not_forgotten(way: Way) -> None:
    def write(df: DataFrame, number: int) -> None:
        onceonly.epoch(df, number, log=checkpoint(way)).write(df, ledger(way, "odds"))

    query = start(way, way.source(), write)
    with pytest.raises(Exception, match="outside its block"):
        query.awaitTermination(WAIT_S)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"onceonly.adopt": "true"}, "onceonly.adopt is the query's"),
        ({"checkpointLocation": "/elsewhere"}, "names the checkpoint /elsewhere"),
        ({"onceonly.guarantee": "at-least-once"}, "does not offer at-least-once"),
    ],
)
def test_options_that_a_sink_of_several_cannot_have(way: Way, options: dict[str, str], said: str) -> None:
    def write(df: DataFrame, number: int) -> None:
        with onceonly.epoch(df, number, log=checkpoint(way)) as epoch:
            epoch.write(df, ledger(way, "odds", **options))

    query = start(way, way.source(), write)
    with pytest.raises(Exception, match=said):
        query.awaitTermination(WAIT_S)
    assert not way.out("odds").exists()


def test_the_checkpoint_of_another_query_is_refused(way: Way) -> None:
    other = str(way.folder / "other")

    def write(df: DataFrame, number: int) -> None:
        with onceonly.epoch(df, number, log=other) as epoch:
            epoch.write(df, ledger(way, "odds"))

    query = start(way, way.source(), write)
    with pytest.raises(Exception, match="no streaming query keeps its checkpoint"):
        query.awaitTermination(WAIT_S)
