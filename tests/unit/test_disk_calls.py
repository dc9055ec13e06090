"""Every call that writes, of the decision log and of the file sink, is killed, refused, or done without an answer.

One small history has everything in it: a claim with something to sweep, a commit that breaks off in the middle, its
recovery, a drain, a fold. It runs in a process of its own, once for each of its calls; then a new process goes on.
"""

from __future__ import annotations

import errno
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.unit.disk_bench import DEFECT, World, in_child, memory

from onceonly.durable import disk
from onceonly_proof.disk import CHANGES, READS, Fault, How

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

__all__ = ["memory"]  # a fixture
KILL = (How.KILL, errno.EIO)
ERRORS = ((How.REFUSE, errno.EIO), (How.LOSE, errno.EIO), (How.FULL, errno.ENOSPC))
MORE_ERRORS = ((How.REFUSE, errno.ENOSPC), (How.LOSE, errno.ENOSPC), (How.REFUSE, errno.EDQUOT))


@pytest.fixture(scope="module")
def total(memory: Path) -> int:
    """Count the calls of the history that change something."""
    return counted(memory, CHANGES)


def counted(memory: Path, calls: Collection[str]) -> int:
    world = World(memory / "counted")
    end = in_child(world.history, *world.watched, calls=calls)
    assert end.status == 0, end.said
    shutil.rmtree(world.folder)
    return end.total


def sweep_of_faults(
    memory: Path,
    ordinals: Collection[int],
    fault_of: Callable[[int], tuple[How, int]],
    calls: Collection[str] = CHANGES,
) -> Counter[str]:
    """Run the history once for each ordinal and judge it; give the calls that were struck."""
    struck = Counter[str]()
    wrong: list[str] = []
    for nth in ordinals:
        world = World(memory / str(nth))
        how, code = fault_of(nth)
        try:
            struck[one_fault(world, Fault(nth, how, code), calls)] += 1
        except (AssertionError, OSError) as error:
            wrong.append(f"{how} {errno.errorcode[code]} at call {nth}: {error}")
        shutil.rmtree(world.folder)
    assert not wrong, f"{len(wrong)} of {len(ordinals)}:\n" + "\n".join(wrong[:5])
    return struck


def one_fault(world: World, fault: Fault, calls: Collection[str]) -> str:
    end = in_child(world.history, *world.watched, fault=fault, calls=calls)
    call = end.at[0] if end.at else ""
    if fault.how is How.KILL:
        assert end.killed, f"the fault did not strike: {end}"
    else:
        assert end.at is not None, "the fault did not strike"
        assert end.status != DEFECT, f"{end.at}: {end.said}"
        # What is best effort fails nothing; the error of all else names the file.
        assert end.status == 0 or str(world.folder) in end.said, f"{end.at}: {end.said}"
        if end.at[0] == "fsync" and fault.code == errno.EIO:
            assert end.status == disk.EXIT, f"{end.at}: an fsync failed, and its process went on"
    world.judge_midway()
    after = in_child(world.settle, *world.watched)
    world.last += 1
    assert after.status == 0, f"{end.at}: recovery: {after.said}"
    world.judge_settled()
    return call


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
def test_killed_at_every_call_each_row_is_there_once(memory: Path, total: int, step: int) -> None:
    ordinals = range(1, total + 1, step)
    struck = sweep_of_faults(memory, ordinals, lambda _: KILL)
    assert struck.total() == len(ordinals)


def test_after_an_error_at_a_call_each_row_is_there_once(memory: Path, total: int) -> None:
    # At every fourth call, one kind of error after the other; the long ones below take all of them.
    struck = sweep_of_faults(memory, range(1, total + 1, 4), lambda nth: ERRORS[nth // 4 % len(ERRORS)])
    assert struck.keys() == CHANGES


def test_every_fsync_that_fails_ends_its_process_and_is_never_asked_again(memory: Path) -> None:
    ordinals = range(1, counted(memory, {"fsync"}) + 1, 4)
    struck = sweep_of_faults(memory, ordinals, lambda nth: (ERRORS[nth // 4 % 2][0], errno.EIO), {"fsync"})
    assert struck == {"fsync": len(ordinals)}


def test_what_cannot_be_read_is_named_and_nothing_is_lost(memory: Path) -> None:
    ordinals = range(1, counted(memory, READS) + 1, 8)
    struck = sweep_of_faults(memory, ordinals, lambda _: (How.REFUSE, errno.EIO), READS)
    assert struck.keys() == READS


@pytest.mark.long
@pytest.mark.parametrize(
    "error", [*ERRORS, *MORE_ERRORS], ids=lambda each: f"{each[0]}-{errno.errorcode[each[1]]}"
)
def test_after_each_error_at_every_call_each_row_is_there_once(
    memory: Path, total: int, error: tuple[How, int]
) -> None:
    struck = sweep_of_faults(memory, range(1, total + 1), lambda _: error)
    assert struck.keys() == CHANGES


@pytest.mark.long
def test_each_read_that_fails_is_named_and_nothing_is_lost(memory: Path) -> None:
    ordinals = range(1, counted(memory, READS) + 1)
    struck = sweep_of_faults(memory, ordinals, lambda _: (How.REFUSE, errno.EIO), READS)
    assert struck.keys() == READS
