"""The run of the picture of incremental snapshots: a count by key whose state is large beside what an epoch changes."""

from __future__ import annotations

import json
import random
import zipfile
from typing import TYPE_CHECKING

from onceonly_proof.textbook.values import Growth

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly_proof.textbook.world import World

PER_EPOCH = 2_000
KEYS = (2_000, 2_000, 2_000, 2_000, *(200,) * 8)
"""By epoch, how many keys its rows are of: at first others each time, and then the first ones again."""
_NEW = 4
_TEXT = 200
_SEED = 1


def rows() -> Iterator[tuple[str, str]]:
    """Yield the input, an epoch's rows after another one's. Pure: always the same."""
    draw = random.Random(_SEED)  # noqa: S311  texts that no packing makes small
    for epoch, keys in enumerate(KEYS):
        start = epoch * PER_EPOCH if epoch < _NEW else 0
        for number in range(PER_EPOCH):
            yield f"k{start + number % keys}", draw.randbytes(_TEXT // 2).hex()


def versions(world: World) -> tuple[Growth.Version, ...]:
    """Run the job to its end, and return the files of its state by version."""
    world.feed([list(rows())])
    world.start().until_over()
    folder = world.checkpoint / "state" / "0" / "0"
    return tuple(_versions(folder, len(world.numbers("commits"))))


def _versions(folder: Path, count: int) -> Iterator[Growth.Version]:
    known: set[str] = set()
    for number in range(1, count + 1):
        snapshot = folder / f"{number}.zip"
        files = _files(snapshot) if snapshot.exists() else {}
        changed = KEYS[number - 1]
        yield Growth.Version(
            keys=min(number, _NEW) * PER_EPOCH,
            changed=changed,
            changelog=(folder / f"{number}.changelog").stat().st_size,
            snapshot=snapshot.stat().st_size if files else None,
            added=tuple(size for name, size in files.items() if name not in known),
            kept=tuple(size for name, size in files.items() if name in known),
        )
        known |= files.keys()


def _files(snapshot: Path) -> dict[str, int]:
    """Return the files of rows that a snapshot names, with their sizes; those that it shares have the same name."""
    with zipfile.ZipFile(snapshot) as archive:
        version, body = archive.read("metadata").decode().split("\n", 1)
    assert version.startswith("v"), version  # noqa: S101  Spark's own format
    return {each["dfsSstFileName"]: each["sizeBytes"] for each in json.loads(body)["sstFiles"]}
