"""The calls of the kernel itself, killed and refused by strace: below Python, and below any stand-in for its functions.

Needs strace, and the right to trace one's own children.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.unit.disk_bench import DEFECT
from tests.unit.disk_victims import AT

from onceonly.durable import disk

ROOT = Path(__file__).parents[2]
# At least so many calls of each kind are in the history; unlink(2) is not what removes whole folders.
CALLS = {"fsync": 100, "link": 25, "unlink": 30, "rename": 10, "renameat2": 10}


def struck(call: str, how: str, *, step: int = 1, upto: int = 0) -> list[dict[str, Any]]:
    """Strike the calls of a kind; give what is told of each victim."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.fail("strace is needed and was not found; install it (Debian, Ubuntu: apt install strace)")
    place = Path("/dev/shm")  # noqa: S108  made by mkdtemp below it
    with tempfile.TemporaryDirectory(dir=place if place.is_dir() else None) as folder:
        log = Path(folder) / "strace"
        done = subprocess.run(
            [
                # With a filter in the kernel it is quicker, and forgets to send signals (strace 6.1).
                strace, "-f", *(["--seccomp-bpf"] if "error" in how else []), "-qq", "-o", str(log),
                "-e", f"trace={call}", "-e", f"inject={call}:{how}:when={AT}",
                sys.executable, "-m", "tests.unit.disk_victims", call, str(step), str(upto), folder,
            ],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, f"strace could not trace: {done.stderr[-2000:]}"
        victims = [json.loads(line) for line in done.stdout.splitlines()]
        marks = log.read_text(encoding="utf-8", errors="replace").count("(INJECTED)")
    if "error" in how:
        assert marks == len(victims), "not every victim was struck"
    return victims


def right(victims: list[dict[str, Any]]) -> None:
    wrong = [each for each in victims if each["wrong"] or each["status"] == DEFECT]
    assert not wrong, json.dumps(wrong[:3], indent=1)


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS)
def test_killed_in_every_call_of_the_kernel_each_row_is_there_once(call: str) -> None:
    victims = struck(call, "signal=SIGKILL")
    assert len(victims) >= CALLS[call]
    right(victims)


@pytest.mark.long
@pytest.mark.parametrize("code", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", CALLS)
def test_an_error_of_the_kernel_is_named_and_loses_nothing(call: str, code: str) -> None:
    victims = struck(call, f"error={code}", step=2, upto=CALLS[call])
    right(victims)
    unnamed = [each for each in victims if each["said"] and each["folder"] not in each["said"]]
    assert not unnamed
    if (call, code) == ("fsync", "EIO"):
        survivors = [each for each in victims if each["status"] != disk.EXIT]
        assert not survivors, "an fsync failed, and its process went on"
