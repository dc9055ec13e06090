"""A query that lives long: its log's folder stays small, and a fresh start is quick. Real coordinator, log and disk."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.scale.ageing import LIFE_EPOCHS, Folder, Job, simulated, watched

if TYPE_CHECKING:
    from pathlib import Path

FILES_MAX = 300
BYTES_MAX = 20_000_000
START_S_MAX = 1.0
STARTS = 3


@pytest.mark.parametrize(
    "epochs",
    [2_000, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])],
)
def test_the_log_of_a_query_that_lives_long_stays_small_and_opens_at_once(
    tmp_path: Path, epochs: int
) -> None:
    job = Job(checkpoint=tmp_path)
    with simulated(), watched(job.log) as most:
        job.live(epochs)
    # The best, as the machine may be busy otherwise; each start claims, and adds a link.
    seconds = min(job.start_up_s() for _ in range(STARTS))
    left = Folder.look(job.log)
    sys.stdout.write(
        f"{epochs} epochs, {job.lives} lives: {most.files} files and {most.size} bytes at most, {left.files} and "
        f"{left.size} in the end, started in {seconds:.3f} s\n"
    )
    assert job.lives == epochs // LIFE_EPOCHS + 1 + STARTS
    assert most.files <= FILES_MAX
    assert max(most.size, left.size) <= BYTES_MAX
    assert seconds <= START_S_MAX
