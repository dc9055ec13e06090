"""Rounds whose query counts rows by window: which are due in which epoch, and what is wrong with those shown."""

from __future__ import annotations

import zlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from tests.unit.test_campaign_matrix import blocks, fold, one
from tests.unit.test_campaign_queries import LOAD, Spark, task
from tests.unit.test_campaign_sources import of

from onceonly.model import LinkKind
from onceonly_proof.auditor import Anomaly, Decision, Input, Seen, Slot, World, judge
from onceonly_proof.campaign import job, queries, watch, windows
from onceonly_proof.campaign.plan import plan_round
from onceonly_proof.campaign.records import records
from onceonly_proof.campaign.scene import Scene
from onceonly_proof.campaign.sources.kinesis import Shards
from onceonly_proof.campaign.sources.rabbitmq import Offsets
from onceonly_proof.campaign.watch import Watch
from onceonly_proof.campaign.workload import number_of, row

if TYPE_CHECKING:
    from collections.abc import Sequence

DELAY_S = 30
EPOCHS = (range(50), range(50, 100), range(100, 105), range(0))
"""What each epoch reads of one partition. Its watermark: 0, 19, 69, 74."""


def told(window: int, numbers: Sequence[int]) -> bytes:
    checksum = sum(zlib.crc32(b"%d" % each) for each in numbers)
    return b'{"id":%d,"rows":%d,"sum":%d}' % (window, len(numbers), checksum)


WHOLE = {window: told(window, range(20 * window, 20 * window + 20)) for window in range(5)}
SHOWN = ((), (), (0, 1, 2), ())
"""The windows of each epoch; of the fourth, a row of second 60 to 79, the end was not reached."""


def world(
    epochs: Sequence[Sequence[int]] = EPOCHS, shown: Sequence[Sequence[int]] = SHOWN, unread: int = 0
) -> World:
    """Return a world in which epoch N is decided at second N, and windows are seen half a second later."""
    decisions, inputs, seen = [], list[Input](), list[Seen]()
    for epoch, numbers in enumerate(epochs):
        first = len(inputs)
        inputs += [Input(each, "socket/0", first + at, None, b"%d" % each) for at, each in enumerate(numbers)]
        seen += [Seen("postgres", b"%d" % each, WHOLE[each], seen_s=epoch + 0.5) for each in shown[epoch]]
        decisions.append(
            Decision(
                epoch=epoch,
                kind=LinkKind.COMMIT,
                ranges={"socket/0": (first, len(inputs))},
                slots=(Slot("postgres", 0, len(shown[epoch])),),
                decided_s=float(epoch),
                receipt=True,
                spark_commit=True,
            )
        )
    inputs += [
        Input(1_000 + at, "socket/0", len(inputs) + at, None, b"%d" % (1_000 + at)) for at in range(unread)
    ]
    return World(sinks=("postgres",), inputs=inputs, at_end=seen, during=seen, decisions=decisions)


def found(world: World) -> dict[str, int]:
    counts = judge(windows.windowed(world, DELAY_S).world).anomalies
    return {str(name): count for name, count in counts.items() if count}


def test_a_window_is_due_in_the_first_epoch_whose_watermark_has_reached_its_end() -> None:
    due = windows.windowed(world(), DELAY_S)

    assert [each.value for each in due.world.inputs] == [WHOLE[0], WHOLE[1], WHOLE[2]]
    assert [each.key for each in due.world.inputs] == [b"0", b"1", b"2"]
    assert due.world.decisions is not None
    assert [each.ranges["windows"] for each in due.world.decisions] == [(0, 0), (0, 0), (0, 3), (3, 3)]
    assert (due.rows, due.late) == (60, 0)
    assert found(world()) == {}


def test_a_window_ends_with_the_watermark_that_is_its_end_and_not_a_second_before() -> None:
    def due(rows: int, delay_s: int) -> int:
        return len(windows.windowed(world((range(rows), range(0)), ((), ())), delay_s).world.inputs)

    assert (due(50, DELAY_S), due(51, DELAY_S), due(51, DELAY_S + 1)) == (0, 1, 0)


def test_a_row_that_comes_when_its_window_was_shown_is_late_and_in_no_window() -> None:
    # Epoch 2 shows windows 0 to 2, with a row of its own for the last of them; what comes in epoch 3 is too late.
    epochs = ([*range(17), *range(18, 50)], [*range(50, 57), *range(58, 100)], [57, 100], [17, 101], range(0))
    due = windows.windowed(world(epochs, ((), (), (0, 1), (), ())), DELAY_S)
    assert [number_of(each.value) for each in due.world.inputs] == [0, 1, 2]
    assert due.world.inputs[2].value == told(2, [*range(40, 60)])
    assert (due.rows, due.late) == (19 + 20 + 20, 1)


def test_what_is_wrong_with_a_window_is_named() -> None:
    clean = world()
    doubled = told(1, [*range(20, 40), 39])
    other = {b"twice": doubled, b"lacks": told(1, range(20, 39)), b"another": told(1, [*range(20, 39), 4])}
    for value in other.values():
        at_end = [replace(each, value=value) if each.key == b"1" else each for each in clean.at_end]
        assert found(replace(clean, at_end=at_end, during=())) == {
            "foreign": 1,
            "lost": 1,
            "torn_transaction": 1,
        }
    assert found(replace(clean, at_end=clean.at_end[1:], during=()))["lost"] == 1
    assert found(replace(clean, at_end=[*clean.at_end, clean.at_end[0]])) == {"duplicated": 1}
    early = [replace(each, seen_s=1.9) for each in clean.at_end]
    assert found(replace(clean, at_end=early, during=early)) == {"visible_before_decision": 3}


