"""Replays that are not what was decided, on both ways: other rows, other slots, other sinks.

Faults of the job itself, and of a target that loses what it had prepared. See docs/explanation/faults.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ledger_sink
import pytest
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

import onceonly
import ways
from onceonly import errors, failpoints
from ways import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from ways import Change, Way

way, spark = ways.way, ways.spark  # fixtures
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

LONG = pytest.mark.long


def ways_of(first: str, *others: str) -> pytest.MarkDecorator:
    """Run on the first way always, and on the others by ``make test-all``."""
    params = [first, *(pytest.param(other, marks=LONG) for other in others)]
    return pytest.mark.parametrize("way", params, indirect=True)


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


def fail_at(way: Way, step: str, change: Change) -> None:
    """Run the query until a step raises."""
    fired = way.arm(step.replace("@", "=raise@"))
    with pytest.raises(Exception, match="failpoint"):
        way.run(change(way.source()))
    assert failpoints.fired(fired) == [step.partition("@")[0]]


def go_on(way: Way, change: Change) -> None:
    """Start the query again; raise what stops it as its typed error."""
    onceonly.supervise(lambda: way.start(change(way.source())), restart=onceonly.NoRestart())


def by_epoch(way: Way, epoch: int) -> list[dict[str, object]]:
    rows = (row for number, row in ledger_sink.by_epoch(way.out()) if number == epoch)
    return sorted(rows, key=lambda row: int(str(row["id"])))


def lose_a_half(way: Way, change: Change) -> str:
    """Stop in the middle of the commits of chk-1, and let the target drop the half that is open; give its name."""
    fail_at(way, "commit.before_handle@4", change)
    lost = ledger_sink.drop(way.out())
    assert len(lost) == 1
    assert len(by_epoch(way, 1)) == 5
    return lost[0]


@ways_of("format", "foreach")
def test_a_replay_with_other_rows_is_reported_and_the_output_stands(way: Way) -> None:
    way.record()
    fail_at(way, "commit.before_return@2", drawn)
    before = by_epoch(way, 1)
    assert len(before) == 10
    assert way.seen("replay.differs") == []
    go_on(way, drawn)
    assert by_epoch(way, 1) == before
    assert way.exactly()
    (report,) = way.seen("replay.differs")
    assert "chk-1 was replayed with other rows" in report["message"]


@pytest.mark.parametrize(
    ("way", "decided", "replayed"),
    [
        pytest.param("foreach", drawn, drawn, id="other rows"),
        pytest.param("format", drawn, drawn, id="other rows, by the other way", marks=LONG),
        pytest.param("format", same, lambda df: df.repartition(3), id="other shares", marks=LONG),
    ],
    indirect=["way"],
)
def test_rows_that_do_not_fit_into_what_was_lost_stop_the_query(
    way: Way, decided: Change, replayed: Change
) -> None:
    lose_a_half(way, decided)
    before = by_epoch(way, 1)
    with pytest.raises(errors.ReplayMismatchError):
        go_on(way, replayed)
    assert by_epoch(way, 1) == before
    assert ledger_sink.staged(way.out()) == []
    assert len(way.ids()) == len(set(way.ids())) == 15
    if decided is not drawn:
        go_on(way, decided)
        assert way.exactly()


@ways_of("format", "foreach")
def test_lost_rows_that_are_dealt_to_another_slot_are_written_again(way: Way) -> None:
    lost = lose_a_half(way, dealt(0))
    go_on(way, dealt(1))
    assert way.exactly()
    slots = [path.name.split(".")[2] for path in way.out().glob("[!.]*") if path.name.split(".")[1] == "1"]
    assert len(slots) == 2
    assert set(slots).isdisjoint({lost.split(".")[2]}), "both halves of chk-1 came from one slot"


@ways_of("foreach", "format")
def test_a_replay_with_another_number_of_slots_doubles_nothing(way: Way) -> None:
    """After the link and before the receipt it drains; before the link, it is written by other slots."""
    way.record()
    fired = way.arm("link.after_put=raise@2, link.before_put=raise@4")
    slots = iter([2, 3, 1])

    def build() -> StreamingQuery:
        return way.start(way.source().repartition(next(slots)))

    onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=2, delay_s=0))
    assert len(failpoints.fired(fired)) == 2
    assert way.exactly()
    votes: dict[int, list[int]] = {}
    for event in way.seen("votes.collected"):
        votes.setdefault(event["epoch"], []).append(event["votes"])
    assert (votes[1], votes[3]) == ([2, 3], [3, 1])
    assert way.seen("replay.differs") == []


@ways_of("foreach")
@pytest.mark.parametrize(
    "names",
    [pytest.param(("odds", "others"), id="renamed"), pytest.param(("odds",), id="removed", marks=LONG)],
)
def test_a_sink_that_is_gone_while_its_handles_are_pending_stops_the_query(
    way: Way, names: tuple[str, ...]
) -> None:
    checkpoint = way.folder / "checkpoint"
    both = ("odds", "evens")

    def write_to(names: tuple[str, ...]) -> Callable[[DataFrame, int], None]:
        # The folders stay: it is the name that changes.
        sinks = [
            onceonly.sink(ledger_sink.LedgerSink, folder=str(way.out(folder)))
            for folder in both[: len(names)]
        ]

        def write(df: DataFrame, number: int) -> None:
            with onceonly.epoch(df, number, log=str(checkpoint)) as epoch:
                for rest, name, sink in zip((1, 0), names, sinks, strict=False):
                    epoch.write(df.where(f"id % 2 = {rest}"), sink, name=name)

        return write

    def start(names: tuple[str, ...]) -> StreamingQuery:
        writer = way.source().writeStream.option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).foreachBatch(write_to(names)).start()

    fired = way.arm("link.after_put=raise@2")
    with pytest.raises(Exception, match="failpoint"):
        start(both).awaitTermination(ways.WAIT_S)
    assert failpoints.fired(fired) == ["link.after_put"]
    pending = {name: sorted(ledger_sink.staged(way.out(name))) for name in both}
    assert all(len(each) == 2 for each in pending.values())
    with pytest.raises(errors.ReplayMismatchError, match="decided for other sinks"):
        onceonly.supervise(lambda: start(names), restart=onceonly.FixedDelay(attempts=3, delay_s=0))
    assert {name: sorted(ledger_sink.staged(way.out(name))) for name in both} == pending, (
        "nothing was touched"
    )
    onceonly.supervise(lambda: start(both), restart=onceonly.NoRestart())
    assert way.ids("odds") == list(range(1, len(ROWS), 2))
    assert way.ids("evens") == list(range(0, len(ROWS), 2))
    assert [*ledger_sink.staged(way.out("odds")), *ledger_sink.staged(way.out("evens"))] == []
