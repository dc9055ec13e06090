"""Leaves out the syncs of Spark's files in every second block of epochs: see ``benchmarks.syncs``.

``SITE`` on ``PYTHONPATH`` puts it into each Python process that Spark starts, as no setting of a job's could: a product
has no option that loses rows.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.checkpoint.syncing import CheckpointSync

if TYPE_CHECKING:
    from onceonly.model import Plan

SITE = Path(__file__).with_name("site")
"""Holds what Python runs when it starts, and nothing else."""
BLOCK = 20
"""So many epochs follow each other with their syncs, then as many without them. Spark writes all of a state by tens."""
LEFT_OUT_ENV = "ONCEONLY_BENCHMARK_LEFT_OUT"
"""Names the file that gets a byte for each call that did not sync."""


def has_syncs(epoch: int) -> bool:
    """Say whether an epoch is one of those whose files are synced, as ever. Pure."""
    return epoch // BLOCK % 2 == 0


def take_turns() -> None:
    """Put it into this process. For one query in it; once."""
    begin, wait, sync = CheckpointSync.begin, CheckpointSync.wait, CheckpointSync.sync
    is_on = True

    def beginning(self: CheckpointSync, plan: Plan) -> None:
        nonlocal is_on
        is_on = has_syncs(plan.epoch)
        begin(self, plan)

    def waiting(self: CheckpointSync, plan: Plan) -> str:
        # The commit process syncs the state then, and has begun nothing.
        nonlocal is_on
        is_on = has_syncs(plan.epoch)
        return wait(self, plan)

    def syncing(self: CheckpointSync) -> str:
        if is_on:
            return sync(self)
        with Path(os.environ[LEFT_OUT_ENV]).open("ab") as told:
            told.write(b".")
        return ""

    # Outside of the product, and only in a process that a benchmark has started.
    CheckpointSync.begin = beginning  # type: ignore[method-assign]
    CheckpointSync.wait = waiting  # type: ignore[method-assign]
    CheckpointSync.sync = syncing  # type: ignore[method-assign]
