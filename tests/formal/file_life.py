"""One life of a driver that writes to two file sinks under one decision; the tests of traces start and kill it.

``python file_life.py FOLDER EPOCHS`` goes on where the folder says that the life before has ended.
"""

from __future__ import annotations

import itertools
import sys
import uuid
from pathlib import Path

import pyarrow as pa

from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.executor.slot import run_slot
from onceonly.log import open_log
from onceonly.model import Guarantee, Plan, Vote
from onceonly.ports import Sink, WriteContext
from onceonly.settings.query import SinkSettings
from onceonly.settings.registry import build, find

NAMES = ("left", "right")
SLOTS = 2


def task(sink: Sink, name: str, plan: Plan, slot: int, run: str) -> Vote:
    context = WriteContext(
        query="files", sink=name, run=run, epoch=plan.epoch, plan=plan.id, slot=slot, attempt="0",
        guarantee=plan.guarantee, mode=plan.mode, facts=plan.facts[name],
    )  # fmt: skip
    rows = pa.record_batch({"id": [plan.epoch * 10 + slot], "value": [name]})
    return run_slot(sink, plan, context, [rows]).vote


def live(folder: Path, epochs: int) -> None:
    finished = folder / "finished"  # Spark's commits/N
    run = uuid.uuid4().hex
    log = open_log(str(folder / "checkpoint"), query="files", create=True)
    coordinator = Coordinator(log=log, actor="driver")
    sinks: dict[str, Sink] = {}
    for name in NAMES:
        _, kind = find("onceonly.files")
        sinks[name] = build(SinkSettings(name=name, options={"path": str(folder / name)}), kind)
        columns = (("id", "bigint"), ("value", "string"))
        participant = Participant(sink=sinks[name], guarantee=Guarantee.EXACTLY_ONCE, columns=columns)
        coordinator.join(name, participant)
    continues = None
    for epoch in range(int(finished.read_text()) if finished.exists() else 0, epochs):
        plan = coordinator.plan(epoch, run=run, continues=continues)
        votes = [
            task(sinks[name], name, plan, slot, run) for name, slot in itertools.product(NAMES, range(SLOTS))
        ]
        coordinator.decide(plan, votes)
        finished.write_text(str(epoch + 1))
        continues = plan.id


if __name__ == "__main__":
    live(Path(sys.argv[1]), int(sys.argv[2]))
