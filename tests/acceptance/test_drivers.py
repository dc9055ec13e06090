"""Whole drivers that stand still (SIGSTOP), and wake up when the broker or another driver has gone on without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import pytest
from audits import assert_clean
from harness import Bench, open_transactions

from onceonly.failpoints import arm
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness import Run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

ROWS = [(f"k{number % 17}", str(number)) for number in range(600)]
SMALL_EPOCHS = ("--per-epoch", "50")


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[EmbeddedKafka]:
    """A broker that looks for timed-out transactions twice a second."""
    with EmbeddedKafka(
        properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    ) as kafka:
        yield kafka


@dataclass
class Stopped:
    """A driver, its JVM and all of its workers, while none of them runs."""

    run: Run
    tree: list[psutil.Process]

    @classmethod
    def at(cls, run: Run, point: str) -> Stopped:
        """Stop a driver that stands at a crash point."""
        run.wait_for(point)
        stopped = cls(run, run.tree())
        names = " ".join(process.name() for process in stopped.tree)
        assert "java" in names, names
        assert len(stopped.tree) > 3, names  # at least the program, its JVM, a daemon and one of its workers
        # A child that has ended and was not asked for can neither run nor be stopped.
        still = {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
        run.until(
            lambda: all(process.status() in still for process in stopped.tree), "all of it stands still"
        )
        return stopped

    def wake(self, resume: str) -> None:
        """Let it go on from where it was, workers first."""
        (self.run.fired / resume).touch()
        for process in reversed(self.tree):
            process.resume()


def open_now(bench: Bench) -> list[str]:
    return sorted(open_transactions(bench.kafka.bootstrap_servers, bench.query_id()))


def test_a_driver_that_stands_still_past_the_brokers_time_out_loses_and_doubles_nothing(
    own_kafka: EmbeddedKafka, classes: Path, tmp_path: Path
) -> None:
    """SIGSTOP for all of it, SIGCONT when the broker has dropped what it had open; again at the next step."""
    bench = Bench(own_kafka, tmp_path)
    bench.args = [*SMALL_EPOCHS, "--restart", "1000"]
    bench.args += ["--option", "kafka.transaction.timeout.ms=8000"]
    bench.feed(ROWS)
    armed = tmp_path / "armed"
    steps = ["slot.during_write", "link.before_put"]
    armings = [f"{step}=pause#{number}" for number, step in enumerate(steps)]
    points = [f"{step}#{number}" for number, step in enumerate(steps)]
    arm(armed, armings[:1])
    run = bench.start(f"@{armed}")
    try:
        for number, point in enumerate(points):
            run.wait_for(point)
            # Rows that were just written are on their way, in another thread than the one that stands at the point.
            run.until(lambda: open_now(bench), "its transaction is open")
            driver = Stopped.at(run, point)
            run.until(lambda: not open_now(bench), "the broker drops what is open")
            arm(armed, armings[number + 1 : number + 2])
            driver.wake(f"resume#{number}")
        assert run.wait(300) == 0, run.tail()
    finally:
        run.kill_tree()
    assert run.points_fired() == sorted(points)
    outcomes = [event["outcome"] for event in bench.seen_events("handle.resolved")]
    assert "Lost" in outcomes, "what was decided and dropped was written again"
    assert_clean(bench)


def test_a_driver_that_wakes_up_after_it_was_replaced_changes_nothing(bench: Bench) -> None:
    """Stopped in mid-write, and awake again while the one in its place has an epoch prepared and not decided."""
    bench.args = [*SMALL_EPOCHS]
    bench.feed(ROWS)
    first = bench.start("slot.during_write=pause@2")
    runs = [first]
    try:
        driver = Stopped.at(first, "slot.during_write")
        second = bench.start("link.before_put=pause@2")
        runs.append(second)
        second.wait_for("link.before_put")
        mine, before = open_now(bench), sorted(bench.read())
        assert len(mine) == 2
        driver.wake("resume")
        assert first.wait() in {1, 3}, first.tail()
        assert open_now(bench) == mine, "what another one has prepared was not touched"
        assert sorted(bench.read()) == before, "nothing was made visible late"
        (second.fired / "resume").touch()
        assert second.wait() == 0, second.tail()
    finally:
        for run in runs:
            run.kill_tree()
    outcomes = {
        event["outcome"]
        for kind in ("committed", "resolved")
        for event in bench.seen_events(f"handle.{kind}")
    }
    assert "Lost" not in outcomes
    assert_clean(bench)
