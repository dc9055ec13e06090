"""What the shown run counts, and where it is killed: drawn from a seed, written as files, and recounted from here.

Pure but for ``write_input``. The input has two partitions. Each epoch takes one file of each, and as many epochs make
a window.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = 2
SUBTASKS = 3
"""How many partitions the input has, and how many parallel parts the operator: each gets rows of every partition.

Three, as Spark would put parts 0 and 1 into one task.
"""
POINTS = (
    "link.before_put",
    "link.after_put",
    "commit.before_handle",
    "receipt.before_put",
    "commit.before_return",
)
"""Where a life ends: every task of the epoch has run, and its commits/N is missing, so that Spark runs it again."""
UNDECIDED = frozenset({"link.before_put"})
"""Those at which the epoch is undecided, so that its results are written again; else they stand, and are dropped."""
_EPOCH_S, _EPOCHS_PER_WINDOW = 10, 3
WINDOW_S = _EPOCH_S * _EPOCHS_PER_WINDOW
_ROWS = (24, 96)
"""The least and the most rows of one partition in one epoch."""
_LONG_AGO_S = 1_700_000_000
"""Files are read in the order of their times, which are therefore given."""
SCHEMA = "id long, partition int, position int, subtask int, second int"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the input: a number of its own, its place there, who counts it, and its event time in seconds."""

    id: int
    partition: int
    position: int
    subtask: int
    second: int

    @property
    def window(self) -> int:
        """The number of its window."""
        return self.second // WINDOW_S


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One life's end: SIGKILL to the whole process tree while it stands at a step of an epoch's protocol."""

    epoch: int
    point: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The input, epoch by epoch, and the kills in their order."""

    seed: int
    epochs: tuple[tuple[Row, ...], ...]
    kills: tuple[Kill, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for epoch in self.epochs for row in epoch)

    def expected(self) -> dict[int, int]:
        """Count the rows of each window, in the order of time."""
        return dict(sorted(Counter(row.window for row in self.rows).items()))

    def killed(self) -> frozenset[int]:
        """Return the windows whose rows were being counted when the job was killed."""
        return frozenset(row.window for kill in self.kills for row in self.epochs[kill.epoch])


def draw_plan(seed: int, *, epochs: int, kills: int) -> Plan:
    """Draw input and kills. Pure: the same arguments give the same plan.

    Raises:
        ValueError: not every kill would have an epoch of its own, between the first and the last.
    """
    if kills > epochs - 2:
        raise ValueError(f"{kills} kills do not fit between the first and the last of {epochs} epochs")
    draw = random.Random(seed)
    counts, given = [0] * PARTITIONS, []
    for epoch in range(epochs):
        rows: list[Row] = []
        for partition in range(PARTITIONS):
            for place in range(draw.randint(*_ROWS)):
                rows.append(
                    Row(
                        id=sum(counts),
                        partition=partition,
                        position=counts[partition],
                        # Each has rows in each epoch, and so a snapshot of each.
                        subtask=place if place < SUBTASKS else draw.randrange(SUBTASKS),
                        second=epoch * _EPOCH_S + draw.randrange(_EPOCH_S),
                    )
                )
                counts[partition] += 1
        given.append(tuple(rows))
    points = draw.sample(POINTS, len(POINTS))
    chosen = sorted(draw.sample(range(1, epochs - 1), kills))
    return Plan(
        seed=seed,
        epochs=tuple(given),
        kills=tuple(
            Kill(epoch=epoch, point=points[place % len(points)]) for place, epoch in enumerate(chosen)
        ),
    )


def write_input(plan: Plan, folder: Path) -> None:
    """Write one file of JSON lines for each epoch and partition, in the order in which Spark shall take them."""
    folder.mkdir(parents=True)
    for epoch, rows in enumerate(plan.epochs):
        for partition in range(PARTITIONS):
            path = folder / f"{epoch:05d}-{partition}.json"
            lines = [json.dumps(msgspec.to_builtins(row)) for row in rows if row.partition == partition]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            time_s = _LONG_AGO_S + epoch * PARTITIONS + partition
            os.utime(path, (time_s, time_s))
