"""A replay that gives other rows: a plan that promises the same ones stops, another one goes on and is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

import ways
from onceonly import errors
from onceonly.spark.plans import may_differ
from ways import ROWS, WAIT_S, Way

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

spark, way = ways.spark, ways.way  # fixtures
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(480)]


# The guards know a file that was written anew; here it is the replay that is looked at.
GO_ON: dict[str, Any] = {"onceonly.source.changed": "go-on"}


def rewrite(way: Way, count: int) -> None:
    """Write the one file of the source anew, under its name: Spark reads what is there."""
    folder = way.folder / "in"
    folder.mkdir(exist_ok=True)
    lines = (json.dumps({"id": n, "app": app}) for n, app in ROWS[:count])
    (folder / "rows.json").write_text("\n".join(lines))


def of_file(way: Way) -> DataFrame:
    return way.spark.readStream.schema("id long, app string").json(str(way.folder / "in"))


def left_before_its_note(way: Way, change: ways.Change) -> None:
    """Run the query until all is committed and Spark has not noted it."""
    rewrite(way, 10)
    way.arm("commit.before_return=raise")
    query = way.start(change(of_file(way)))
    ways.until(lambda: not query.isActive, "the crash")
    assert not (way.folder / "q/checkpoint/commits/0").exists()
    way.arm("")
    rewrite(way, 7)


def same(df: DataFrame) -> DataFrame:
    return df


def of_chance(df: DataFrame) -> DataFrame:
    return df.where(F.rand() >= 0.0)


def test_a_plan_that_promises_the_same_rows_stops_before_spark_notes_others(way: Way) -> None:
    left_before_its_note(way, same)
    for _ in range(2):
        query = way.start(of_file(way), **GO_ON)
        with pytest.raises(Exception, match="ONCEONLY") as caught:
            query.awaitTermination(WAIT_S)
        found = errors.find_error(caught.value)
        assert isinstance(found, errors.ReplayMismatchError)
        assert "onceonly.replay=tell" in found.next_step
    assert not (way.folder / "q/checkpoint/commits/0").exists()
    way.run(of_file(way), **GO_ON, **{"onceonly.replay": "tell"})
    assert way.exactly(10), "the output stands as it was decided"


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_a_plan_of_chance_goes_on_and_is_told(way: Way) -> None:
    way.record()
    left_before_its_note(way, of_chance)
    way.run(of_chance(of_file(way)), **GO_ON)
    assert way.exactly(10)
    assert len(way.seen("replay.differs")) == 1


PLANS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "as it is": (lambda df: df.where("id > 1"), ""),
    "count and sum of whole numbers": (lambda df: df.groupBy("app").agg(F.count("*"), F.sum("id")), ""),
    "join": (lambda df: df.join(df.withColumnRenamed("app", "b"), "id"), ""),
    "rand": (lambda df: df.withColumn("r", F.rand()), "not deterministic"),
    "uuid": (lambda df: df.withColumn("r", F.expr("uuid()")), "not deterministic"),
    "first": (lambda df: df.groupBy("app").agg(F.first("id")), "order of rows"),
    "collect_list": (lambda df: df.groupBy("app").agg(F.collect_list("id")), "order of rows"),
    "a function that says so": (
        lambda df: df.withColumn("r", F.udf(lambda n: n, "long").asNondeterministic()("id")),
        "not deterministic",
    ),
    "a sum of floats": (lambda df: df.groupBy("app").agg(F.sum(F.col("id").cast("double"))), "floats"),
    "an average": (lambda df: df.groupBy("app").agg(F.avg("id")), "order of rows"),
    "some row of several": (lambda df: df.dropDuplicates(["app"]), "order of rows"),
}


@pytest.mark.parametrize("name", PLANS)
def test_what_a_plan_promises(spark: SparkSession, name: str) -> None:
    change, why = PLANS[name]
    found = may_differ(
        change(spark.createDataFrame(ROWS, "id long, app string"))._jdf.queryExecution().analyzed()
    )
    assert why in found
    assert bool(why) == bool(found)
