"""The page shows what the record has, and nothing that was typed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from rich.console import Console
from tests.unit.benchmarks_sample import COSTS, PASS, results, run, runs

from benchmarks import costs, display, history, page, phases, plots, syncs
from benchmarks.ratios import EVERY
from benchmarks.settings import MARK_FEW_ROWS
from benchmarks.summary import lines
from benchmarks.values import FLINK_EO, ONCEONLY_EO, SPARK_DEFAULT, SPARK_TUNED, Work, decode, encode
from onceonly_proof import charts
from onceonly_proof.campaign import marks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]


def test_the_published_page_is_what_the_record_gives() -> None:
    record, published = ROOT / page.RECORD, ROOT / page.PAGE
    assert record.exists() == published.exists()
    text = (ROOT / page.README).read_text(encoding="utf-8")
    short = page.short(decode(record.read_bytes()) if record.exists() else None)
    assert marks.placed(text, short, name=page.MARKS, where="README.md") == text
    if record.exists():
        found = decode(record.read_bytes())
        assert published.read_text(encoding="utf-8") == page.published(ROOT, found)
        so_far = page.past(ROOT)
        assert history.followed(so_far, found) == so_far
        for name, drawn in page.pictures(found, so_far).items():
            assert (ROOT / page.PICTURES / name).read_text(encoding="utf-8") == drawn


def test_medians_ratios_and_their_directions_are_on_the_page() -> None:
    text = page.page(results(*runs()))
    assert "| 100 B, against Spark (against spark-tuned) | **1.20** | ≥ 1.15 |" in text
    assert "| p50 at 200/s, against Spark as shipped | **0.75** | ≤ 0.8 |" in text
    assert "| p50 at 200/s, against Spark, equal settings | **1.50** | ≤ 1.4 |" in text
    assert "Aims missed: 1 of 10." in text
    assert f"| work | runs | {ONCEONLY_EO} | {SPARK_TUNED} | {SPARK_DEFAULT} | {FLINK_EO} |" in text
    assert "| pass-100b-none | 3 | 600 | 500 | 400 | 300 |" in text
    assert "| pass-1kb-none | 3 | 200 | 80 | 100 | |" in text
    assert "| pass-100b-none-200rps | 3 | 60 (120) | 40 (80) | 80 (160) |" in text
    assert "2 cores and 23 GiB" in text
    assert "## Memory" in text
    assert f"- `{ONCEONLY_EO}`: 900 to 900" in text


def test_a_process_for_runs_of_few_rows_is_told_of_where_there_was_one() -> None:
    found = results(*runs())
    told = "process of their own for runs of few rows"
    assert told not in page.page(found)
    settings = {ONCEONLY_EO: {f"{MARK_FEW_ROWS}a": "b"}}
    assert told in page.page(msgspec.structs.replace(found, settings=settings))


def test_the_readme_has_a_line_for_each_contender_and_of_flink_the_quickest_checkpoints() -> None:
    flink = [
        run(
            "latency", Work(kind="pass", rate=200, interval_ms=ms), FLINK_EO, 1, p50_ms=ms + 9, p99_ms=ms + 99
        )
        for ms in (1000, 50, 200)
    ]
    text = page.short(results(*runs(), *flink))
    assert "| onceonly, exactly-once | 600 | 200 |" in text
    assert "| onceonly, at-least-once |  |  |" in text
    assert "| PyFlink, exactly-once | 300 |  |" in text
    assert "after 60 ms (99 %: 120), by Spark's sink with our settings after 40 (80), by PyFlink with" in text
    assert "checkpoints every 50 ms after 59 (149). Exactly once" in text
    throughput = [each for each in runs() if each.run.part == "throughput"]
    assert "is visible" not in page.short(results(*throughput))
    assert page.short(None) == "No run has been recorded yet."


def test_rows_over_tls_stand_beside_the_same_rows_without_it() -> None:
    over_tls = [
        run("throughput", Work(kind="pass", tls=True), name, number, records_per_s=300 + number)
        for number in (1, 2, 3)
        for name in (ONCEONLY_EO, SPARK_TUNED)
    ]
    text = page.page(results(*runs(), *over_tls))
    assert "\n| pass-100b-none-tls | 3 | 302 |" in text


def test_what_the_syncs_of_sparks_files_cost_stands_by_state() -> None:
    cost = syncs.Cost(
        epochs=96, median_ms=61, median_without_ms=59, middle_ms=61.25, middle_without_ms=59.5
    )  # fmt: skip
    synced = syncs.Costs(
        version=1, command="c", started="2026-11-22", machine={}, versions={}, costs={"changelog": cost}
    )
    assert msgspec.json.decode(encode(synced), type=syncs.Costs) == synced
    text = page.page(results(*runs()), synced=synced)
    assert "| RocksDB with changelog | 61 | 59 | +1.8 |" in text


def test_what_a_row_costs_stands_beside_what_reading_it_costs() -> None:
    assert msgspec.json.decode(encode(COSTS), type=costs.Costs) == COSTS
    text = page.page(results(*runs()), [COSTS])
    assert "Rows of 100 bytes, medians of 5 rounds" in text
    assert f"| {ONCEONLY_EO} | 1,000,000 | 1.50 | 0.50 | 1.00 | 3.00 |" in text
    for row in (
        "| Python: checksum | 20% |",
        "| Python: record batches made | 20% |",
        "| Python: requests sent by another thread | 60% |",
        "| checksum, compiled (by numpy), µs | 0.25 (0.50) |",
        "| record batches made, compiled (by numpy), µs | 0.25 (1.00) |",
        "| loops ready in a worker, once: s, MiB | 1.2, 100 |",
        "| floor: rows received + broker, µs | 1.75 + 0.50 = 2.25 |",
        "| ours above the floor, µs | 0.75 |",
        "| times, today | 1.00 |",
        "| its sending, µs | 0.15 |",
        "| times, at best: no time | 1.67 (2.78) |",
        "| times, with its sending | 1.56 (2.60) |",
        "| times, with sending, checksum and record batches | 1.29 (2.16) |",
    ):
        assert row in text
    without = [each for each in runs() if each.run.contender != FLINK_EO]
    assert "at best: no time | 1.67 |\n" in page.page(results(*without), [COSTS])
    assert "## What a row costs" not in page.page(results(*runs()))


@pytest.mark.parametrize(
    ("flinks", "best", "why"),
    [
        (500.0, "1.56", "within reach, and not reached"),
        (550.0, "1.42", "out of reach with what making its records takes alone: 1.18"),
        (650.0, "1.20", "the aim is out of reach"),
    ],
)
def test_beside_a_missed_aim_of_throughput_stands_what_any_sink_in_python_takes(
    flinks: float, best: str, why: str
) -> None:
    flink = msgspec.structs.replace(PASS, interval_ms=1_000)
    found = [each for each in runs() if each.run.contender != FLINK_EO]
    found += [run("throughput", flink, FLINK_EO, number, records_per_s=flinks) for number in (1, 2, 3)]
    text = page.page(results(*found), [COSTS])
    assert f"| 100 B, against PyFlink | **{600 / flinks:.2f}** | ≥ 1.25 |" in text
    assert f"| 100 B, against PyFlink | {best} | {why} |" in text


def test_where_an_epochs_time_goes_is_told_phase_by_phase_with_what_happens_meanwhile() -> None:
    found = phases.Phases(
        version=1,
        machine={},
        versions={"commit": "abc"},
        last_s=60.0,
        warm_s=2.0,
        phases=tuple(
            phases.Spent(title=title, epochs=80, median_ms=ms, p95_ms=9.0)
            for title, ms in (("the plan", 2.0), ("until a slot has rows", 7.0), (phases.BETWEEN, 3.0))
        ),
        rows={
            phases.ALL: {"p50_ms": 20.4, "p95_ms": 30.0, "p99_ms": 40.0, "max_ms": 50.0},
            phases.SPARK: {"p50_ms": 10.0, "p95_ms": 14.0, "p99_ms": 16.0, "max_ms": 17.0},
            phases.BOTH: {"p50_ms": 15.0, "p95_ms": 21.0, "p99_ms": 24.0, "max_ms": 25.0},
        },
    )
    busy = msgspec.structs.replace(found, phases=found.phases[:1], rows={})
    text = page.page(results(*runs()), (), {200: found, 5_000: busy})
    assert "| phase | whose | 200/s | 5,000/s | what happens |" in text
    assert f"| the plan | onceonly | 2.0 | 2.0 | {phases.HOLDS['the plan']} |" in text
    assert f"| {phases.BETWEEN} | Spark | 3.0 | | {phases.HOLDS[phases.BETWEEN]} |" in text
    assert "| epochs; commit | 80; `abc` | 80; `abc` |" in text
    assert "| medians add up: Spark, Kafka, onceonly, ms | 10, 0, 2 | 0, 0, 2 |" in text
    assert "| a row waits: p50, p95, p99, ms | 20, 30, 40 |  |" in text
    assert "| if onceonly took no time | 15, 21, 24 |  |" in text
    assert "| at best: if Kafka took none either | 10, 14, 16 |  |" in text


@pytest.mark.parametrize(
    ("sparks_ms", "with_kafka_ms", "best", "why"),
    [
        (10.0, 18.0, "0.75", "within reach, and not reached"),
        (10.0, 19.0, "0.75", "out of reach with Kafka's own time: 1.43"),
        (10.0, None, "0.75", "within reach, and not reached"),
        (19.0, 19.5, "1.43", "the aim is out of reach"),
    ],
)
def test_beside_a_missed_aim_stands_what_would_be_left_if_only_spark_took_time(
    sparks_ms: float, with_kafka_ms: float | None, best: str, why: str
) -> None:
    waits = {phases.ALL: 20.0, phases.SPARK: sparks_ms, phases.BOTH: with_kafka_ms}
    epochs = phases.Phases(
        version=1,
        machine={},
        versions={},
        last_s=None,
        warm_s=0.0,
        phases=(phases.Spent(title="the plan", epochs=80, median_ms=2.0, p95_ms=9.0),),
        rows={
            which: {"p50_ms": ms, "p95_ms": 30.0, "p99_ms": 40.0}
            for which, ms in waits.items()
            if ms is not None
        },
    )
    missed = "| p50 at 200/s, against Spark, equal settings |"
    text = page.page(results(*runs()), (), {200: epochs})
    assert f"{missed} {best} | {why} |" in text
    assert f"{missed} not measured |  |" in page.page(results(*runs()), (), {5_000: epochs})


def test_the_floor_of_a_commit_is_the_decision_and_the_brokers_share_of_the_cores() -> None:
    found = [
        msgspec.structs.replace(
            run("commit", Work(kind="commit", count=count), ONCEONLY_EO, 1),
            figures={
                "decide_ms": decide_ms, "until_link.persisted_ms": 3.0, "cpu_broker_ms": 30.0, "cpu_own_ms": 12.0,
            },
        )
        for count, decide_ms in ((4, 9.0), (64, 27.0))
    ]  # fmt: skip
    text = page.page(results(*found))
    assert "the broker has 30.0 ms of the 2 cores' time" in text
    assert "only the 3.0 ms of the decision, at least 18.0 ms would pass: " in text
    assert "2.0 times as long as 4 take now" in text
    assert "at least 18" not in page.page(results(*runs(), found[0]))


def test_what_was_not_measured_has_no_figure_and_the_reason() -> None:
    found = [each for each in runs() if each.run.contender != FLINK_EO]
    text = page.page(results(*found, not_run={FLINK_EO: "no Python 3.12"}, finished=False))
    assert (
        f"| 100 B, against PyFlink | not measured: {FLINK_EO} could not be had: no Python 3.12 | ≥ 1.25 |"
        in text
    )
    assert "interrupted" in text
    assert "## Recovery" not in text


def test_a_contender_that_lost_rows_is_reported_as_such() -> None:
    bad = run("throughput", PASS, ONCEONLY_EO, 4, outcome="lost", lost=3)
    text = page.page(results(*runs(), bad))
    assert "## Runs without a figure" in text
    assert f"| `{bad.run.id}` | lost | 3 | 0 |" in text
    assert "## Runs without a figure" not in page.page(results(*runs()))


def test_every_picture_that_the_page_shows_is_drawn_and_well_formed() -> None:
    found = results(*runs())
    text, drawn = page.page(found), page.pictures(found)
    assert set(drawn) == {f"benchmark-{part}.svg" for part in ("throughput", "latency", "commit")}
    for name, picture in drawn.items():
        assert f"(../proof/{name})" in text
        assert ET.fromstring(picture).tag.endswith("svg")  # noqa: S314  drawn a line above
    assert text.count("../proof/") == len(drawn)


def test_a_bar_is_as_long_as_its_median() -> None:
    found = [line for line in lines(runs(), ("records_per_s",)) if line.work == "pass-1kb-none"]
    (axes,) = plots.bars("speed", "records", found).axes
    widths = [each.get_width() for each in axes.patches if isinstance(each, Rectangle)]
    assert [round(width / widths[0], 2) for width in widths] == [1.0, 0.5, 0.4]


def _dots(drawn: Figure) -> list[str]:
    """Say of each dot what its colour says."""
    names = {to_hex(charts.ORANGE): "missed", to_hex(charts.GREEN): "reached"}
    (dots,) = drawn.axes[0].collections
    return [names[to_hex(each)] for each in np.asarray(dots.get_facecolor())]


def _past(started: str, **ratios: float) -> history.Past:
    return history.Past(started=started, commit="abcdef012345", ratios=ratios)


def test_full_benchmarks_stand_one_below_the_other_with_how_far_the_last_ones_are_apart() -> None:
    told = (1.0, 1.3, 1.125, 1.25, 1.15, 1.5)
    so_far = history.History(
        runs=tuple(
            _past(f"2026-11-2{number}T10:20:30Z", throughput_100b_vs_spark=value)
            for number, value in enumerate(told)
        )
    )
    found = results(*runs())
    text = page.page(found, so_far=so_far)
    assert "| | value | aim | last 5 | reached |" in text
    assert "| 100 B, against Spark (against spark-tuned) | **1.20** | ≥ 1.15 | 1.12 to 1.5 | 4 of 6 |" in text
    assert "| 100 B, against PyFlink | **2.00** | ≥ 1.25 |  | 0 of 0 |" in text
    assert "benchmark-history.svg" in page.pictures(found, so_far)
    asked = EVERY["throughput_100b_vs_spark"]
    drawn = plots.panels("all", [(asked, history.known(so_far.runs, "throughput_100b_vs_spark"))])
    assert _dots(drawn) == ["missed", "reached", "missed", "reached", "reached", "reached"]
    alone = history.History(runs=so_far.runs[:1])
    assert "so far" not in page.page(found, so_far=alone)
    assert "benchmark-history.svg" not in page.pictures(found, alone)


def test_a_figure_that_is_to_be_low_is_reached_below_its_aim_and_drawn_there() -> None:
    asked = EVERY["commit_64_vs_4_transactions"]
    drawn = plots.panels("all", [(asked, (4.0, 2.0))])
    assert _dots(drawn) == ["missed", "reached"]
    line, aim = drawn.axes[0].lines
    assert np.asarray(line.get_ydata()).tolist() == [4.0, 2.0]
    assert np.asarray(aim.get_ydata()).tolist() == [asked.aim] * 2


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        plots.bars("t", "u", [])
    with pytest.raises(ValueError, match="too few"):
        plots.curve("t", "u", "x", {1: 2.0})


def test_writing_publishes_record_page_and_pictures(tmp_path: Path) -> None:
    found = results(*runs())
    (tmp_path / page.README).write_text("<!-- costs: begin --><!-- costs: end -->", encoding="utf-8")
    page.write(tmp_path, found)
    page.write(tmp_path, found)
    assert page.past(tmp_path) == history.NONE
    assert decode((tmp_path / page.RECORD).read_bytes()) == found
    assert (tmp_path / page.PAGE).read_text() == page.page(found)
    assert (tmp_path / page.PICTURES / "benchmark-commit.svg").exists()
    assert page.short(found) in (tmp_path / page.README).read_text()


def test_the_table_at_the_end_shows_ratios_and_what_there_is_none_of() -> None:
    console = Console(width=200, record=True, file=None, quiet=True)
    with console.capture() as shown:
        console.quiet = False
        console.print(display.table(results(*runs())))
        console.print(display.ratio_table(results(*runs()[:1])))
    text = shown.get()
    assert "records_per_s" in text
    assert "none" in text
    assert "was not measured" in text
