"""SIGKILL at every step of the protocol, and again during the recovery; then the targets are asked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from harness import TEXTS, Watcher

if TYPE_CHECKING:
    from harness import Bench

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1800)]

ROWS = [(f"k{number % 17}", str(number)) for number in range(900)]
MORE_ROWS = [(f"k{number % 17}", str(number)) for number in range(1800)]
# Long and short values, which are hashed by different functions.
MIXED_ROWS = [(key, f"{text:_>200}" if int(text) % 3 == 0 else text) for key, text in MORE_ROWS]
SMALL_EPOCHS = ["--per-epoch", "50"]
WAYS = ("format", pytest.param("foreachBatch", marks=pytest.mark.long))
BY_FORMAT = (
    "slot.during_write",
    "slot.after_prepare",
    "link.before_put",
    "link.after_put",
    "commit.after_handle",
    "complete.before",
    "commit.before_return",
)
ALL = ("kafka", "files", "results")

# The step at which the job dies, the pass at which it does, and the step at which its recovery dies.
KILLS = {
    "while tasks write": [
        ("slot.before_begin", 3, "plan.before_resolve"),
        ("slot.during_write", 4, "plan.after_claim"),
        ("slot.before_prepare", 3, "sweep.before"),
        ("slot.after_prepare", 4, "plan.after_resolve"),
    ],
    "around the link": [
        ("link.before_put", 2, "plan.after_claim"),
        ("link.during_put", 3, "plan.after_claim"),
        ("link.after_put", 2, "plan.before_recommit"),
    ],
    "while handles are committed": [
        ("commit.before_handle", 4, "plan.after_recommit"),
        ("commit.after_handle", 3, "plan.before_recommit"),
        ("receipt.before_put", 2, "plan.after_recommit"),
    ],
    "after the receipt": [
        ("receipt.after_put", 2, "plan.before_resolve"),
        ("sweep.before", 3, "plan.after_resolve"),
        ("commit.before_return", 2, "commit.before_return"),
    ],
}
STEPS = [(point, nth) for kills in KILLS.values() for point, nth, _ in kills]
# One for each thing that a recovery has to do: what is open is aborted, what is decided committed, what is done left.
DAILY = [
    step
    for step in STEPS
    if step[0]
    in {
        *("slot.during_write", "slot.after_prepare", "link.after_put"),
        *("commit.after_handle", "receipt.after_put", "commit.before_return"),
    }
]


@pytest.mark.long
def test_every_row_is_there_once_after_a_kill_at_each_step(bench: Bench) -> None:
    bench.args = SMALL_EPOCHS
    bench.feed(MORE_ROWS)
    for point, nth in STEPS:
        bench.run_and_kill_at(point, nth)
    bench.run()
    bench.assert_exactly_once(MORE_ROWS)
    bench.assert_nothing_left_open()


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        pytest.param("configured", DAILY, id="configured"),
        pytest.param("configured", STEPS, id="configured, all steps", marks=pytest.mark.long),
        pytest.param("as shipped", STEPS, id="as shipped", marks=pytest.mark.long),
    ],
)
def test_kafka_files_and_the_docs_sink_are_equal_after_a_kill_at_each_step(
    bench: Bench, settings: str, steps: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One decision for all three; a reader that watches the files meanwhile never sees a part of anything."""
    fast = ["--configured"] if settings == "configured" else []
    if fast:
        monkeypatch.setenv("ONCEONLY_COMPILED", "always")
    bench.args = ["--way", "epoch", *fast, *SMALL_EPOCHS, *bench.with_all_sinks()]
    rows = MIXED_ROWS[: 150 * len(steps)]  # three epochs a kill
    bench.feed(rows)
    with Watcher(bench) as watcher:
        for point, nth in steps:
            # Three sinks pass the steps of a slot and of a handle more often.
            bench.run_and_kill_at(point, nth * 2 if point.startswith(("slot.", "commit.")) else nth)
        bench.run()
    assert watcher.wrong == []
    assert len(watcher.epochs) == len(rows) // 50
    assert watcher.looks > 100
    bench.assert_exactly_once(rows, *ALL)
    bench.assert_nothing_left_open(*ALL)
    loops = {
        vote["compiled"]
        for vote in bench.seen_events("slot.voted")
        if vote["sink"] == "kafka" and vote["transaction"]
    }
    assert loops == {"checksum_loops,partition_loops,record_loops,xxh3_loops" if fast else ""}


