"""An epoch that is late, or comes near the broker's time-out, is given up undecided, and runs again (R8, R73).

The job restarts itself, as under any supervisor: one life of a process sees the late epoch and its second try.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import psutil
import pytest
from harness import Bench

from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness import Run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

ROWS = [(f"k{number % 17}", str(number)) for number in range(300)]
LATE = 1
"""The epoch that is held before its decision."""
WAYS = ["format", pytest.param("foreachBatch", marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def patient_kafka() -> Iterator[EmbeddedKafka]:
    """A broker that drops a transaction within a second after its time-out, not within ten."""
    with EmbeddedKafka(
        properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    ) as kafka:
        yield kafka


def end(bench: Bench, run: Run) -> set[int]:
    """See that the job heals by itself, and what it leaves; give the epochs that ran more than once."""
    assert run.wait() == 0, run.tail()
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()
    decided = Counter(
        event["epoch"] for event in bench.seen_events("link.persisted") if event["link"] == "GLOBAL_COMMIT"
    )
    assert set(decided.values()) == {1}, "nothing was decided twice"
    tries = Counter(event["epoch"] for event in bench.seen_events("epoch.planned") if event["mode"] == "run")
    assert tries.keys() == decided.keys()
    return {int(str(epoch)) for epoch, number in tries.items() if number > 1}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "point", ["slot.during_write", pytest.param("slot.before_prepare", marks=pytest.mark.long)]
)
def test_an_epoch_with_a_slot_that_stands_still_runs_again(bench: Bench, way: str, point: str) -> None:
    bench.args = ["--way", way, "--restart", "5", "--option", "onceonly.epoch.timeout=8"]
    bench.feed(ROWS)
    run = bench.start(f"{point}=pause@4")
    try:
        worker = run.wait_for(point)
        # Nobody lets it go on: it is given up where it stands.
        assert end(bench, run), "the late epoch ran again"
        assert "EPOCH_TIMEOUT" in run.log.read_text(encoding="utf-8", errors="replace")
        deadline = time.monotonic() + 20
        while psutil.pid_exists(worker):
            assert time.monotonic() < deadline, "the worker that stood still lives on"
            time.sleep(0.05)
    finally:
        run.kill_tree()


@pytest.mark.long
@pytest.mark.parametrize("way", ["foreachBatch", "format"])
def test_an_epoch_that_comes_near_the_brokers_time_out_runs_again_before_it_is_decided(
    patient_kafka: EmbeddedKafka, classes: Path, tmp_path: Path, way: str
) -> None:
    bench = Bench(patient_kafka, tmp_path)
    bench.args = ["--way", way, "--restart", "5", "--option", "kafka.transaction.timeout.ms=10000"]
    bench.feed(ROWS)
    run = bench.start(f"link.before_check=pause@{LATE + 1}")
    try:
        run.wait_for("link.before_check")
        voted = time.monotonic()
        run.until(lambda: time.monotonic() > voted + 8.1, "the transactions are old")
        (run.fired / "resume").touch()
        again = end(bench, run)
    finally:
        run.kill_tree()
    late = [event for event in bench.seen_events("epoch.checked") if event["expiring"]]
    assert [event["epoch"] for event in late] == [LATE]
    assert LATE in again
    assert bench.seen_events("handle.resolved") == [], "nothing decided was left to a recovery"
