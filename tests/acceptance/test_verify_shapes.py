"""The single runs of ``onceonly verify`` on real Spark and Kafka, in a small size."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from onceonly_proof.campaign import recovery, shape
from onceonly_proof.campaign.recovery import Recovery
from onceonly_proof.campaign.shape import Shape

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

MESSAGES, TRANSACTION = 6_000, 100


def verify(folder: Path, *options: str) -> str:
    """Run it to its end, and give what it said; nothing is left of its work."""
    work = folder / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "onceonly", "verify", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env={**os.environ, "TMPDIR": str(work)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # What was clean is not kept.
    assert list(work.iterdir()) == []
    return done.stdout


def test_each_message_is_there_once_though_broker_and_job_are_bounced_hard_and_cleanly(
    tmp_path: Path,
) -> None:
    report = tmp_path / "found.json"
    size = ("--messages", str(MESSAGES), "--transaction", str(TRANSACTION))
    shown = verify(tmp_path, "like-kafka", *size, "--json", str(report))

    found = msgspec.json.decode(report.read_bytes(), type=Shape)
    assert (found.verdict, found.why) == ("clean", ())
    assert found.bounces == dict.fromkeys(shape.KINDS, 1)
    assert found.rows == found.seen_meanwhile == MESSAGES
    # Both input partitions hold as many, so every transaction is a full one.
    assert found.transactions == {TRANSACTION: MESSAGES // TRANSACTION}
    assert not any(found.anomalies.values())
    assert "6,000" in shown


def test_recovery_is_measured_for_both_sinks(tmp_path: Path) -> None:
    report = tmp_path / "found.json"
    shown = verify(tmp_path, "recovery", "--kills", "1", "--json", str(report))

    found = msgspec.json.decode(report.read_bytes(), type=Recovery)
    assert (found.verdict, found.why) == ("measured", ())
    assert [kill.sink for kill in found.kills] == list(recovery.SINKS)
    assert all(0 < kill.ready_s < kill.seconds for kill in found.kills)
    assert found.table[0].again == 0
    assert recovery.OURS in shown