@pytest.mark.long
@pytest.mark.parametrize("when", list(KILLS))
def test_every_row_is_there_once_after_kills(bench: Bench, when: str) -> None:
    """Kill at each step, and kill the recovery from it, one after the other in the life of one checkpoint."""
    bench.args = SMALL_EPOCHS
    bench.feed(ROWS)
    for point, nth, again in KILLS[when]:
        bench.run_and_kill_at(point, nth)
        bench.run_and_kill_at(again)
    bench.run()
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()


@pytest.mark.long
@pytest.mark.parametrize("when", list(KILLS))
def test_kafka_files_and_the_docs_sink_are_equal_after_kills(bench: Bench, when: str) -> None:
    """As above, with a kill in each recovery."""
    bench.args = ["--way", "epoch", *SMALL_EPOCHS, *bench.with_all_sinks()]
    bench.feed(ROWS)
    with Watcher(bench) as watcher:
        for point, nth, again in KILLS[when]:
            # Three sinks pass the steps of a slot and of a handle more often.
            bench.run_and_kill_at(point, nth * 2 if point.startswith(("slot.", "commit.")) else nth)
            bench.run_and_kill_at(again)
        bench.run()
    assert watcher.wrong == []
    assert len(watcher.epochs) == len(ROWS) // 50
    assert watcher.looks > 100
    bench.assert_exactly_once(ROWS, *ALL)
    bench.assert_nothing_left_open(*ALL)


@pytest.mark.long
def test_a_kill_between_the_commits_of_two_sinks_leaves_them_equal(bench: Bench) -> None:
    bench.args = ["--way", "epoch", *SMALL_EPOCHS, *bench.with_all_sinks()]
    bench.feed(ROWS)
    bench.run_and_kill_at("link.before_put", 2)
    for waiting, done in (("files", "kafka"), ("kafka", "files"), ("files", "results")):
        # The second epoch of this life, as the first one may be settled by recovery.
        run = bench.start(f"commit.before_handle[{waiting}]=pause@{2 if waiting == 'files' else 3}")
        try:
            run.wait_for(f"commit.before_handle[{waiting}]")
            run.until(partial(_is_ahead, bench, done, waiting), f"{done} to be ahead of {waiting}")
        finally:
            run.kill_tree()
        assert _is_ahead(bench, done, waiting)
    for point in ("complete.before[files]", "complete.before[kafka]"):
        bench.run_and_kill_at(point, 2)
    bench.run()
    bench.assert_exactly_once(ROWS, *ALL)
    bench.assert_nothing_left_open(*ALL)


def _is_ahead(bench: Bench, one: str, other: str) -> bool:
    return len(bench.rows_in(one)) > len(bench.rows_in(other))


@pytest.mark.long
@pytest.mark.parametrize("sink", ["files", "results"])
def test_by_its_format_this_sink_passes_the_kills_too(bench: Bench, sink: str) -> None:
    bench.args = ["--sink", sink, *SMALL_EPOCHS, *bench.with_all_sinks(), *TEXTS]
    bench.feed(ROWS)
    # At all of them these sinks are killed under one decision with Kafka; here, once in each kind of process.
    for point in BY_FORMAT:
        bench.run_and_kill_at(point, 2)
    bench.run()
    bench.assert_exactly_once(ROWS, sink)
    bench.assert_nothing_left_open(sink)


@pytest.mark.long
def test_a_replay_that_takes_another_branch_stops_and_touches_nothing(bench: Bench) -> None:
    bench.args = ["--way", "epoch", *SMALL_EPOCHS, *bench.with_all_sinks()]
    bench.feed(ROWS)
    bench.run_and_kill_at("link.after_put", 3)
    seen = [bench.read(), bench.read_files(), bench.read_database()]
    both = list(bench.args)
    bench.args = [*both, "--skip-files-from", "2"]
    assert "REPLAY_MISMATCH" in bench.run_to_an_error()
    assert seen == [bench.read(), bench.read_files(), bench.read_database()]
    bench.args = both
    bench.run()
    bench.assert_exactly_once(ROWS, *ALL)
    bench.assert_nothing_left_open(*ALL)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_killed_python_workers_double_nothing(bench: Bench, way: str) -> None:
    # With one try a task, the query fails and is started again in the same driver.
    points = ["slot.before_begin", "slot.during_write", "slot.before_prepare", "slot.after_prepare"]
    bench.args = ["--way", way, "--restart", "4", *SMALL_EPOCHS]
    bench.feed(ROWS)
    run = bench.run(", ".join(f"{point}=kill@{3 + 4 * number}" for number, point in enumerate(points)))
    assert run.points_fired() == sorted(points)
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()


