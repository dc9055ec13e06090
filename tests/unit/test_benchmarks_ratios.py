"""A ratio is of medians, in the direction that it says, or null with the reason; never invented."""

from __future__ import annotations

import pytest
from tests.unit.benchmarks_sample import PACED, PASS, results, run, runs

from benchmarks.ratios import ASKED, FURTHER, is_missed, median, ratios
from benchmarks.values import FLINK_EO, ONCEONLY_EO, SPARK_TUNED, Work, decode, encode

THROUGHPUT = [name for name in ASKED if name.startswith("throughput")]


def test_ratios_are_of_medians_and_ours_comes_first() -> None:
    values, notes = ratios(runs(), {})
    assert values == {
        # Against the faster one of Spark's two.
        "throughput_100b_vs_spark": 1.2,
        "throughput_100b_vs_flink_exactly_once": 2.0,
        "throughput_1kb_vs_spark": 2.0,
        "latency_p50_200rps_vs_spark": 0.75,
        "latency_p50_200rps_vs_spark_tuned": 1.5,
        "latency_p99_ms_200rps": 120.0,
    }
    assert notes["throughput_100b_vs_spark"].against == SPARK_TUNED
    assert {notes[name].better for name in THROUGHPUT} == {"higher"}
    assert {note.better for name, note in notes.items() if name not in THROUGHPUT} == {"lower"}
    assert notes["throughput_100b_vs_spark"].runs_ours == 3


@pytest.mark.parametrize("name", ASKED)
def test_without_a_run_every_ratio_is_null_and_says_why(name: str) -> None:
    values, notes = ratios((), {})
    assert values[name] is None
    assert f"{ONCEONLY_EO} was not measured" in notes[name].why


def test_a_contender_that_cannot_be_had_makes_its_ratio_null_with_the_reason() -> None:
    without = [each for each in runs() if each.run.contender != FLINK_EO]
    values, notes = ratios(without, {FLINK_EO: "no Python 3.12"})
    assert values["throughput_100b_vs_flink_exactly_once"] is None
    assert "no Python 3.12" in notes["throughput_100b_vs_flink_exactly_once"].why
    assert values["throughput_100b_vs_spark"] == 1.2


def test_one_of_sparks_two_alone_is_not_the_faster_of_both() -> None:
    without = [each for each in runs() if each.run.contender != SPARK_TUNED]
    values, notes = ratios(without, {})
    assert values["throughput_100b_vs_spark"] is None
    assert f"{SPARK_TUNED} was not measured" in notes["throughput_100b_vs_spark"].why


@pytest.mark.parametrize("contender", [ONCEONLY_EO, SPARK_TUNED])
def test_rows_that_are_lost_even_once_make_the_ratio_null(contender: str) -> None:
    bad = run("throughput", PASS, contender, 4, outcome="lost", lost=3, records_per_s=9_999.0)
    values, notes = ratios([*runs(), bad], {})
    assert values["throughput_100b_vs_spark"] is None
    assert bad.run.id in notes["throughput_100b_vs_spark"].why
    # Others are not touched by it.
    assert values["latency_p50_200rps_vs_spark_tuned"] == 1.5


def test_a_run_that_is_not_whole_goes_into_no_median() -> None:
    found = [
        run("latency", PACED, ONCEONLY_EO, 1, p50_ms=5.0),
        run("latency", PACED, ONCEONLY_EO, 2, outcome="doubled", p50_ms=1.0),
    ]
    assert median(found, "p50_ms") == 5.0
    assert median(found[1:], "p50_ms") is None


def test_of_64_transactions_beside_4_both_are_ours() -> None:
    found = [
        run("commit", Work(kind="commit", count=count), ONCEONLY_EO, number, decide_ms=ms)
        for count, times in ((4, (10.0, 12.0, 11.0)), (64, (44.0, 33.0, 30.0)))
        for number, ms in enumerate(times)
    ]
    values, notes = ratios(found, {}, FURTHER)
    assert values["commit_64_vs_4_transactions"] == 3.0
    assert notes["commit_64_vs_4_transactions"].runs_theirs == 3
    assert values["latency_p99_5000rps_vs_spark_tuned"] is None


def test_a_single_wait_of_half_a_second_misses_its_aim() -> None:
    rare = Work(kind="pass", rate=4)
    found = [
        run("latency", rare, ONCEONLY_EO, number, max_ms=ms)
        for number, ms in ((1, 90.0), (2, 501.0), (3, 80.0))
    ]
    values, _ = ratios(found, {}, FURTHER)
    assert values["latency_max_ms_4rps"] == 501.0
    assert is_missed(FURTHER["latency_max_ms_4rps"], 501.0)
    assert not is_missed(FURTHER["latency_max_ms_4rps"], 500.0)
    assert is_missed(FURTHER["throughput_1kb_vs_flink_exactly_once"], 1.04)
    assert not is_missed(FURTHER["throughput_1kb_vs_flink_exactly_once"], 1.05)


def test_the_file_has_numbers_and_nulls_under_the_names_that_are_asked_for() -> None:
    found = results(*runs()[:1])
    assert decode(encode(found)) == found
    assert list(found.ratios) == list(ASKED)
    assert b'"throughput_100b_vs_spark": null' in encode(found)
