"""An operator's look at a log of ten thousand epochs takes less than a second, its start included."""

from __future__ import annotations

import functools
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import QueryCoordinator

from onceonly.model import Receipt

if TYPE_CHECKING:
    from pathlib import Path

EPOCHS = 10_000
RUNS = 3


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a log as a run would, three transactions an epoch; only the syncs are left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        coordinator = QueryCoordinator(tmp_path_factory.mktemp("long") / "cp")
        for epoch in range(EPOCHS):
            link = coordinator.link(epoch, votes=[coordinator.vote(epoch, slot) for slot in range(3)])
            coordinator.log.put_link(link)
            coordinator.log.put_receipt(
                Receipt(epoch=epoch, index=0, plan="p", outcomes={"committed": 3}, seconds=0.01)
            )
            coordinator.log.fold()
        for epoch in range(EPOCHS - 100, EPOCHS):  # what Spark keeps
            coordinator.set_barrier(epoch)
            coordinator.note(epoch)
    return coordinator.path


@functools.cache
def start_s() -> float:
    """Time a command that looks at nothing."""
    return statistics.median(seconds("--version"))


def seconds(*arguments: str) -> list[float]:
    """Time the command line in processes of its own: processor seconds, as the machine may be busy otherwise."""
    found: list[float] = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "onceonly", *arguments], capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0, done.stderr
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ["checkpoints", "list"],
        ["checkpoints", "list", "--json"],
        ["checkpoints", "list", "--all"],
        ["checkpoints", "show", f"chk-{EPOCHS - 1}"],
        ["checkpoints", "show", "chk-5000"],
        ["transactions", "list"],
        ["transactions", "list", "--all"],
    ],
    ids=" ".join,
)
def test_a_look_takes_less_than_a_second(long_log: Path, arguments: list[str]) -> None:
    taken, start = seconds(*arguments, str(long_log)), start_s()
    median = statistics.median(taken)
    told = f"median {median:.2f} s, worst {max(taken):.2f} s, {median / start:.1f} x the start"
    sys.stdout.write(f"{' '.join(arguments)}: {told}\n")
    assert median < max(1.0, 10 * start), told  # a machine that is slow for everything is slow for this, too


@pytest.mark.parametrize(
    "arguments",
    [["checkpoints", "list"], ["checkpoints", "show", f"chk-{EPOCHS - 1}"], ["transactions", "list"]],
    ids=" ".join,
)
def test_a_person_waits_less_than_a_second(long_log: Path, arguments: list[str]) -> None:
    """By the clock on the wall; the best of three, as the machine may be busy otherwise."""
    taken: list[float] = []
    for _ in range(3):
        before = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "onceonly", *arguments, str(long_log)], capture_output=True, check=True
        )
        taken.append(time.monotonic() - before)
    start = statistics.median(seconds("--version"))
    told = f"best {min(taken):.2f} s, worst {max(taken):.2f} s, {min(taken) / start:.1f} x the start"
    sys.stdout.write(f"{' '.join(arguments)}: {told}\n")
    assert min(taken) < max(1.0, 10 * start), told
