"""Makes a golden folder: a world with every kind of file, as this version writes them.

``python -m tests.unit.golden_world tests/unit/golden/format-N``, once for each new format; see golden/README.md.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.unit.disk_bench import World

from onceonly.log.opening import accept_move
from onceonly.sinks.files import ledger

LAST = 24


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


if __name__ == "__main__":
    make(Path(sys.argv[1]))
