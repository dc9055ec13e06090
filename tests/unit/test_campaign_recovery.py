"""Recovery beside Spark's own sink: what is measured, how it is summed up, its command."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from onceonly import cli
from onceonly_proof.auditor import Seen
from onceonly_proof.campaign.recovery import (
    KILLS_PER_TURN,
    OURS,
    SINKS,
    SPARKS,
    Kill,
    Recovery,
    again,
    conclude,
    first_new,
    turns,
)
from onceonly_proof.campaign.result import encode
from onceonly_proof.campaign.task import SPARK, Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly_proof.campaign.recovery_run import RecoveryOptions


def seen(value: str, seen_s: float) -> Seen:
    return Seen("kafka", None, value.encode(), seen_s=seen_s)


def kill(sink: str, seconds: float, ready_s: float) -> Kill:
    return Kill(sink=sink, seconds=seconds, ready_s=ready_s)


def run(*, repeated: int = 0, wanted: int = 3) -> Recovery:
    kills = [kill(OURS, 12, 8), kill(OURS, 9, 7.5), kill(OURS, 10, 8)]
    kills += [kill(SPARKS, 8, 7), kill(SPARKS, 8, 7.5), kill(SPARKS, 9.6, 8)]
    return conclude(
        kills,
        {OURS: repeated, SPARKS: 41},
        wanted=wanted,
        seed=1,
        started="2026-11-21T20:00:00Z",
        seconds=100.04,
        per_epoch=500,
    )


# ---------------------------------------------------------------------------------------- measuring
def test_the_first_new_row_is_one_that_was_not_there_before() -> None:
    rows = [seen("a", 1.0), seen("b", 2.0), seen("b", 8.0), seen("c", 9.0), seen("d", 10.0)]
    assert first_new(rows, 2.0) == 9.0
    assert first_new(rows[:3], 2.0) is None
    assert first_new([], 2.0) is None


def test_what_was_on_its_way_when_the_job_died_is_not_new() -> None:
    assert first_new([seen("a", 1.0), seen("b", 2.3)], 2.5) is None


def test_each_surplus_row_is_counted_again() -> None:
    assert again([seen("a", 1), seen("b", 2), seen("a", 3), seen("a", 4)]) == 2


@pytest.mark.parametrize("kills", [1, 2, 5, 10])
def test_both_sinks_are_killed_equally_often_and_in_turns(kills: int) -> None:
    order = turns(kills)
    count: Counter[str] = Counter()
    for sink, share in order:
        assert 0 < share <= KILLS_PER_TURN
        count[sink] += share
    assert count == dict.fromkeys(SINKS, kills)
    # Neither is always the first one after the other's load.
    assert [sink for sink, _ in order][:4] == [OURS, SPARKS, SPARKS, OURS][: len(order)]


def test_sparks_own_sink_gets_the_same_target_options_and_none_of_ours() -> None:
    task = Task(
        servers="h:1", source="i", target="o", files="", checkpoint="c",
        connector=SPARK, guarantee="exactly-once", per_epoch=1,
    )  # fmt: skip
    assert task.sinks == (SPARK,)
    ours = dict(task.options("kafka"))
    assert ours.pop("onceonly.guarantee") == "exactly-once"
    assert task.options(SPARK) == ours


# ---------------------------------------------------------------------------------------- summing up
def test_median_worst_and_ratio() -> None:
    found = run()
    ours, sparks = found.table
    assert (ours.sink, ours.median_s, ours.worst_s, ours.again) == (OURS, 10, 12, 0)
    assert (ours.query_median_s, ours.query_worst_s) == (2, 4)
    assert (sparks.sink, sparks.median_s, sparks.worst_s, sparks.again) == (SPARKS, 8, 9.6, 41)
    assert (sparks.query_median_s, sparks.query_worst_s) == (1, 1.6)
    assert found.ratio == {"median_s": 1.25, "worst_s": 1.25, "query_median_s": 2.0, "query_worst_s": 2.5}
    assert (found.verdict, found.why) == ("measured", ())
    assert msgspec.json.decode(encode(found), type=Recovery) == found


def test_kills_that_were_not_measured_are_said() -> None:
    found = run(wanted=4)
    assert found.verdict == "inconclusive"
    assert found.why == (f"3 of 4 kills of {OURS} were measured", f"3 of 4 kills of {SPARKS} were measured")


def test_a_row_that_our_sink_shows_twice_is_an_anomaly() -> None:
    found = run(repeated=2)
    assert found.verdict == "anomalies"
    assert found.why == (f"2 rows were visible more than once under {OURS}",)


# ---------------------------------------------------------------------------------------- the command
@pytest.mark.parametrize(("repeated", "wanted", "status"), [(0, 3, 0), (2, 3, 1), (0, 4, 2)])
def test_the_command_prints_the_table(
    repeated: int,
    wanted: int,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[RecoveryOptions] = []

    def fake(options: RecoveryOptions, say: Callable[[str], None]) -> Recovery:
        asked.append(options)
        say("one kill")
        return run(repeated=repeated, wanted=wanted)

    monkeypatch.setattr("onceonly_proof.campaign.recovery_run.run_recovery", fake)
    monkeypatch.setattr("onceonly_proof.cli.verify.signal.signal", lambda *_: None)
    assert cli.run(["verify", "recovery", "--kills", "3"]) == status
    assert asked[0].kills == 3
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [OURS, "3", "10.0", "12.0", "2.0", "4.0", str(repeated)] in lines
    assert ["ratio", "1.25", "1.25", "2.00", "2.50"] in lines


@pytest.mark.parametrize("arguments", [("recovery", "--html", "x"), ("--kills", "3", "--crashes", "1")])
def test_what_does_not_go_together_is_refused(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly_proof.cli.verify.signal.signal", lambda *_: None)
    assert cli.run(["verify", *arguments]) == 64
