"""The whole process tree dies, orphans included, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from onceonly_proof.process import JobProcess

# A parent, a child in a process group of its own (as PySpark's daemon), a grandchild that outlives its parent.
TREE = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(100)"]
child = subprocess.Popen(sleep, process_group=0)
orphan = subprocess.run(
    [sys.executable, "-c", f"import subprocess; print(subprocess.Popen({sleep!r}, stdout=-3).pid)"],
    stdout=subprocess.PIPE, text=True).stdout.strip()
print("pids", child.pid, orphan, flush=True)
time.sleep(100)
"""


def _pids(job: JobProcess) -> list[int]:
    for _ in range(500):
        text = job.log.read_text(encoding="utf-8")
        if text.startswith("pids") and text.endswith("\n"):
            return [int(word) for word in text.split()[1:]]
        time.sleep(0.02)
    pytest.fail(f"no pids: {text}")


def test_the_tree_is_killed_with_its_orphans(tmp_path: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    job = JobProcess.start([sys.executable, "-c", TREE], log=tmp_path / "log", env={}, cwd=tmp_path)
    try:
        pids = _pids(job)
        assert job.exit_code is None
        assert job.kill() == 3
        assert job.exit_code == -9
        assert not any(
            psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids
        )
        assert bystander.poll() is None
        assert job.kill() == 0
    finally:
        bystander.kill()
        bystander.wait()
        job.kill()


# As a JVM does that is killed: it has no time to remove anything.
LEAVES = """
import os, pathlib, tempfile, time
folder = pathlib.Path(tempfile.mkdtemp())
assert os.environ["SPARK_SUBMIT_OPTS"] == f"-Xfoo -Djava.io.tmpdir={folder.parent}"
(folder / "lib.so").touch()
print(folder, flush=True)
time.sleep(100)
"""


def test_what_a_killed_job_left_among_temporary_files_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xfoo")
    job = JobProcess.start([sys.executable, "-c", LEAVES], log=tmp_path / "log", env={}, cwd=tmp_path)
    try:
        while not (said := job.log.read_text(encoding="utf-8")).endswith("\n"):
            assert job.exit_code is None, said
            time.sleep(0.02)
        left = Path(said.strip())
        assert (left / "lib.so").exists()
        job.kill()
        assert not left.parent.exists()
    finally:
        job.kill()


def test_what_was_left_by_a_parent_that_was_killed_itself_is_removed_by_the_next_and_a_living_ones_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly_proof.process._short_folder", lambda: tmp_path)
    gone = subprocess.Popen(["true"])
    gone.wait()
    dead, alive, other = f"onceonly-job-{gone.pid}-a", f"onceonly-job-{os.getppid()}-b", "onceonly-job-c-d"
    for name in (dead, alive, other):
        (tmp_path / name / "spark-1").mkdir(parents=True)
    job = JobProcess.start(["true"], log=tmp_path / "log", env={}, cwd=tmp_path)
    job.root.wait(20)
    job.kill()
    assert {path.name for path in tmp_path.iterdir()} == {alive, other, "log"}


def test_the_folder_for_temporary_files_is_short_enough_for_sparks_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 36)))
    job = JobProcess.start(["true"], log=tmp_path / "log", env={}, cwd=tmp_path)
    job.root.wait(20)
    job.kill()
    # As long as a pid can make it.
    assert (
        len(job.temporary.name)
        + 7
        - len(str(os.getpid()))
        + len("/.01234567-0123-0123-0123-0123456789ab.sock")
        < 108
    )


def test_the_end_of_the_log_is_at_hand(tmp_path: Path) -> None:
    script = "print(*range(100), sep='\\n')"
    job = JobProcess.start([sys.executable, "-c", script], log=tmp_path / "log", env={}, cwd=tmp_path)
    assert job.root.wait(20) == 0
    assert job.last_lines().splitlines()[-1] == "99"
    assert job.kill() == 0
