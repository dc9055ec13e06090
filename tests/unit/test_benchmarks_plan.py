"""Every contender gets the same: the same works, in turns, and nobody always begins."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from benchmarks.contenders import contenders
from benchmarks.contenders.base import ROOT, Place
from benchmarks.plan import FULL, QUICK, SIZES, Clock, fingerprint, runs
from benchmarks.ratios import ASKED, of
from benchmarks.settings import FLINK_SOURCE, JAVA_FEW_ROWS, MARK_FEW_ROWS, PRODUCER, SESSION, SOURCE, told
from benchmarks.values import (
    CONTENDERS,
    FLINK_EO,
    ONCEONLY_ALO,
    ONCEONLY_EO,
    PARTS,
    SPARK_DEFAULT,
    SPARK_TUNED,
    Measured,
    Run,
    Work,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("size", SIZES)
def test_no_two_runs_have_the_same_name(size: str) -> None:
    names = [run.id for run in runs(SIZES[size])]
    assert len(names) == len(set(names))


def test_who_begins_a_round_moves_on_and_each_has_one_turn_at_a_work() -> None:
    first = runs(QUICK, parts=["throughput"])[0].work
    turns = [run for run in runs(QUICK, parts=["throughput"]) if run.work.record == first.record]
    rounds = [[run.contender for run in turns if run.round == number] for number in (1, 2, 3)]
    assert [order[0] for order in rounds] == list(QUICK.contenders[:3])
    assert all(sorted(order) == sorted(QUICK.contenders) for order in rounds)


def test_what_is_compared_is_run_right_after_each_other() -> None:
    works = [(run.round, run.part, replace(run.work, interval_ms=0)) for run in runs(FULL)]
    changes = 1 + sum(before != after for before, after in pairwise(works))
    assert changes == len(set(works))


def test_in_throughput_and_latency_of_spark_all_have_the_same_works() -> None:
    works = {
        name: {run.work.name for run in runs(FULL, ["throughput"], [name]) if not run.work.tls}
        for name in (ONCEONLY_EO, ONCEONLY_ALO, SPARK_DEFAULT, SPARK_TUNED)
    }
    assert len(set(map(frozenset, works.values()))) == 1
    latency = {
        name: {run.work.name for run in runs(FULL, ["latency"], [name])}
        for name in (ONCEONLY_EO, SPARK_TUNED)
    }
    assert latency[ONCEONLY_EO] == latency[SPARK_TUNED]


def test_what_has_an_aim_beside_the_ratios_has_as_many_rounds_as_they() -> None:
    rounds = Counter((run.contender, run.work.name) for run in runs(FULL))
    for work in (Work(kind="commit", count=4), Work(kind="commit", count=64), Work(kind="pass", rate=4)):
        assert rounds[ONCEONLY_EO, work.name] == FULL.rounds >= 5


@pytest.mark.parametrize("size", ["full", "quick"])
def test_every_figure_that_a_ratio_needs_is_planned_at_least_three_times(size: str) -> None:
    planned = [Measured(run=run, outcome="whole") for run in runs(SIZES[size])]
    for name, asked in ASKED.items():
        for contender in (ONCEONLY_EO, *asked.theirs):
            found = of(planned, asked.part, asked.work, contender, every_interval=asked.part == "throughput")
            assert len(found) >= 3, (name, contender)


def test_parts_and_contenders_can_be_chosen() -> None:
    chosen = runs(FULL, parts=["latency"], contenders=[FLINK_EO])
    assert {run.part for run in chosen} == {"latency"}
    assert {run.contender for run in chosen} == {FLINK_EO}
    assert {run.part for run in runs(FULL)} == set(PARTS)


def test_results_of_another_plan_size_or_code_are_not_gone_on_with() -> None:
    planned = runs(QUICK)
    prints = {
        fingerprint(QUICK, planned, "a"),
        fingerprint(QUICK, planned, "b"),
        fingerprint(QUICK, planned[1:], "a"),
        fingerprint(FULL, planned, "a"),
    }
    assert len(prints) == 4
    assert fingerprint(QUICK, runs(QUICK), "a") in prints


def test_nothing_that_ours_is_tuned_with_is_withheld_from_the_tuned_others() -> None:
    every = contenders()
    ours, sparks, flinks = (every[name].settings() for name in (ONCEONLY_EO, SPARK_TUNED, FLINK_EO))
    assert set(ours) - set(sparks) == {"sink: onceonly.guarantee"}
    assert all(sparks[name] == value for name, value in ours.items() if name in sparks)
    assert set(SESSION.items()) <= set(sparks.items())
    kafka = {f"sink: kafka.{name}": value for name, value in PRODUCER.items()}
    kafka |= {f"source: kafka.{name}": value for name, value in SOURCE.items()}
    assert set(kafka.items()) <= set(sparks.items())
    values = {f"sink: properties.{name}": value for name, value in PRODUCER.items()}
    values |= {f"source: properties.{name}": value for name, value in FLINK_SOURCE.items()}
    assert set(values.items()) <= set(flinks.items())
    # Flink polls all the time, and keeps a wait that saves it requests; all else is alike.
    assert SOURCE.items() ^ FLINK_SOURCE.items() == {("fetch.max.wait.ms", "1"), ("fetch.max.wait.ms", "20")}
    few_rows = [
        {each[key] for key in each if key.startswith(MARK_FEW_ROWS)} for each in (ours, sparks, flinks)
    ]
    assert few_rows == [{JAVA_FEW_ROWS}] * 3


@pytest.mark.parametrize("name", [ONCEONLY_EO, SPARK_TUNED, FLINK_EO])
def test_what_is_for_runs_of_few_rows_is_given_to_them_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.contenders.spark.spark_jars", lambda: "jars")
    for few_rows in (False, True):
        contenders()[name].write_session(tmp_path / str(few_rows), 2, few_rows=few_rows)
        written = (tmp_path / str(few_rows) / "session.json").read_text()
        assert (JAVA_FEW_ROWS in written) == few_rows


def test_sparks_sink_with_its_defaults_has_none_of_our_settings() -> None:
    defaults = contenders()[SPARK_DEFAULT].settings()
    assert not set(defaults) & set(SESSION)
    assert not [name for name in defaults if name.startswith(("sink", "source"))]


@pytest.mark.parametrize("name", CONTENDERS)
def test_the_settings_that_are_listed_are_those_that_a_contender_is_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is fetched is no setting.
    monkeypatch.setattr("benchmarks.contenders.spark.spark_jars", lambda: "jars")
    contender = contenders()[name]
    contender.write_session(tmp_path / "job", 2, few_rows=False)
    conf: dict[str, str] = json.loads((tmp_path / "job" / "session.json").read_text())["conf"]
    place = Place(
        name="n",
        servers="s",
        source="in",
        target="out",
        checkpoint=tmp_path,
        partitions=2,
        per_epoch=0,
        window_ms=0,
    )
    order = contender.order(Work(kind="pass"), place)
    sink, source = order["sink"], order["source_options"]
    assert isinstance(sink, dict)
    assert isinstance(source, dict)
    given = conf | {f"sink: {key}": value for key, value in sink.items()}
    given |= {f"source: {key}": value for key, value in source.items()}
    listed = {
        key: value
        for key, value in contender.settings().items()
        if key != "JVM_ARGS" and not key.startswith(MARK_FEW_ROWS)
    }
    assert listed.items() <= given.items()
    # And nothing that tunes is given without being listed.
    tunes = {
        *SESSION,
        *(f"sink: kafka.{key}" for key in PRODUCER),
        *(f"source: kafka.{key}" for key in SOURCE),
    }
    assert not tunes & (set(given) - set(listed))


@pytest.mark.parametrize("name", CONTENDERS)
def test_results_show_every_setting_and_no_folder_of_this_machine(name: str) -> None:
    settings = contenders()[name].settings()
    shown = told(settings)
    assert shown.keys() == settings.keys()
    assert not [value for value in shown.values() if str(ROOT) in value or value.startswith("/")]


def test_over_tls_come_ours_and_sparks_sink_with_the_same_settings(tmp_path: Path) -> None:
    planned = [each for each in runs(FULL) if each.work.tls]
    assert {each.contender for each in planned} == {ONCEONLY_EO, SPARK_TUNED}
    assert {each.work.name for each in planned} == {"pass-100b-none-tls", "pass-1kb-none-tls"}
    place = Place(
        name="n", servers="s", source="in", target="out", checkpoint=tmp_path, partitions=2, per_epoch=0, window_ms=0,
        tls_servers="t", certificate=tmp_path / "c.pem",
    )  # fmt: skip
    for each in planned:
        order = contenders()[each.contender].order(each.work, place)
        assert isinstance(order["sink"], dict)
        assert order["servers"] == "s"
        assert order["sink"]["kafka.bootstrap.servers"] == "t"
        assert order["sink"]["kafka.security.protocol"] == "SSL"


def test_the_rounds_are_balanced() -> None:
    counted = Counter((run.contender, run.part, run.work.record) for run in runs(QUICK))
    assert set(counted.values()) == {QUICK.rounds}


def test_a_contender_never_needs_two_processes_at_a_time_but_where_rounds_may_be_left_out() -> None:
    few_rows = [run.work.has_few_rows for run in runs(FULL)]
    assert {run.work.rate for run in runs(FULL) if not run.work.has_few_rows} == {0, 5_000, *FULL.rates_few}
    assert few_rows == sorted(few_rows)
    assert {run.part for run in runs(QUICK) if run.round == 1} == set(QUICK.parts)


def test_what_is_done_in_few_rounds_is_done_in_the_last_ones_when_all_processes_are_warm() -> None:
    few = {run.round for run in runs(FULL) if run.part == "window" or run.work.compression == "lz4"}
    assert few == {FULL.rounds - 1, FULL.rounds}


def test_a_round_that_would_end_too_late_is_not_begun() -> None:
    clock, work = Clock(limit_s=100), Work(kind="pass")
    first, second, third = (
        Run(part="latency", contender="a", round=number, work=work) for number in (1, 2, 3)
    )
    assert clock.has_time_for(first, 1_000, 0)
    assert clock.has_time_for(first, 1_030, 0)
    assert clock.has_time_for(second, 1_040, 0)
    assert clock.has_time_for(second, 1_099, 0)
    assert clock.has_time_for(second, 1_200, 0)
    assert not clock.has_time_for(third, 1_071, 0)


def test_what_the_first_round_does_once_is_not_expected_of_the_next() -> None:
    def has_time(*, once_s: float) -> bool:
        clock, work = Clock(limit_s=100), Work(kind="pass")
        first, second = (Run(part="latency", contender="a", round=number, work=work) for number in (1, 2))
        assert clock.has_time_for(first, 1_000, 5)
        return clock.has_time_for(second, 1_060, 5 + once_s)

    assert not has_time(once_s=19)
    assert has_time(once_s=20)


def test_without_a_limit_every_round_is_done() -> None:
    clock, work = Clock(limit_s=0), Work(kind="pass")
    assert all(
        clock.has_time_for(Run(part="latency", contender="a", round=number, work=work), 1e6 * number, 0)
        for number in (1, 2, 3)
    )
