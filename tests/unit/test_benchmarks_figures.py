"""Figures come from samples as they are said to."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.figures import at, counts, percentiles, steady
from benchmarks.load.sender import due
from benchmarks.processes import kind_of


def test_percentiles_are_latencies_that_occurred() -> None:
    found = percentiles(np.arange(1, 201, dtype=np.float64))
    assert found == {"p50_ms": 100.0, "p95_ms": 190.0, "p99_ms": 198.0, "max_ms": 200.0}
    assert percentiles(np.array([7.0])) == dict.fromkeys(found, 7.0)


def test_no_latency_is_no_percentile() -> None:
    with pytest.raises(ValueError, match="no latency"):
        percentiles(np.array([]))


def test_markers_of_transactions_are_no_rows() -> None:
    # Offsets 2 and 5 of the first partition are markers.
    rows = [np.array([0, 1, 3, 4]), np.array([0, 1])]
    assert counts([(0, 0), (3, 0), (6, 1), (6, 2)], rows).tolist() == [0, 2, 5, 6]


def test_the_steady_part_leaves_out_the_start_and_the_last_step() -> None:
    times = [0.0, 5.0, 6.0, 7.0, 8.0, 8.1]
    rows = [0, 200, 400, 600, 800, 810]
    assert steady(times, rows, 810) == (1, 4)
    # Who shows row by row begins where an eighth is there, too.
    slow = list(range(801))
    begin, end = steady([float(each) for each in slow], slow, 800) or (0, 0)
    assert (begin, end) == (100, 799)


@pytest.mark.parametrize("rows", [[0, 0, 0], [0, 100], [0, 50, 100]])
def test_a_run_without_steps_has_no_steady_part(rows: list[int]) -> None:
    assert steady([float(each) for each in range(len(rows))], rows, 100) is None


def test_a_value_between_samples_is_in_proportion() -> None:
    assert at([0.0, 2.0], [10.0, 20.0], 0.5) == 12.5


def test_a_late_sender_sends_what_was_due_with_the_time_at_which_it_was() -> None:
    # Open loop: after a pause of a second all 200 are due at once.
    assert [due(seconds, 200, 1_000) for seconds in (-0.1, 0.0, 0.0049, 0.005, 1.0)] == [0, 1, 1, 2, 201]
    assert due(60.0, 200, 1_000) == 1_000


@pytest.mark.parametrize(
    ("name", "command", "kind"),
    [
        ("java", ["java", "-cp", "x", "org.apache.spark.deploy.SparkSubmit"], "jvm"),
        ("python3", ["python3", "-m", "pyspark.daemon", "pyspark.worker"], "python_worker"),
        ("python3", ["python3", "-W", "ignore", "-m", "benchmarks.jobs.spark", "/x"], "python_job"),
        ("python3", ["python3", "-c", "pass"], "python_other"),
        ("sh", ["sh"], "other"),
    ],
)
def test_memory_is_told_by_kind_of_process(name: str, command: list[str], kind: str) -> None:
    assert kind_of(name, command) == kind
