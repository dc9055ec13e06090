"""The whole process tree dies, orphans included, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from onceonly.testing.process import JobProcess

if TYPE_CHECKING:
    from pathlib import Path

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


def test_the_end_of_the_log_is_at_hand(tmp_path: Path) -> None:
    script = "print(*range(100), sep='\\n')"
    job = JobProcess.start([sys.executable, "-c", script], log=tmp_path / "log", env={}, cwd=tmp_path)
    assert job.root.wait(20) == 0
    assert job.last_lines().splitlines()[-1] == "99"
