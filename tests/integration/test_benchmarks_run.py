"""The whole harness, with contenders that are plain copiers: what they lose or double is found out and said."""

from __future__ import annotations

import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from rich.console import Console

from benchmarks import bench, store
from benchmarks.contenders.base import common_order, write_session
from benchmarks.display import Display
from benchmarks.plan import TINY
from benchmarks.values import FLINK_EO, ONCEONLY_EO, SPARK_DEFAULT, SPARK_TUNED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.contenders.base import Place
    from benchmarks.values import Results, Work

pytestmark = [pytest.mark.integration, pytest.mark.long]

SIZES = replace(
    TINY,
    rounds_few=0,
    records={"100b": 20_000},
    warm_runs={"100b": 1},
    latency_s=2,
    intervals_ms=(),
    flink_intervals_ms=(),
    parts=("throughput", "latency"),
    contenders=(ONCEONLY_EO, SPARK_DEFAULT, SPARK_TUNED, FLINK_EO),
)


class Copier:
    """Fulfils ``Contender``."""

    is_tuned = True

    def __init__(self, name: str, mode: str) -> None:
        self.name = name
        self._mode = mode

    def prepare(self) -> None:
        """It needs nothing."""

    def command(self) -> list[str]:
        return [sys.executable, "-W", "ignore", str(Path(__file__).with_name("copier.py"))]

    def write_session(self, folder: Path, cores: int, *, few_rows: bool) -> None:
        write_session(folder, {"mode": self._mode, "cores": cores, "few_rows": few_rows})

    def order(self, work: Work, place: Place) -> dict[str, object]:
        return common_order(work, place)

    def settings(self) -> Mapping[str, str]:
        return {"mode": self._mode}

    def versions(self) -> Mapping[str, str]:
        return {}


@pytest.fixture(scope="module")
def found() -> Results:
    modes = {ONCEONLY_EO: "whole", SPARK_DEFAULT: "lost", SPARK_TUNED: "doubled", FLINK_EO: "broken"}
    every = {name: Copier(name, mode) for name, mode in modes.items()}
    patch = pytest.MonkeyPatch()
    folder = Path(tempfile.mkdtemp(prefix="b-"))
    (folder / "work").mkdir()
    try:
        patch.setattr(bench, "contenders", lambda: every)
        patch.setattr("benchmarks.parts.bounded._STALLED_S", 4.0)
        patch.setattr("benchmarks.parts.paced._SILENCE_S", 4.0)
        patch.setattr(tempfile, "tempdir", str(folder / "work"))
        options = bench.Options(sizes=SIZES, command="this test", path=folder / "latest.json")
        with Display(Console(file=StringIO())) as display:
            results = bench.run(options, display)
        (folder / "work").rmdir()  # fails where something was left
        assert store.read(options.path) == results
        options.path.unlink()
        folder.rmdir()
    finally:
        patch.undo()
    return results


def test_who_copies_each_record_once_has_figures(found: Results) -> None:
    throughput, latency = (each for each in found.runs if each.run.contender == ONCEONLY_EO)
    assert (throughput.outcome, throughput.lost, throughput.doubled) == ("whole", 0, 0)
    assert throughput.records == 20_000
    assert throughput.figures["whole_s"] > 0
    assert throughput.figures["memory_mib_all"] > 1
    assert (latency.outcome, latency.lost, latency.doubled) == ("whole", 0, 0)
    assert 0 < latency.figures["p50_ms"] <= latency.figures["p99_ms"] <= latency.figures["max_ms"]
    assert found.ratios["latency_p99_ms_200rps"] == round(latency.figures["p99_ms"], 3)


def test_who_loses_records_is_said_to_and_has_no_ratio(found: Results) -> None:
    throughput, latency = (each for each in found.runs if each.run.contender == SPARK_DEFAULT)
    assert (throughput.outcome, throughput.lost, throughput.doubled) == ("lost", 200, 0)
    assert (latency.outcome, latency.lost, latency.doubled) == ("lost", latency.records // 100, 0)
    assert found.ratios["latency_p50_200rps_vs_spark"] is None
    assert throughput.run.id in found.ratio_notes["throughput_100b_vs_spark"].why


def test_who_doubles_records_is_said_to_and_has_no_ratio(found: Results) -> None:
    throughput, latency = (each for each in found.runs if each.run.contender == SPARK_TUNED)
    assert (throughput.outcome, throughput.lost, throughput.doubled) == ("doubled", 0, 200)
    assert (latency.outcome, latency.lost) == ("doubled", 0)
    assert latency.doubled == latency.records // 100
    assert found.ratios["latency_p50_200rps_vs_spark_tuned"] is None


def test_who_does_not_start_has_failed_with_its_own_words(found: Results) -> None:
    (run,) = (each for each in found.runs if each.run.contender == FLINK_EO)
    assert run.outcome == "failed"
    assert "does not start" in run.why
    assert "does not start" in found.ratio_notes["throughput_100b_vs_flink_exactly_once"].why
    assert found.finished
