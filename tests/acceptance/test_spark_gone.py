"""A session that was stopped, and a JVM that was killed: each call of onceonly's says which, and what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


def test_whatever_is_called_without_a_session_says_what_is_gone(tmp_path: Path) -> None:
    """As PySpark itself says ``[Errno 111] Connection refused``, and ``'NoneType' object has no attribute 'sc'``."""
    program = Path(__file__).with_name("gone_job.py")
    ended = subprocess.run(
        [sys.executable, program, tmp_path], capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    for name, words in told.items():
        state = (
            "the Spark session that this program uses was stopped"
            if name.startswith("stopped")
            else "the JVM of"
        )
        assert state in words, (name, words)
    assert len(told) == 9
