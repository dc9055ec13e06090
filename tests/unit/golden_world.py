"""Makes golden folders: worlds with every kind of file, as this version writes them.

``python -m tests.unit.golden_world N``, once for each new format; see golden/README.md.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.unit.disk_bench import World, armed

from onceonly.log.opening import accept_move
from onceonly.model import Passed
from onceonly.sinks.files.manifests import ledger

LAST = 24
GOLDEN = Path(__file__).parent / "golden"
MIDWAY = {"decided": "commit.before_handle=raise@2", "claimed": "plan.after_claim=raise@1"}
"""How the epoch after the last one was left: one of its two files published, or no more than claimed."""


def make(folder: Path) -> None:
    """Live a while, move once, and keep what is there: all of the log, and all of the target."""
    ledger.MERGED = 2  # so that a few epochs have merged manifests
    with tempfile.TemporaryDirectory(prefix="golden-") as place:
        world = World(Path(place) / "former", last=LAST)
        world.history()
        moved = World(world.folder.rename(Path(place) / "world"), last=LAST)
        accept_move(str(moved.checkpoint))
        (moved.log / "alive").write_text("golden 1 driver\n", encoding="utf-8")  # not this machine's name
        shutil.copytree(moved.folder, folder)


def make_midway(folder: Path, left_by: str) -> None:
    """Live a while, and die in the middle of the epoch after the last one."""
    with tempfile.TemporaryDirectory(prefix="golden-") as place:
        world = World(Path(place) / "world", last=LAST)
        world.history()
        with armed(left_by):
            world.live(LAST + 1, run="run-4", graceful=False)
        (world.log / "alive").write_text("golden 1 driver\n", encoding="utf-8")
        shutil.copytree(world.folder, folder)


def make_skipped(folder: Path) -> None:
    """Live a while; let Spark note an epoch alone, and take it over in the next start, which dies after its claim."""
    with tempfile.TemporaryDirectory(prefix="golden-") as place:
        world = World(Path(place) / "world", last=LAST)
        world.history()
        pass_by(world, LAST + 1)
        (world.log / "alive").write_text("golden 1 driver\n", encoding="utf-8")
        shutil.copytree(world.folder, folder)


def pass_by(world: World, epoch: int) -> None:
    """Note an epoch as Spark does, without a decision, and plan the one after."""
    world.barrier(epoch)
    (world.checkpoint / "commits" / str(epoch)).write_text("v1\n{}", encoding="utf-8")
    coordinator = world.coordinator({world.name: world.sink()})
    barrier = (world.barrier(epoch + 1),)
    coordinator.plan(
        epoch + 1,
        barrier=barrier,
        run="run-4",
        passed=lambda each: Passed(epoch=each, barrier=(world.barrier(each),), taken=True),
    )


if __name__ == "__main__":
    make(GOLDEN / f"format-{sys.argv[1]}")
    for word, left_by in MIDWAY.items():
        make_midway(GOLDEN / f"midway-{sys.argv[1]}-{word}", left_by)
    make_skipped(GOLDEN / f"skipped-{sys.argv[1]}")
