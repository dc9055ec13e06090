"""One contender's trouble is its own: the others are measured all the same, and the file says what happened."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.unit.benchmarks_sample import PASS, results

import benchmarks
import onceonly
import onceonly_proof
from benchmarks import bench, store
from benchmarks.display import Display
from benchmarks.lives import FailedError
from benchmarks.values import FLINK_EO, ONCEONLY_EO, SPARK_TUNED, Measured, Run
from onceonly.errors import SetupError

if TYPE_CHECKING:
    from benchmarks.contenders.base import Contender
    from benchmarks.world import World


@dataclass
class Stub:
    """A contender that may not be had."""

    name: str
    why: str = ""
    is_tuned: bool = False

    def prepare(self) -> None:
        if self.why:
            raise SetupError(self.why, next_step="none")


class Killed:
    """A process that counts how often it was ended."""

    ended = 0
    has_paced = False


@pytest.fixture
def display() -> Display:
    return Display(Console(file=StringIO()))


@pytest.fixture
def kept(tmp_path: Path) -> store.Store:
    return store.Store(tmp_path / "latest.json", results(finished=False))


def test_where_one_cannot_be_had_the_others_are_ready_and_the_reason_is_in_the_file(
    kept: store.Store, display: Display
) -> None:
    used = {
        each.name: cast("Contender", each) for each in (Stub(ONCEONLY_EO), Stub(FLINK_EO, "no Python 3.12"))
    }
    assert set(bench._prepared(used, kept, display)) == {ONCEONLY_EO}
    found = store.read(kept.path)
    assert found is not None
    assert "no Python 3.12" in found.not_run[FLINK_EO]
    assert "no Python 3.12" in found.ratio_notes["throughput_100b_vs_flink_exactly_once"].why


def planned(record: str, contender: str = SPARK_TUNED) -> Run:
    return Run(part="throughput", contender=contender, round=1, work=replace(PASS, record=record))


def do(processes: bench.Processes, kept: store.Store, *records: str) -> None:
    for record in records:
        bench._run(processes, cast("Contender", Stub(SPARK_TUNED)), planned(record), kept)


def test_a_run_that_fails_ends_its_process_and_the_next_one_gets_another(
    kept: store.Store, display: Display, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Killed] = []

    def warm(*_: object) -> tuple[Killed, str]:
        started.append(Killed())
        return started[-1], ""

    def measured(_world: World, _contender: Contender, _process: object, run: Run, _say: object) -> Measured:
        if run.work.record == "100b":
            raise FailedError("the process ended", next_step="none")
        return Measured(run=run, outcome="whole", figures={"records_per_s": 1.0})

    def end(process: Killed | None) -> None:
        if process is not None:
            process.ended += 1

    monkeypatch.setattr(bench, "_warm", warm)
    monkeypatch.setattr(bench, "_end", end)
    monkeypatch.setattr("benchmarks.parts.bounded.measure", measured)
    world = cast("World", SimpleNamespace(kafka=SimpleNamespace(pid=1)))
    with bench.Processes(world, display) as processes:
        do(processes, kept, "100b", "1kb")
        # A process that has done its work is there for the next one.
        assert [each.ended for each in started] == [1, 0]
    assert [each.ended for each in started] == [1, 1]
    assert [(each.outcome, each.why) for each in kept.results.runs] == [
        ("failed", "the process ended"),
        ("whole", ""),
    ]
    # Its figure is not made of the runs that are left.
    assert kept.results.ratios["throughput_1kb_vs_spark"] is None

    # Where the broker is gone, there is nothing to go on with.
    world.kafka.pid = None  # type: ignore[misc]  # a stand-in
    with bench.Processes(world, display) as processes, pytest.raises(FailedError):
        do(processes, kept, "100b")
    assert started[-1].ended == 1


def test_a_process_is_warmed_up_at_a_rate_once_before_its_first_run_at_one(
    kept: store.Store, display: Display, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []

    def measured(_world: World, _contender: Contender, _process: object, run: Run, *_: object) -> Measured:
        did.append(run.part)
        return Measured(run=run, outcome="whole")

    monkeypatch.setattr(bench, "_warm", lambda *_: (Killed(), ""))
    monkeypatch.setattr(bench, "_end", lambda _process: None)
    monkeypatch.setattr("benchmarks.parts.bounded.measure", measured)
    monkeypatch.setattr("benchmarks.parts.paced.measure", measured)
    monkeypatch.setattr("benchmarks.parts.paced.warm_up", lambda *_: did.append("warm-up"))
    world = cast("World", SimpleNamespace(kafka=SimpleNamespace(pid=1)))
    paced = [
        Run(part="latency", contender=SPARK_TUNED, round=number, work=replace(PASS, rate=200))
        for number in (1, 2)
    ]
    with bench.Processes(world, display) as processes:
        for run in (planned("100b"), *paced):
            bench._run(processes, cast("Contender", Stub(SPARK_TUNED)), run, kept)
    assert did == ["throughput", "warm-up", "latency", "latency"]


def test_a_tuned_contender_has_a_process_for_runs_of_few_rows_and_one_that_is_not_needed_any_more_is_ended(
    kept: store.Store, display: Display, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    ended: list[object] = []

    def warm(_world: World, contender: Contender, run: Run, _display: Display) -> tuple[Killed, str]:
        started.append(f"{contender.name} {run.part}")
        return Killed(), ""

    def measured(_world: World, _contender: Contender, _process: object, run: Run, *_: object) -> Measured:
        return Measured(run=run, outcome="whole")

    monkeypatch.setattr(bench, "_warm", warm)
    monkeypatch.setattr(bench, "_end", lambda process: ended.append(process) if process else None)
    for name in ("bounded.measure", "paced.measure", "paced.warm_up"):
        monkeypatch.setattr(f"benchmarks.parts.{name}", measured)
    tuned, plain = (
        cast("Contender", Stub(name, is_tuned=is_tuned)) for name, is_tuned in (("a", True), ("b", False))
    )
    few_rows = Run(part="latency", contender="any", round=1, work=replace(PASS, rate=200))
    world = cast("World", SimpleNamespace(kafka=SimpleNamespace(pid=1)))
    with bench.Processes(world, display) as processes:
        for contender in (tuned, plain):
            for run in (planned("100b"), few_rows, planned("1kb"), few_rows):
                bench._run(processes, contender, run, kept)
        assert started == ["a throughput", "a latency", "b throughput"]
        processes.keep({bench._process(tuned, few_rows), bench._process(plain, few_rows)})
        assert len(ended) == 1
    assert len(ended) == 3


def test_a_contender_that_does_not_come_up_is_not_started_for_each_run(
    kept: store.Store, display: Display, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bool] = []

    def warm(*_: object) -> tuple[None, str]:
        tried.append(True)
        return None, "no memory"

    monkeypatch.setattr(bench, "_warm", warm)
    world = cast("World", SimpleNamespace(kafka=SimpleNamespace(pid=1)))
    with bench.Processes(world, display) as processes:
        do(processes, kept, "100b", "1kb")
    assert len(tried) == 1
    assert [(each.outcome, each.why) for each in kept.results.runs] == [("failed", "no memory")] * 2


def test_flinks_job_needs_nothing_but_the_standard_library_until_it_is_told_what_to_do() -> None:
    bare = "import sys; sys.path[:0] = sys.argv[1:]; import benchmarks.jobs.flink"
    paths = [str(Path(package.__path__[0]).parent) for package in (benchmarks, onceonly, onceonly_proof)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", bare, *paths],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
