"""Runs the small history under ``strace --inject``, in a process for each call; started by ``test_disk_syscalls``.

strace counts the calls of each process for itself, and strikes at its ``AT``-th: so the n-th call of the history is
struck where ``AT - n`` calls that do nothing come before it. One strace serves any number of victims.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.unit.disk_bench import World, in_child

from onceonly.sinks.files.staging.moving import rename_noreplace

if TYPE_CHECKING:
    from collections.abc import Callable

AT = 1000
NOWHERE = "/nowhere/at/all"
NO_FILE = 1 << 20


def nothing(call: str) -> None:
    """Make a call that fails by itself."""
    calls: dict[str, Callable[[], object]] = {
        "fsync": lambda: os.fsync(NO_FILE),
        "link": lambda: os.link(NOWHERE, NOWHERE),
        "unlink": lambda: os.unlink(NOWHERE),  # noqa: PTH108  the very call
        "rename": lambda: os.rename(NOWHERE, NOWHERE),  # noqa: PTH104
        "renameat2": lambda: rename_noreplace(Path(NOWHERE), Path(NOWHERE)),
    }
    with contextlib.suppress(OSError):
        calls[call]()


def main(call: str, step: int, upto: int, folder: Path) -> None:
    """Strike every ``step``-th call of a kind once, and say how the victim ended and what the judge found.

    Ends after ``upto``, or with the first victim that is neither killed nor told of an error where it is 0.
    """
    World(folder / "warm").history()
    for nth in range(1, (upto or AT) + 1, step):
        world = World(folder / str(nth))

        def victim(nth: int = nth, world: World = world) -> None:
            for _ in range(AT - nth):
                nothing(call)
            world.history()

        end = in_child(victim, calls=())
        if not upto and not end.killed:
            return
        told = {
            "nth": nth,
            "status": end.status,
            "said": end.said,
            "wrong": judge(world),
            "folder": str(world.folder),
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def judge(world: World) -> str:
    """Judge the world, let the next process go on, and judge again; empty where all is well."""
    try:
        world.judge_midway()
        after = in_child(world.settle, calls=())
        world.last += 1
        if after.status:
            return after.said
        world.judge_settled()
    except (AssertionError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
