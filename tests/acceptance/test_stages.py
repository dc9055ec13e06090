"""Two attempts at one slot that Spark itself starts: a stage that is tried again, and a twin of a slow task.

Spark's own event log says which attempts there were; where it does not tell of both, the test fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import spark_log
from audits import assert_clean
from harness import TEXTS
from test_executors import executor_of

from onceonly_proof.embedded.standalone import Standalone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Bench, Run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

ROWS = [(f"k{number % 17}", str(number)) for number in range(400)]


def prepared(bench: Bench) -> dict[tuple[int, int], list[str]]:
    """Return the attempts that have prepared, by epoch and slot: Spark's own numbers of the tasks, oldest first."""
    found: dict[tuple[int, int], list[str]] = {}
    for event in sorted(bench.seen_events("slot.prepared"), key=lambda event: float(str(event["t"]))):
        place = int(str(event["epoch"])), int(str(event["slot"]))
        found.setdefault(place, []).append(str(event["attempt"]))
    return found


def twins(bench: Bench) -> tuple[int, int] | None:
    """Return epoch and slot at which two attempts have prepared."""
    return next((place for place, attempts in prepared(bench).items() if len(attempts) > 1), None)


def go_on(run: Run, arming: str) -> None:
    (run.fired / f"resume#{arming}").touch()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("cluster"), ["127.0.0.1", "127.0.0.2"]) as cluster:
        yield cluster


def ways(in_ci: tuple[str, str]) -> pytest.MarkDecorator:
    """Each way and sink; one of them in CI."""
    every = [("format", "files"), ("format", "kafka"), ("foreachBatch", "kafka")]
    marks = {how: () if how == in_ci else (pytest.mark.long,) for how in every}
    return pytest.mark.parametrize(
        ("way", "sink"), [pytest.param(*how, marks=marks[how], id="-".join(how)) for how in every]
    )


def start(bench: Bench, cluster: Standalone, failpoints: str, *arguments: str) -> Run:
    """Start the job there, armed in its executors."""
    bench.args += arguments
    env = {
        "ONCEONLY_FAILPOINTS": failpoints,
        "ONCEONLY_FAILPOINTS_DIR": str(bench.folder / "fired-1"),
        "ONCEONLY_EVENTS": str(bench.events),
    }
    bench.args += [*TEXTS, "--files", str(bench.files), *cluster.conf(env)]
    bench.args += spark_log.conf(bench.folder / "spark-log")
    bench.feed(ROWS)
    return bench.start(failpoints)


@ways(in_ci=("format", "files"))
def test_a_stage_that_is_tried_again_doubles_nothing(
    bench: Bench, cluster: Standalone, way: str, sink: str
) -> None:
    """Both slots have prepared, and one executor dies with its half of the shuffle files.

    Spark makes these anew, and tries the stage again: both slots, with the attempt number 0 once more, while the first
    attempt at one of them still lives.
    """
    armed = "slot.after_prepare=pause@1#dies, slot.after_prepare=pause@2#lives"
    run = start(bench, cluster, armed, "--way", way, "--sink", sink, "--work", "shuffle")
    try:
        dies, lives = (executor_of(run.wait_for(f"slot.after_prepare#{name}")) for name in ("dies", "lives"))
        assert dies != lives
        dies.kill()
        run.until(lambda: twins(bench), "another attempt at a slot has prepared")
        go_on(run, "lives")
        assert run.wait() == 0, run.tail()
    finally:
        run.kill_tree()
    tasks = spark_log.tasks(bench.folder / "spark-log")
    assert "FetchFailed" in {task.ended for task in tasks.values()}
    again = [
        [(tasks[each].stage_attempt, tasks[each].number) for each in attempts]
        for attempts in prepared(bench).values()
        if len(attempts) > 1
    ]
    assert again
    assert all(numbers[:2] == [(0, 0), (1, 0)] for numbers in again), again
    assert_clean(bench, sink, ordered=False)


@ways(in_ci=("foreachBatch", "kafka"))
def test_a_speculative_twin_doubles_nothing(bench: Bench, cluster: Standalone, way: str, sink: str) -> None:
    """The first attempt is slow after it has prepared; its twin prepares beside it; both go on at once."""
    for setting in ("=true", ".interval=100ms", ".quantile=0.5", ".multiplier=1.1"):
        bench.args += ["--conf", f"spark.speculation{setting}"]
    # The third pass is the twin's: while the first stands still, the other slot's is the second.
    armed = "slot.after_prepare=pause@1#slow, slot.after_prepare=pause@3#twin"
    run = start(bench, cluster, armed, "--way", way, "--sink", sink)
    try:
        slow, twin = (run.wait_for(f"slot.after_prepare#{name}") for name in ("slow", "twin"))
        assert slow != twin
        place = twins(bench)
        go_on(run, "slow")
        go_on(run, "twin")
        assert run.wait() == 0, run.tail()
    finally:
        run.kill_tree()
    assert place
    tasks = spark_log.tasks(bench.folder / "spark-log")
    first, second = (tasks[attempt] for attempt in prepared(bench)[place])
    assert (first.speculative, second.speculative) == (False, True)
    assert (first.stage_attempt, first.partition) == (second.stage_attempt, second.partition)
    assert first.host != second.host
    assert_clean(bench, sink)
