"""Replays that are not what was decided, on both roads: other rows, other slots, other sinks.

Faults of the job itself, and of a target that loses what it had prepared. See docs/explanation/faults.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ledger_sink
import pytest
import roads
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it
from roads import ROWS

import onceonly
from onceonly import errors, failpoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from roads import Change, Road

road, spark = roads.road, roads.spark  # fixtures
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

LONG = pytest.mark.long


def roads_of(first: str, *others: str) -> pytest.MarkDecorator:
    """Run on the first road always, and on the others by ``make test-all``."""
    params = [first, *(pytest.param(other, marks=LONG) for other in others)]
    return pytest.mark.parametrize("road", params, indirect=True)


def same(df: DataFrame) -> DataFrame:
    return df


def drawn(df: DataFrame) -> DataFrame:
    """Put something else into each row at every evaluation."""

    @F.udf("string")
    def draw(_number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  PySpark refuses hints here
        import uuid

        return uuid.uuid4().hex

    return df.withColumn("app", draw.asNondeterministic()("id"))


def dealt(shift: int) -> Change:
    """Deal the rows to two slots, each row to the other one if ``shift`` is 1."""
    slot = ((F.col("id") + shift) % 2).cast("int")
    return lambda df: df.repartitionById(2, slot)


def fail_at(road: Road, step: str, change: Change) -> None:
    """Run the query until a step raises."""
    fired = road.arm(step.replace("@", "=raise@"))
    with pytest.raises(Exception, match="failpoint"):
        road.run(change(road.source()))
    assert failpoints.fired(fired) == [step.partition("@")[0]]


def go_on(road: Road, change: Change) -> None:
    """Start the query again; raise what stops it as its typed error."""
    onceonly.supervise(lambda: road.start(change(road.source())), restart=onceonly.NoRestart())


def by_epoch(road: Road, epoch: int) -> list[dict[str, object]]:
    rows = (row for number, row in ledger_sink.by_epoch(road.out()) if number == epoch)
    return sorted(rows, key=lambda row: int(str(row["id"])))


def lose_a_half(road: Road, change: Change) -> str:
    """Stop in the middle of the commits of chk-1, and let the target drop the half that is open; give its name."""
    fail_at(road, "commit.before_handle@4", change)
    lost = ledger_sink.drop(road.out())
    assert len(lost) == 1
    assert len(by_epoch(road, 1)) == 5
    return lost[0]


@roads_of("format", "foreach")
def test_a_replay_with_other_rows_is_reported_and_the_output_stands(road: Road) -> None:
    road.record()
    fail_at(road, "commit.before_return@2", drawn)
    before = by_epoch(road, 1)
    assert len(before) == 10
    assert road.seen("replay.differs") == []
    go_on(road, drawn)
    assert by_epoch(road, 1) == before
    assert road.exactly()
    (report,) = road.seen("replay.differs")
    assert "chk-1 was replayed with other rows" in report["message"]


@pytest.mark.parametrize(
    ("road", "decided", "replayed"),
    [
        pytest.param("foreach", drawn, drawn, id="other rows"),
        pytest.param("format", drawn, drawn, id="other rows, by the other road", marks=LONG),
        pytest.param("format", same, lambda df: df.repartition(3), id="other shares", marks=LONG),
    ],
    indirect=["road"],
)
def test_rows_that_do_not_fit_into_what_was_lost_stop_the_query(
    road: Road, decided: Change, replayed: Change
) -> None:
    lose_a_half(road, decided)
    before = by_epoch(road, 1)
    with pytest.raises(errors.ReplayMismatchError):
        go_on(road, replayed)
    assert by_epoch(road, 1) == before
    assert ledger_sink.staged(road.out()) == []
    assert len(road.ids()) == len(set(road.ids())) == 15
    if decided is not drawn:
        go_on(road, decided)
        assert road.exactly()


@roads_of("format", "foreach")
def test_lost_rows_that_are_dealt_to_another_slot_are_written_again(road: Road) -> None:
    lost = lose_a_half(road, dealt(0))
    go_on(road, dealt(1))
    assert road.exactly()
    slots = [path.name.split(".")[2] for path in road.out().glob("[!.]*") if path.name.split(".")[1] == "1"]
    assert len(slots) == 2
    assert set(slots).isdisjoint({lost.split(".")[2]}), "both halves of chk-1 came from one slot"


@roads_of("foreach", "format")
def test_a_replay_with_another_number_of_slots_doubles_nothing(road: Road) -> None:
    """After the link and before the receipt it drains; before the link, it is written by other slots."""
    road.record()
    fired = road.arm("link.after_put=raise@2, link.before_put=raise@4")
    slots = iter([2, 3, 1])

    def build() -> StreamingQuery:
        return road.start(road.source().repartition(next(slots)))

    onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=2, delay_s=0))
    assert len(failpoints.fired(fired)) == 2
    assert road.exactly()
    votes: dict[int, list[int]] = {}
    for event in road.seen("votes.collected"):
        votes.setdefault(event["epoch"], []).append(event["votes"])
    assert (votes[1], votes[3]) == ([2, 3], [3, 1])
    assert road.seen("replay.differs") == []


@roads_of("foreach")
@pytest.mark.parametrize(
    "names",
    [pytest.param(("odds", "others"), id="renamed"), pytest.param(("odds",), id="removed", marks=LONG)],
)
def test_a_sink_that_is_gone_while_its_handles_are_pending_stops_the_query(
    road: Road, names: tuple[str, ...]
) -> None:
    checkpoint = road.folder / "checkpoint"
    both = ("odds", "evens")

    def write_to(names: tuple[str, ...]) -> Callable[[DataFrame, int], None]:
        # The folders stay: it is the name that changes.
        sinks = [
            onceonly.sink(ledger_sink.LedgerSink, folder=str(road.out(folder)))
            for folder in both[: len(names)]
        ]

        def write(df: DataFrame, number: int) -> None:
            with onceonly.epoch(df, number, log=str(checkpoint)) as epoch:
                for rest, name, sink in zip((1, 0), names, sinks, strict=False):
                    epoch.write(df.where(f"id % 2 = {rest}"), sink, name=name)

        return write

    def start(names: tuple[str, ...]) -> StreamingQuery:
        writer = road.source().writeStream.option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).foreachBatch(write_to(names)).start()

    fired = road.arm("link.after_put=raise@2")
    with pytest.raises(Exception, match="failpoint"):
        start(both).awaitTermination(roads.WAIT_S)
    assert failpoints.fired(fired) == ["link.after_put"]
    pending = {name: sorted(ledger_sink.staged(road.out(name))) for name in both}
    assert all(len(each) == 2 for each in pending.values())
    with pytest.raises(errors.ReplayMismatchError, match="decided for other sinks"):
        onceonly.supervise(lambda: start(names), restart=onceonly.FixedDelay(attempts=3, delay_s=0))
    assert {name: sorted(ledger_sink.staged(road.out(name))) for name in both} == pending, (
        "nothing was touched"
    )
    onceonly.supervise(lambda: start(both), restart=onceonly.NoRestart())
    assert road.ids("odds") == list(range(1, len(ROWS), 2))
    assert road.ids("evens") == list(range(0, len(ROWS), 2))
    assert [*ledger_sink.staged(road.out("odds")), *ledger_sink.staged(road.out("evens"))] == []
