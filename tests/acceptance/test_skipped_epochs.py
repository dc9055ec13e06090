"""Epochs that Spark has noted and no sink decided: each is explained, or stops the query; each has a way on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import onceonly
import ways
from onceonly import errors
from onceonly.log.opening import look
from onceonly.spark import kept_back, unused
from ways import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from ways import Way

way, spark = ways.way, ways.spark  # fixtures
pytestmark = pytest.mark.acceptance
BY_FOREACH = pytest.mark.parametrize("way", ["foreach"], indirect=True)
ADOPT: dict[str, Any] = {"onceonly.adopt": "true"}


def refused(start: Callable[[], StreamingQuery]) -> errors.AdoptionError:
    """Return why a query is refused: by its start, or where that cannot see what it writes by, in its first epoch."""
    with pytest.raises(Exception, match="ONCEONLY") as caught:
        start().awaitTermination(WAIT_S)
    found = errors.find_error(caught.value)
    assert isinstance(found, errors.AdoptionError), caught.value
    assert "onceonly.adopt=true" in found.next_step
    return found


def skipped(way: Way) -> dict[int, tuple[int, str]]:
    """Return index and reason of the link of each epoch that was skipped."""
    log = look(str(way.folder / "q" / "checkpoint"))[0]
    last = [log.chain(epoch)[-1] for epoch in log.epochs()]
    return {link.epoch: (link.index, link.reason) for link in last if link.kind.value == "SKIPPED"}


def test_epochs_that_another_sink_wrote_meanwhile_are_named_and_taken_over(way: Way) -> None:
    way.run(way.source(rows=20))
    checkpoint = str(way.folder / "q" / "checkpoint")
    other = way.source(rows=40).writeStream.format("noop").option("checkpointLocation", checkpoint)
    assert other.trigger(availableNow=True).start().awaitTermination(WAIT_S)

    assert "chk-2: another sink wrote it" in refused(lambda: way.start(way.source(rows=50))).what
    assert way.exactly(20)
    way.run(way.source(rows=50), **ADOPT)

    assert way.ids() == [*range(20), *range(40, 50)]
    assert skipped(way) == {2: (0, "foreign"), 3: (0, "foreign")}
    way.run(way.source(), **ADOPT)  # it may stay
    assert way.ids() == [*range(20), *range(40, 60)]
    assert skipped(way).keys() == {2, 3}


def by(
    way: Way, df: DataFrame, *, early: bool = False, keeps_errors: bool = False, **options: str
) -> StreamingQuery:
    """Start a query by a foreachBatch function of the user's own."""
    checkpoint = str(way.folder / "q" / "checkpoint")
    sink = onceonly.sink("onceonly.ledger", checkpointLocation=checkpoint, folder=str(way.out()), **options)

    def write(batch: DataFrame, epoch: int) -> None:
        if early and batch.isEmpty():
            return
        with contextlib.suppress(Exception) if keeps_errors else contextlib.nullcontext():
            sink(batch, epoch)

    writer = df.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    return writer.foreachBatch(write).start()


@BY_FOREACH
def test_a_function_that_returned_early_is_mended_and_goes_on_without_work_by_hand(way: Way) -> None:
    rows = way.source(rows=40).where("id < 10 or id >= 20")

    assert "chk-1" in refused(lambda: by(way, rows, early=True)).what
    assert way.ids() == list(range(10))
    assert "chk-1" in refused(lambda: by(way, rows)).what
    assert by(way, rows, **ADOPT).awaitTermination(WAIT_S)

    assert way.ids() == [*range(10), *range(20, 40)]
    assert skipped(way) == {1: (0, "foreign")}


@BY_FOREACH
def test_an_error_that_a_function_kept_back_stops_the_query_before_spark_notes_the_epoch(way: Way) -> None:
    query = by(
        way, way.source(rows=20), keeps_errors=True, only="id,name"
    )  # the sink's check refuses the columns
    with pytest.raises(Exception, match="ONCEONLY:CONFIGURATION"):
        query.awaitTermination(WAIT_S)
    assert list((way.folder / "q" / "checkpoint" / "commits").glob("[0-9]*")) == []

    assert by(way, way.source(rows=40), keeps_errors=True).awaitTermination(WAIT_S)
    assert way.exactly(40)


@BY_FOREACH
def test_epochs_whose_errors_a_function_kept_back_are_not_lost_in_silence(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a session that has not called onceonly.register.
    monkeypatch.setattr(kept_back, "note", lambda *_: None)
    monkeypatch.setattr(unused, "watched", lambda function: function)
    wrong: dict[str, Any] = {"only": "id,name"}
    assert by(way, way.source(rows=20), keeps_errors=True, **wrong, **ADOPT).awaitTermination(WAIT_S)
    assert way.ids() == []

    assert "chk-1" in refused(lambda: by(way, way.source(rows=40))).what
    assert by(way, way.source(rows=40), **ADOPT).awaitTermination(WAIT_S)
    assert way.ids() == list(range(20, 40))


@contextlib.contextmanager
def rocksdb(way: Way) -> Iterator[None]:
    name = "spark.sql.streaming.stateStore.providerClass"
    package = "org.apache.spark.sql.execution.streaming.state"
    way.spark.conf.set(name, f"{package}.RocksDBStateStoreProvider")
    try:
        yield
    finally:
        way.spark.conf.unset(name)


@pytest.mark.parametrize("way", ["format", pytest.param("foreach", marks=pytest.mark.long)], indirect=True)
@pytest.mark.parametrize("crash", ["", "commit.before_return=raise@3"])
def test_a_query_goes_on_after_its_state_was_dealt_to_other_partitions(way: Way, crash: str) -> None:
    # Ids 0 to 29, the same again, which only the state knows, and 30 more.
    ids = [*range(30), *range(30), *range(30, 60)]

    def frame(rows: int) -> DataFrame:
        settings: dict[str, Any] = {"rows_per_epoch": 10, "partitions": 2}
        given = [(one, "app") for one in ids[:rows]]
        return onceonly.collection(way.spark, given, "id long, app string", **settings).dropDuplicates(["id"])

    with rocksdb(way):
        if crash:
            way.arm(crash)
            with contextlib.suppress(Exception):
                way.run(frame(30))
            way.disarm()
        way.run(frame(30))
        assert way.exactly(30)
        way.spark._streamingCheckpointManager.repartition(str(way.folder / "q" / "checkpoint"), 5)
        way.run(frame(90))

    assert way.exactly(60)
    assert skipped(way) == {3: (1 if crash else 0, "unchanged")}
