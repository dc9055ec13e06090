"""How large a log's folder is, by epochs, sinks and slots."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benchmarks.scale.ageing import Folder, Job, simulated
from benchmarks.scale.links import point

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.scale.values import Point

EPOCHS = (400, 1_000, 3_000)
SIZES = ((1, 3), (3, 3))
"""Sinks, and slots of each. More slots make what is kept in detail larger, and history not."""
STARTS = 3


def measure(folder: Path) -> list[Point]:
    """Let queries age, and look at their logs on the way."""
    points: list[Point] = []
    for sinks, slots in SIZES:
        job = Job(checkpoint=folder / f"log-{sinks}-{slots}", sinks=sinks, slots=slots)
        for epochs in EPOCHS:
            with simulated():
                job.live(epochs)
            at = {"sinks": sinks, "slots": slots, "epochs": epochs}
            whole, history = Folder.look(job.log), Folder.look(job.log / "history")
            points += [
                point("log_files", at, [whole.files]),
                point("log_bytes", at, [whole.size]),
                point("history_bytes", at, [history.size]),
                point("start_ms", at, [1_000 * job.start_up_s() for _ in range(STARTS)]),
            ]
        job.close()
        shutil.rmtree(job.checkpoint)
    return points
