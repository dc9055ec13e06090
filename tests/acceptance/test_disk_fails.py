"""The disk under a real query's checkpoint fails to write once: its process ends with one sentence, and no row is lost.

Needs strace, and the right to trace one's own children.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import disk_job
import pytest

from onceonly import files
from onceonly.durable import disk

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(600)]

JOB = Path(disk_job.__file__)
ROWS_BEFORE, ROWS = 20, 60


class Job:
    """One query's job, started again and again."""

    def __init__(self, folder: Path, way: str) -> None:
        self.links = folder / "checkpoint" / "onceonly" / "links"
        self.target = folder / "out"
        self._way = way
        self._folder = folder

    def run(self, rows: int, *before: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end; ``before`` is the command that it runs under."""
        checkpoint = str(self._folder / "checkpoint")
        command = [
            sys.executable,
            "-W",
            "ignore",
            str(JOB),
            self._way,
            str(rows),
            checkpoint,
            str(self.target),
        ]
        return subprocess.run(
            [*before, *command], cwd=self._folder, capture_output=True, text=True, check=False, timeout=200
        )

    def rows(self) -> int:
        """Return how many rows are committed, each of them once."""
        return sum(epoch.rows for epoch in files.committed(str(self.target)))


@pytest.mark.parametrize("way", ["foreachBatch", "format"])
def test_a_process_whose_fsync_fails_ends_with_one_sentence_and_the_next_goes_on(
    tmp_path: Path, way: str
) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.fail("strace is needed and was not found; install it (Debian, Ubuntu: apt install strace)")
    job = Job(tmp_path, way)
    done = job.run(ROWS_BEFORE)
    assert done.returncode == 0, done.stderr[-2000:]
    assert job.links.is_dir()

    struck = job.run(
        ROWS, strace, "-f", "--seccomp-bpf", "-qq", "-o", str(tmp_path / "strace"), "-P", str(job.links),
        "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=1",
    )  # fmt: skip
    assert "(INJECTED)" in (tmp_path / "strace").read_text(errors="replace")
    said = [line for line in struck.stderr.splitlines() if line.startswith("onceonly: ")]
    assert said, struck.stderr[-2000:]
    for line in said:
        assert line.startswith(
            f"onceonly: {job.links} could not be made durable: fsync gave Input/output error (EIO)"
        )
        assert f"ends with status {disk.EXIT}: " in line
        assert "Next: see to this disk or mount" in line
    if way == "foreachBatch":
        assert struck.returncode == disk.EXIT
        assert len(said) == 1
    else:
        assert struck.returncode == disk_job.FAILED
        assert "Python worker exited unexpectedly" in struck.stderr
    assert job.rows() >= ROWS_BEFORE

    done = job.run(ROWS)
    assert done.returncode == 0, done.stderr[-2000:]
    assert job.rows() == ROWS
    duplicates = [path for path in job.target.rglob("part-*") if "_onceonly" not in path.parts]
    listed = {job.target / file.path for epoch in files.committed(str(job.target)) for file in epoch.files}
    assert set(duplicates) == listed
