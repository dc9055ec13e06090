"""What was measured is in the file before the next run begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.benchmarks_sample import PASS, results, run

from benchmarks import store
from benchmarks.parts.recovery import taken_over
from benchmarks.values import ONCEONLY_EO, SPARK_TUNED, Run, Work
from onceonly_proof.campaign import recovery

if TYPE_CHECKING:
    from pathlib import Path


def test_each_run_is_in_the_file_as_soon_as_it_is_added(tmp_path: Path) -> None:
    kept = store.Store(tmp_path / "results" / "latest.json", results(finished=False))
    for number in (1, 2):
        kept.add(run("throughput", PASS, ONCEONLY_EO, number, records_per_s=1.0))
        found = store.read(kept.path)
        assert found is not None
        assert len(found.runs) == number
        assert not found.finished
    kept.finish()
    found = store.read(kept.path)
    assert found is not None
    assert found.finished


def test_only_what_was_interrupted_and_is_of_the_same_plan_is_gone_on_with(tmp_path: Path) -> None:
    kept = store.Store(tmp_path / "latest.json", results(finished=False))
    assert store.interrupted(kept.path, "f") is None
    kept.add(run("throughput", PASS, ONCEONLY_EO, 1, records_per_s=1.0))
    kept.leave_out(SPARK_TUNED, "no network")
    found = store.interrupted(kept.path, "f")
    assert found is not None
    assert len(found.runs) == 1
    # It may be there by now.
    assert found.not_run == {}
    assert store.interrupted(kept.path, "g") is None
    kept.finish()
    assert store.interrupted(kept.path, "f") is None


def test_a_failed_run_gives_way_to_its_repetition(tmp_path: Path) -> None:
    kept = store.Store(tmp_path / "latest.json", results())
    kept.add(run("throughput", PASS, ONCEONLY_EO, 1, outcome="failed"))
    kept.add(run("throughput", PASS, ONCEONLY_EO, 1, records_per_s=2.0))
    assert [each.outcome for each in kept.results.runs] == ["whole"]


def test_a_contender_that_cannot_be_had_is_noted_with_the_reason(tmp_path: Path) -> None:
    kept = store.Store(tmp_path / "latest.json", results())
    kept.leave_out(SPARK_TUNED, "no Java")
    found = store.read(kept.path)
    assert found is not None
    assert found.not_run == {SPARK_TUNED: "no Java"}
    assert "no Java" in found.ratio_notes["throughput_100b_vs_spark"].why


def test_a_file_that_is_no_result_is_as_none(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    assert store.read(path) is None
    path.write_text("{}")
    assert store.read(path) is None


def test_recovery_is_taken_over_for_both_sinks() -> None:
    kills = [
        recovery.Kill(sink=sink, ready_s=1.0, seconds=seconds)
        for sink, seconds in ((recovery.OURS, 4.0), (recovery.SPARKS, 3.0))
    ]
    found = recovery.conclude(
        kills, {recovery.SPARKS: 7}, wanted=1, seed=1, started="", seconds=1.0, per_epoch=1
    )
    work = Run(part="recovery", contender=ONCEONLY_EO, round=1, work=Work(kind="recovery"))
    ours, sparks = taken_over(found, work)
    assert (ours.run.contender, ours.figures["recovery_median_s"]) == (ONCEONLY_EO, 4.0)
    assert (sparks.run.contender, sparks.figures["rows_again"]) == (SPARK_TUNED, 7.0)
    assert {ours.outcome, sparks.outcome} == {"whole"}