@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_spark_tries_again_doubles_nothing(bench: Bench, way: str) -> None:
    # With several tries a task, the epoch itself goes on with a second attempt at the slot.
    bench.args = ["--way", way, "--master", "local[2,4]"]
    bench.feed(ROWS)
    run = bench.run("slot.after_prepare=kill@3")
    assert run.points_fired() == ["slot.after_prepare"]
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()


@pytest.mark.long
def test_killed_planners_and_commit_processes_double_nothing(bench: Bench) -> None:
    # Only those Python processes die; the driver's JVM lives on and starts the query again.
    points = [
        "plan.after_resolve",
        "link.before_put",
        "link.after_put",
        "commit.after_handle",
        "receipt.after_put",
    ]
    bench.args = ["--restart", "5", *SMALL_EPOCHS]
    bench.feed(ROWS)
    run = bench.run(", ".join(f"{point}=kill@{2 + 2 * number}" for number, point in enumerate(points)))
    assert run.points_fired() == sorted(points)
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "store"),
    [
        pytest.param("foreachBatch", "default", marks=pytest.mark.long),
        pytest.param("foreachBatch", "rocksdb", marks=pytest.mark.long),
        ("format", "rocksdb"),
    ],
)
def test_windows_are_right_after_kills_with(bench: Bench, way: str, store: str) -> None:
    # Over an hour of event time, so that the watermark passes windows in mid-run.
    rows = [(f"k{number % 3}", str(number // 4 * 30)) for number in range(600)]
    bench.args = ["--way", way, "--work", "window", "--store", store]
    bench.feed(rows)
    for point in ("link.before_put", "commit.after_handle", "commit.before_return"):
        bench.run_and_kill_at(point)
    bench.run()

    assert_windows(bench, rows, final=way == "format")
    bench.assert_nothing_left_open()


@pytest.mark.long
def test_windows_are_right_when_the_settings_of_short_epochs_come_and_go_between_kills(bench: Bench) -> None:
    rows = [(f"k{number % 3}", str(number // 4 * 30)) for number in range(600)]
    before = ["--work", "window"]
    bench.args = before
    bench.feed(rows)
    bench.run_and_kill_at("link.before_put", 2)
    bench.args = [*before, "--configured"]
    bench.run_and_kill_at("commit.after_handle", 2)
    # As the page of these settings says.
    sums = list(bench.checkpoint.rglob(".*.crc"))
    assert sums
    for path in sums:
        path.unlink()
    bench.args = before
    bench.run()
    assert_windows(bench, rows, final=True)
    bench.assert_nothing_left_open()


def assert_windows(bench: Bench, rows: list[tuple[str, str]], *, final: bool) -> None:
    seen = bench.read()
    # Counts only grow, so the same count of the same window can be there once only.
    assert len(seen) == len(set(seen))
    last: dict[str, int] = {}
    for key, value in seen:
        last[key] = max(last.get(key, 0), int(value))
    expected: dict[str, int] = {}
    for key, value in rows:
        window = f"{key}|{int(value) // 60 * 60}"
        expected[window] = expected.get(window, 0) + 1
    if final:
        # Append mode gives a window once the watermark has passed it; what it gives must be final.
        assert last
        assert last.items() <= expected.items()
        assert len(seen) == len(last)
    else:
        assert last == expected


@pytest.mark.long
def test_at_least_once_loses_nothing_and_says_that_it_doubles(bench: Bench) -> None:
    bench.args = ["--guarantee", "at-least-once"]
    bench.feed(ROWS)
    bench.run_and_kill_at("link.before_put", 2)
    bench.run()
    seen = bench.read()
    assert set(seen) == set(ROWS)
    assert len(seen) > len(ROWS), "killed before its link, an at-least-once epoch is written twice"


def test_at_most_once_gives_up_what_it_tried_once(bench: Bench) -> None:
    bench.args = ["--guarantee", "at-most-once"]
    bench.feed(ROWS)
    bench.run_and_kill_at("link.after_put", 2)
    bench.run()
    seen = bench.read()
    assert len(seen) == len(set(seen))
    assert set(seen) < set(ROWS), "killed after its intent, an at-most-once epoch is not tried again"
    bench.assert_nothing_left_open()
