"""Which step could know of which: vector clocks over the steps of a view, or over the lines of an event log. Pure.

A vote knows of its plan, a link of its votes, and whoever works on the log of what stands in it. Clocks of machines
decide nothing but the order of what does not know of each other.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from onceonly.view.values import DRIVER, EXECUTORS, Mark, What

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onceonly.view.values import View

_SPINE: Final = frozenset({
    What.PLAN, What.DECISION, What.ABORT, What.SKIPPED, What.RECEIPT, What.FOLDED,
})  # fmt: skip
_WRITTEN: Final = frozenset({"link.persisted", "receipt.persisted"})


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a process; its clock counts the steps of each process that it knows of, its own among them."""

    process: str
    told: str
    clock: Mapping[str, int]


@dataclass(slots=True)
class _Known:
    """What each process knows so far."""

    _clocks: dict[str, dict[str, int]] = field(default_factory=dict)

    def step(self, process: str, told: str, knows: Iterable[Step | None]) -> Step:
        clock = self._clocks.setdefault(process, {})
        for step in knows:
            for name, count in step.clock.items() if step is not None else ():
                clock[name] = max(clock.get(name, 0), count)
        clock[process] = clock.get(process, 0) + 1
        return Step(process, " ".join(told.split()), dict(clock))


def of_view(view: View) -> list[Step]:
    """Return what the log tells, in its order. When one transaction was committed, it does not."""
    known, steps = _Known(), []
    newest: Step | None = None
    for epoch in view.epochs:
        plans: dict[str, Step] = {}
        votes: dict[str, list[Step]] = defaultdict(list)
        for mark in epoch.marks:
            told = f"{epoch.name} {mark.what}: {mark.told}"
            if mark.what is What.VOTE:
                steps.append(known.step(_process(mark), told, [plans.get(mark.record)]))
                votes[mark.record].append(steps[-1])
            elif mark.what in _SPINE:
                newest = known.step(_process(mark), told, [newest, *votes[mark.record]])
                steps.append(newest)
                if mark.what is What.PLAN:
                    plans[mark.record] = newest
    return steps


def _process(mark: Mark) -> str:
    lane = {DRIVER: "driver", EXECUTORS: f"executor-of-slot-{mark.slot}"}[mark.lane]
    return re.sub(r"\s+", "-", mark.by.removeprefix("process ")) or lane


def of_events(lines: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Return what the event log tells: each process in the order of its own lines."""
    known, steps = _Known(), []
    planned: dict[str, Step] = {}
    votes: dict[str, list[Step]] = defaultdict(list)
    written: dict[int, Step] = {}
    for line in _ordered(lines):
        kind, plan, epoch = str(line["kind"]), str(line.get("plan", "")), int(line["epoch"])
        knows: list[Step | None] = [planned.get(plan)]
        if line["actor"] != "executor":
            knows += votes[plan]
            # Whoever plans an epoch has read the links of it, and of the one before.
            knows += (
                [written.get(epoch - 1), written.get(epoch)] if kind in {"plan.started", *_WRITTEN} else []
            )
        step = known.step(f"{line['actor']}-{line['incarnation']}", _told(line), knows)
        steps.append(step)
        if kind == "epoch.planned":
            planned[plan] = step
        elif kind == "slot.voted":
            votes[plan].append(step)
        elif kind in _WRITTEN:
            written[epoch] = step
    return steps


def _told(line: Mapping[str, Any]) -> str:
    shown = ("sink", "slot", "link", "transaction", "outcome", "mode")
    more = " ".join(f"{name}={line[name]}" for name in shown if line.get(name) not in {None, "", -1})
    return f"chk-{line['epoch']} {line['kind']} {more}".replace("chk--1 ", "").strip()


def _ordered(lines: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Merge the processes' lines by their clocks, but never one of a slot before the plan that it speaks of."""
    queues: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
    for line in sorted(lines, key=lambda line: int(line["seq"])):
        queues[str(line["incarnation"])].append(line)
    waiting = {str(line["plan"]) for line in lines if line["kind"] == "epoch.planned" and line.get("plan")}
    while queues:
        heads = {name: queue[0] for name, queue in queues.items()}
        free = {
            name: head for name, head in heads.items()
            if head["actor"] != "executor" or str(head.get("plan", "")) not in waiting
        }  # fmt: skip
        name = min(free or heads, key=lambda name: float(heads[name]["t"]))
        line = queues[name].popleft()
        if not queues[name]:
            del queues[name]
        if line["kind"] == "epoch.planned":
            waiting.discard(str(line.get("plan", "")))
        yield line
