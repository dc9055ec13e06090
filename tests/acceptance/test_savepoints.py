"""A job that is restored from a savepoint gives what the job would have given that was never stopped, row by row."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
import pytest
import savepoint_job
from harness import python_path
from ledger_sink import by_epoch
from savepoint_job import newest
from test_operators_view import LEDGER
from test_operators_view import onceonly as command

if TYPE_CHECKING:
    from harness import Run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1200)]

CUT, COMPARED = 4, 4
"""After which epoch a savepoint is made at the earliest, and how many epochs after it are compared."""
PROVIDERS = ("hdfs", "rocksdb", "changelog", "rocksdb2", "changelog2")
OPERATORS = ("window", "dedup", "join", "tws", "files")
FILES = 600
"""How many files there are for a source that reads one an epoch: more than the slowest machine comes to."""
# transformWithState is RocksDB's alone; format 2 has no other provider.
CELLS = [
    (operator, provider)
    for operator in OPERATORS
    for provider in PROVIDERS
    if not (operator == "tws" and provider == "hdfs")
]


def start(
    folder: Path,
    checkpoint: Path,
    ledger: Path,
    operator: str,
    provider: str,
    *forks: Path | str,
    failpoints: str = "",
) -> Run:
    told = [str(checkpoint), str(ledger), operator, provider, *map(str, forks)]
    path = {"PYTHONPATH": python_path(), "SAVEPOINT_FILES": str(folder / "in")}
    return harness.start(savepoint_job.__file__, folder, *told, failpoints=failpoints, env=path)


def onceonly(*arguments: str | Path) -> Any:  # noqa: ANN401  JSON
    status, told, said = command(*arguments)
    assert status == 0, said
    return told


def killed(point: str, *arguments: str | Path) -> None:
    """Run the command line until it is killed at a crash point."""
    status, _, said = command(*arguments, ONCEONLY_FAILPOINTS=point)
    assert status == -9, said


def come_to(checkpoint: Path, epoch: int, run: Run) -> None:
    """Wait until Spark has noted an epoch."""
    run.until(lambda: newest(checkpoint) >= epoch, f"chk-{epoch} was noted")


def finished(run: Run, timeout_s: float = harness.TIMEOUT_S) -> None:
    try:
        assert run.wait(timeout_s) == 0, run.tail()
    finally:
        run.kill_tree()


def rows(ledger: Path) -> dict[int, Counter[str]]:
    """Return the visible rows of each epoch."""
    found: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for epoch, row in by_epoch(ledger):
        found[epoch][json.dumps(row, sort_keys=True)] += 1
    return found


def assert_goes_on_alike(tmp_path: Path, operator: str, provider: str) -> None:
    one, place = tmp_path / "one", tmp_path / "place"
    if operator == "files":
        savepoint_job.write_files(tmp_path / "in", FILES)
    run = start(tmp_path, one, tmp_path / "ledger", operator, provider)
    try:
        come_to(one, CUT, run)
        made = onceonly("savepoint", "create", one, place)  # beside it
        last = made["epoch"] + COMPARED
        end_after(one, last)
        finished(run)
    finally:
        run.kill_tree()
    shutil.rmtree(one)
    place.rename(tmp_path / "moved")
    two = tmp_path / "elsewhere" / "two"
    onceonly("savepoint", "verify", tmp_path / "moved")
    told = onceonly("savepoint", "restore", tmp_path / "moved", "--to", two, "--output", "again", *LEDGER)
    assert told["epoch"] == made["epoch"]
    end_after(two, last)
    finished(start(tmp_path, two, tmp_path / "ledger2", operator, provider))
    assert_alike(tmp_path / "ledger", tmp_path / "ledger2", range(made["epoch"] + 1, last + 1))


def assert_alike(one: Path, two: Path, epochs: range) -> None:
    first, second = rows(one), rows(two)
    assert sum(second[epoch].total() for epoch in epochs) > 0
    for epoch in epochs:
        assert second[epoch] == first[epoch], f"chk-{epoch}"
    assert min(epoch for epoch in second if second[epoch]) >= epochs[0]


def end_after(checkpoint: Path, epoch: int) -> None:
    checkpoint.parent.mkdir(exist_ok=True)
    last = Path(f"{checkpoint}.last")
    last.with_suffix(".new").write_text(str(epoch), encoding="utf-8")
    last.with_suffix(".new").rename(last)


def test_restored_elsewhere_with_the_original_gone_it_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    assert_goes_on_alike(tmp_path, "window", "changelog")


@pytest.mark.long
@pytest.mark.parametrize(("operator", "provider"), CELLS, ids=["-".join(cell) for cell in CELLS])
def test_with_each_operator_provider_and_format(tmp_path: Path, operator: str, provider: str) -> None:
    assert_goes_on_alike(tmp_path, operator, provider)


@pytest.mark.long
def test_two_forks_and_the_original_run_in_one_session_and_know_nothing_of_one_another(
    tmp_path: Path,
) -> None:
    one, place = tmp_path / "one", tmp_path / "place"
    forks = [tmp_path / "fork1", tmp_path / "fork2"]
    run = start(
        tmp_path,
        one,
        tmp_path / "ledger",
        "window",
        "changelog",
        *(part for fork in forks for part in (fork, f"{fork}-ledger")),
    )
    try:
        come_to(one, CUT, run)
        made = onceonly("savepoint", "create", one, place)
        for fork in forks:
            onceonly("savepoint", "fork", place, "--to", fork)
        last = made["epoch"] + COMPARED
        for fork in forks:
            come_to(fork, last, run)
        come_to(one, last, run)
        end_after(one, last)
        finished(run)
    finally:
        run.kill_tree()
    for fork in forks:
        assert_alike(tmp_path / "ledger", Path(f"{fork}-ledger"), range(made["epoch"] + 1, last + 1))


@pytest.mark.long
def test_a_fork_refuses_the_targets_of_the_original_at_its_first_start(tmp_path: Path) -> None:
    one, two, place = tmp_path / "one", tmp_path / "two", tmp_path / "place"
    end_after(one, CUT)
    finished(start(tmp_path, one, tmp_path / "ledger", "dedup", "hdfs"))
    onceonly("savepoint", "create", one, place)
    onceonly("savepoint", "fork", place, "--to", two)
    end_after(two, CUT + 1)
    run = start(tmp_path, two, tmp_path / "ledger", "dedup", "hdfs")
    try:
        assert run.wait() == 3, run.tail()
    finally:
        run.kill_tree()
    assert "is a fork" in Path(f"{two}.error").read_text(encoding="utf-8")
    assert max(rows(tmp_path / "ledger")) <= newest(one)
    finished(start(tmp_path, two, tmp_path / "other", "dedup", "hdfs"))
    assert min(rows(tmp_path / "other")) > CUT


@pytest.mark.long
def test_a_job_that_lives_on_where_it_was_ends_as_superseded(tmp_path: Path) -> None:
    one, two, place = tmp_path / "one", tmp_path / "two", tmp_path / "place"
    run = start(tmp_path, one, tmp_path / "ledger", "window", "hdfs")
    try:
        come_to(one, CUT, run)
        made = onceonly("savepoint", "create", one, place)
        arguments = ("savepoint", "restore", place, "--to", two, "--output", "again", *LEDGER)
        status, _, said = command(*arguments)
        assert status == 64
        assert "a run is alive" in said
        onceonly(*arguments, "--force")
        assert run.wait() == 3, run.tail()
    finally:
        run.kill_tree()
    assert "SUPERSEDED" in Path(f"{one}.error").read_text(encoding="utf-8")
    end_after(two, made["epoch"] + COMPARED)
    finished(start(tmp_path, two, tmp_path / "ledger2", "window", "hdfs"))
    common = range(made["epoch"] + 1, min(max(rows(tmp_path / "ledger")), made["epoch"] + COMPARED) + 1)
    assert_alike(tmp_path / "ledger", tmp_path / "ledger2", common)


KILLS = (
    "plan.after_resolve",
    "link.after_put",
    "commit.before_handle",
    "receipt.before_put",
    "commit.before_return",
)


@pytest.mark.long
def test_of_a_job_that_is_killed_again_and_again_each_savepoint_is_of_what_was_decided(
    tmp_path: Path,
) -> None:
    one, place = tmp_path / "one", tmp_path / "place"
    for number, point in enumerate(KILLS, 1):
        run = start(tmp_path, one, tmp_path / "ledger", "window", "changelog", failpoints=f"{point}=pause@3")
        try:
            run.wait_for(point)
            killed(f"savepoint.after_copy=kill@{3 * number}", "savepoint", "create", one, place)
            onceonly("savepoint", "create", one, place)  # beside it
        finally:
            run.kill_tree()
        killed(f"savepoint.before_copy=kill@{3 * number}", "savepoint", "create", one, place)
        onceonly("savepoint", "create", one, place)  # with it down
    status, listed, said = command("savepoint", "list", place)
    made = listed["savepoints"]
    assert (status, len(made), len(listed["not_whole"])) == (1, 2 * len(KILLS), 2 * len(KILLS)), said
    newest_one, last = made[0], made[0]["epoch"] + COMPARED
    end_after(one, last)
    finished(start(tmp_path, one, tmp_path / "ledger", "window", "changelog"))
    for word, more in (("fork", ()), ("restore", ("--output", "again", *LEDGER))):
        two, ledger = tmp_path / word, tmp_path / f"{word}-ledger"
        begun = ("savepoint", word, newest_one["path"], "--to", two, *more)
        for point in ("before_copy=kill@4", "after_copy=kill@9", "before_id=kill"):
            killed(f"savepoint.{point}", *begun)
        onceonly(*begun)
        end_after(two, last)
        finished(start(tmp_path, two, ledger, "window", "changelog"))
        assert_alike(tmp_path / "ledger", ledger, range(newest_one["epoch"] + 1, last + 1))
