"""The benchmark runs from end to end, in a size whose figures mean nothing, and accounts for every record."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.plan import TINY
from benchmarks.ratios import ASKED
from benchmarks.sinks.values import GROUPS, Sinks
from benchmarks.values import ONCEONLY_ALO, ONCEONLY_EO, SPARK_DEFAULT, SPARK_TUNED, Results, decode, encode

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

ROOT = Path(__file__).parents[2]
CONTENDERS = (ONCEONLY_EO, ONCEONLY_ALO, SPARK_DEFAULT, SPARK_TUNED)
PARTS = ("throughput", "window", "latency", "empty", "commit")


def bench(folder: Path, *options: str, timeout_s: float = 900) -> tuple[Results, str]:
    """Run it to its end, and give its results and what it said; nothing is left of its work."""
    results = folder / "latest.json"
    # Spark's sockets stand below it, and the folder of a test has a name that is too long for them.
    work = Path(tempfile.mkdtemp(prefix="b-"))
    chosen = [word for name in CONTENDERS for word in ("--contender", name)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--size", "tiny", "--results", str(results), *chosen, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(work)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    work.rmdir()  # fails where something was left
    return decode(results.read_bytes()), done.stdout


@pytest.mark.timeout(1200)
def test_every_record_of_every_contender_is_accounted_for_and_ratios_have_their_names(tmp_path: Path) -> None:
    found, shown = bench(tmp_path, *[word for part in PARTS for word in ("--only", part)])

    assert found.finished
    assert found.planned == len(found.runs)
    assert {each.run.contender for each in found.runs} == set(CONTENDERS)
    assert {each.run.part for each in found.runs} == set(PARTS)
    for each in found.runs:
        assert (each.outcome, each.lost, each.doubled) == ("whole", 0, 0), each
        assert each.records > 0
        if each.run.part in {"throughput", "window"}:
            assert each.figures["whole_s"] > 0
            assert each.figures["memory_mib_jvm"] > 0
        if each.run.part == "latency":
            assert 0 < each.figures["p50_ms"] <= each.figures["p99_ms"] <= each.figures["max_ms"]
            assert each.records == round(200 * (TINY.latency_s + TINY.latency_warm_s))
        if each.run.part == "empty":
            assert each.figures["epoch_triggerExecution_ms"] > 0
        if each.run.part == "commit":
            assert each.figures["decide_ms"] > 0
    assert list(found.ratios) == list(ASKED)
    # Nobody chose PyFlink, so there is no figure to compare with.
    assert found.ratios["throughput_100b_vs_flink_exactly_once"] is None
    assert found.ratio_notes["throughput_100b_vs_flink_exactly_once"].why
    assert (found.ratios["latency_p50_200rps_vs_spark_tuned"] or 0) > 0
    assert (found.ratios["latency_p99_ms_200rps"] or 0) > 0
    assert found.machine["cores"]
    assert found.versions["pyspark"]
    assert "latency_p99_ms_200rps" in shown


def test_an_interrupted_benchmark_is_gone_on_with(tmp_path: Path) -> None:
    first, _ = bench(tmp_path, "--only", "commit")
    path = tmp_path / "latest.json"
    # As it stands after its first run.
    kept = first.runs[0]
    path.write_bytes(encode(replace(first, runs=(kept,), finished=False)))

    again, _ = bench(tmp_path, "--only", "commit")

    assert again.finished
    assert again.runs[0] == kept
    assert [each.run for each in again.runs] == [each.run for each in first.runs]
    assert again.runs[1] != first.runs[1]
    assert again.started == first.started


@pytest.mark.timeout(1200)
def test_sinks_are_compared_with_others_and_every_row_is_counted(tmp_path: Path) -> None:
    results, work = tmp_path / "sinks.json", Path(tempfile.mkdtemp(prefix="b-"))
    words = [
        "--rows",
        "400",
        "--epochs",
        "2",
        "--rounds",
        "1",
        "--warm",
        "0",
        "--only",
        "postgres",
        "--only",
        "mysql",
        "--only",
        "files",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sinks", "--results", str(results), *words],
        capture_output=True, text=True, check=False, timeout=900, cwd=ROOT, env={**os.environ, "TMPDIR": str(work)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    work.rmdir()  # fails where something was left
    found = msgspec.json.decode(results.read_bytes(), type=Sinks)
    assert [(each.group, each.contender) for each in found.ran] == [
        (group, name) for group in ("postgres", "mysql", "files") for name in GROUPS[group]
    ]
    assert all(each.whole and each.rows == 400 for each in found.ran)
    assert "ours: **" in done.stdout
