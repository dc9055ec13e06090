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
from onceonly.log import open_log
from onceonly.model import Guarantee, Vote
from onceonly.ports import WriteContext
from onceonly.runtime.coordinator import Coordinator, Participant
from onceonly.runtime.slot import run_slot
from onceonly.sinks.kafka import KafkaSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.contenders.base import Place
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
        epochs = _epochs(place, run.work.count, world)
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


def _epochs(place: Place, count: int, world: World) -> list[dict[str, float]]:
    query = uuid.uuid4().hex
    pids = (world.kafka.pid or 0, os.getpid())
    sink = KafkaSink({"kafka.bootstrap.servers": place.servers, "topic": place.target})
    watched: list[tuple[str, float]] = []

    def watch(step: Mapping[str, str | int]) -> None:
        watched.append((str(step["kind"]), time.monotonic()))

    checkpoint = str(world.folder / f"commits-{query}")
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
            before = [on_cpu_s(pid) for pid in pids]
            began = time.monotonic()
            coordinator.decide(plan, votes)
            ended = time.monotonic()
            after = [on_cpu_s(pid) for pid in pids]
            if epoch:
                spent = [(end - begin) * 1000 for begin, end in zip(before, after, strict=True)]
                found.append(
                    {
                        "decide_ms": (ended - began) * 1000,
                        "cpu_broker_ms": spent[0],
                        "cpu_own_ms": spent[1],
                        **_phases(watched, began),
                    }
                )
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
    return run_slot(sink, plan, context, [pa.RecordBatch.from_pydict({"value": values})])


def _phases(watched: list[tuple[str, float]], began: float) -> dict[str, float]:
    """Give how long after its begin each kind of step was taken for the last time, in ms. Pure."""
    last = dict(watched)
    return {f"until_{kind}_ms": (moment - began) * 1000 for kind, moment in last.items()}
