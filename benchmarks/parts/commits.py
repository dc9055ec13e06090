"""The commit phase alone, without Spark: epochs of so many prepared transactions, decided by our coordinator."""

from __future__ import annotations

import os
import time
import uuid
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks import reading
from benchmarks.data import value
from benchmarks.parts.bounded import outcome
from benchmarks.processes import on_cpu_s
from benchmarks.values import Measured
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.executor.slot import run_slot
from onceonly.log import open_log
from onceonly.model import Guarantee, Vote
from onceonly.ports import WriteContext
from onceonly.sinks.kafka import KafkaSink

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.values import Run
    from benchmarks.world import World
    from onceonly.model import Plan

EPOCHS = 5
"""Of each count, after a first one that is not counted; the median is given."""
_ROWS = 10
_SINK = "kafka"


def measure(world: World, run: Run) -> Measured:
    """Decide some epochs of ``run.work.count`` transactions each, and time what happens after the last vote."""
    rows = run.work.count * _ROWS * (EPOCHS + 1)
    with world.place(run) as place:
        epochs = decide(place.servers, place.target, run.work.count, world.folder, broker=world.kafka.pid)
        found = reading.read(place.servers, place.target, place.partitions)
    lost, doubled = reading.missing_and_again(found, rows)
    return Measured(
        run=run,
        outcome=outcome(lost, doubled),
        records=rows,
        lost=lost,
        doubled=doubled,
        figures={name: round(median(each[name] for each in epochs), 3) for name in epochs[0]},
    )


def decide(
    servers: str, topic: str, count: int, folder: Path, *, broker: int | None = None
) -> list[dict[str, float]]:
    """Decide some epochs of so many transactions each; give, of each but the first, when its steps were taken.

    ``broker`` is the process whose time on a processor is given, too.
    """
    query = uuid.uuid4().hex
    pids = {"cpu_own_ms": os.getpid()} | ({"cpu_broker_ms": broker} if broker is not None else {})
    sink = KafkaSink({"kafka.bootstrap.servers": servers, "topic": topic})
    watched: list[tuple[str, float]] = []

    def watch(step: Mapping[str, str | int]) -> None:
        watched.append((str(step["kind"]), time.monotonic()))

    checkpoint = str(folder / f"commits-{query}")
    coordinator = Coordinator(log=open_log(checkpoint, query=query, create=True), actor="driver", watch=watch)
    coordinator.join(_SINK, Participant(sink=sink, guarantee=Guarantee.EXACTLY_ONCE))
    found: list[dict[str, float]] = []
    try:
        plan: Plan | None = None
        for epoch in range(EPOCHS + 1):
            plan = coordinator.plan(epoch, run=query, continues=plan.id if plan else None)
            votes = [
                _vote(sink, plan, query, slot, first=(epoch * count + slot) * _ROWS) for slot in range(count)
            ]
            watched.clear()
            before = {name: on_cpu_s(pid) for name, pid in pids.items()}
            began = time.monotonic()
            coordinator.decide(plan, votes)
            ended = time.monotonic()
            spent = {name: (on_cpu_s(pid) - before[name]) * 1000 for name, pid in pids.items()}
            if epoch:
                found.append({"decide_ms": (ended - began) * 1000, **spent, **_phases(watched, began)})
    finally:
        sink.close()
    return found


def _vote(sink: KafkaSink, plan: Plan, query: str, slot: int, first: int) -> Vote:
    context = WriteContext(
        query=query,
        sink=_SINK,
        run=query,
        epoch=plan.epoch,
        plan=plan.id,
        slot=slot,
        attempt=uuid.uuid4().hex,
        guarantee=Guarantee.EXACTLY_ONCE,
        facts=plan.facts.get(_SINK, {}),
    )
    values = [value(number, 0, b"") for number in range(first, first + _ROWS)]
    return run_slot(sink, plan, context, [pa.RecordBatch.from_pydict({"value": values})]).vote


def _phases(watched: list[tuple[str, float]], began: float) -> dict[str, float]:
    """Return how long after its begin each kind of step was taken for the last time, in ms. Pure."""
    last = dict(watched)
    return {f"until_{kind}_ms": (moment - began) * 1000 for kind, moment in last.items()}
