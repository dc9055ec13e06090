"""A job of a campaign does not outlive it, also if the campaign dies while the job is still being started."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from onceonly.testing.parent import PARENT

if TYPE_CHECKING:
    from pathlib import Path

GONE = 2**22 + 1  # no Linux gives such a pid


def test_a_job_whose_campaign_has_died_meanwhile_ends_before_it_starts_spark(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "onceonly.testing.campaign.job", str(tmp_path)]
    environment = {**os.environ, PARENT: str(GONE)}
    process = subprocess.run(command, env=environment, check=False, timeout=120, capture_output=True)

    assert process.returncode == 1
    assert process.stderr == b""
    assert list(tmp_path.iterdir()) == []