def test_a_window_that_an_earlier_or_later_epoch_has_written_is_named() -> None:
    for shown in (((), (0,), (1, 2), ()), ((), (), (0, 1), (2,))):
        assert found(world(shown=shown))["log_mismatch"] == 2


def test_rows_that_no_epoch_has_read_are_lost() -> None:
    due = windows.windowed(world(unread=2), DELAY_S)
    assert (due.rows, len(due.world.inputs)) == (60, 5)
    assert found(world(unread=2)) == {"lost": 2}


def test_so_many_windows_are_waited_for_as_the_newest_row_closes() -> None:
    assert [windows.shown(range(count), DELAY_S) for count in (0, 50, 51, 70, 71, 105)] == [0, 0, 1, 1, 2, 3]
    assert windows.shown([*range(20), *range(60, 105)], DELAY_S) == 1


def test_only_what_counts_by_window_is_judged_by_window() -> None:
    given = world()
    plain = windows.due(task("unchanged"), given)
    assert plain == (given, 105, 0)
    by_window = windows.due(task("window"), given)
    assert by_window == windows.windowed(given, queries.delay_s(10))
    swapped = replace(
        by_window.world, at_end=[replace(each, order=-each.key[0]) for each in given.at_end if each.key]
    )
    assert not judge(watch.judged(task("window"), swapped)).anomalies[Anomaly.OUT_OF_ORDER]


@pytest.mark.parametrize(("query", "rows", "due"), [("window", 140, 3), ("unchanged", 7, 105)])
def test_a_round_waits_for_windows_and_feeds_as_many_rows_as_they_hold(
    query: str, rows: int, due: int
) -> None:
    class Flow:
        distinct = 105

        def numbers(self) -> range:
            return range(105)

    class Watched:
        def least(self) -> int:
            return 7

        def newest(self) -> int:
            return 6

    class Round:
        flow, watch = Flow(), Watched()
        task: Any = None

    here: Any = Round()
    here.task = task(query)
    assert Scene._shown(cast("Scene", here)) == rows
    assert Scene._due(cast("Scene", here)) == due


def test_a_job_counts_by_window_behind_the_watermark_that_the_auditor_goes_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(job, "by_window", lambda _, delay_s: asked.append(delay_s))
    spark = Spark()
    job.rows(cast("Any", spark), task("window"))
    assert asked == [queries.delay_s(10)] == [DELAY_S]
    assert str(spark.settings["spark.sql.streaming.stateStore.providerClass"]).endswith(
        "RocksDBStateStoreProvider"
    )
    assert spark.dropped == []


def test_the_number_of_a_row_is_its_id_or_all_that_it_is() -> None:
    assert number_of(row(17, 0, 3, "x")) == number_of(b'{"id": 17}') == number_of(b"17") == 17


def test_rows_for_windows_are_of_many_keys_and_nothing_is_struck_that_needs_rows_in_each_epoch() -> None:
    load = queries.adapt(LOAD, queries.WINDOW)
    assert (load.keys, load.per_epoch, load.repeated, load.moves_every) == (5_000, 20, 0.0, 80)
    names = {
        query: {
            blow.fault.name
            for number in range(1, 60)
            for blow in plan_round(1, number, "postgres", query=query, source="kinesis").blows
        }
        for query in ("window", "unchanged")
    }
    assert {each for each in names["unchanged"] - names["window"] if each.startswith("remove waiting")}
    assert not {each for each in names["window"] if each.startswith("remove waiting")}
    drawn = {plan_round(1, number, "postgres").query for number in range(1, 120)}
    assert queries.WINDOW not in drawn


def test_what_is_counted_by_window_has_rows_records_and_lines_of_its_own() -> None:
    by_window = of("kinesis", query="window", number=3, late=2)
    report = fold(
        of("kinesis", query="rocksdb"),
        of("kinesis", number=2),
        by_window,
        msgspec.structs.replace(one(4), query="window"),
    )
    assert [(each.way, each.rounds) for each in report.matrix] == [
        ("kinesis → files", 2),
        ("kinesis → window → files", 1),
        ("window → kafka", 1),
    ]
    assert " --query window" in by_window.command
    kept = records(report)
    assert [each.file for each in kept] == [
        "from-kinesis-files.json",
        "from-kinesis-window-files.json",
        "window-kafka.json",
    ]
    in_short, whole = blocks(fold(one()), kept)
    assert "| kinesis | window → files | exactly-once |" in whole
    assert "| window → kafka | exactly-once |" in whole
    assert in_short == blocks(fold(one()), ())[0]


def test_the_newest_window_is_the_one_that_every_sink_shows() -> None:
    def newest(*keys: Sequence[bytes]) -> int:
        watchers = [
            SimpleNamespace(seen=lambda keys=each: [Seen("a", key, b"") for key in keys]) for each in keys
        ]
        return Watch(cast("Any", dict(enumerate(watchers)))).newest()

    assert newest([b"0", b"11", b"2"]) == 11
    assert newest([b"0", b"11", b"2"], [b"0", b"2"]) == 2
    assert newest([b"0"], []) == -1


@pytest.mark.parametrize("kind", [Shards, Offsets])
def test_what_never_came_to_a_server_that_tells_what_it_has_is_in_no_window(
    kind: type[Shards | Offsets],
) -> None:
    flow = object.__new__(kind)
    flow._found = [Input(at, "a", at, None, row(number, 0, at, "")) for at, number in enumerate((0, 70))]
    assert list(flow.numbers()) == [0, 70]
    assert windows.shown(flow.numbers(), DELAY_S) == 1
