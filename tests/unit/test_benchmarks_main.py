"""What is asked for on the command line is what is measured, and what the record says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.unit.benchmarks_sample import results

from benchmarks import bench
from benchmarks.__main__ import main
from benchmarks.plan import QUICK, runs

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.display import Display
    from benchmarks.values import Results


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bench.Options]:
    found: list[bench.Options] = []

    def run(options: bench.Options, _shown: Display) -> Results:
        found.append(options)
        return results()

    monkeypatch.setattr(bench, "run", run)
    return found


def test_rate_and_rounds_are_those_of_the_command_and_are_in_the_record(
    asked: list[bench.Options], tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    options = [
        "--size",
        "quick",
        "--only",
        "latency",
        "--rounds",
        "2",
        "--rate",
        "5000",
        "--results",
        str(path),
    ]
    CliRunner().invoke(main, options)

    (found,) = asked
    assert {run.work.rate for run in runs(found.sizes, found.parts)} == {5_000}
    assert max(run.round for run in runs(found.sizes, found.parts)) == 2
    assert found.command == "python -m benchmarks --size quick --only latency --rounds 2 --rate 5000"


def test_without_them_they_are_those_of_the_size(asked: list[bench.Options], tmp_path: Path) -> None:
    CliRunner().invoke(main, ["--size", "quick", "--results", str(tmp_path / "x.json")])

    (found,) = asked
    assert found.sizes == QUICK
