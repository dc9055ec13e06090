"""The runs of the picture "a crash at any step", one for each crash point, and two that nobody kills.

Each run has a world of its own: ``chk-0`` goes through, in ``chk-1`` the job stands at the crash point and its whole
process tree is killed, and the next life goes on to the end. Blocks for half a minute each.
"""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING

from onceonly import failpoints
from onceonly_proof.handover import until
from onceonly_proof.textbook.values import Crash, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from onceonly_proof.textbook.world import Running, World

EPOCH = 1
"""The one that is killed in."""
EVEN = (tuple(f"a{n}" for n in range(6)), tuple(f"b{n}" for n in range(6)))
"""The rows of who is killed, by the partition that they go into: each slot has two, whichever partition it gets."""
UNEVEN = (tuple(f"a{n}" for n in range(9)), tuple(f"b{n}" for n in range(5)))
"""Those of who is not: a barrier is not at the same offset of both."""
PER_EPOCH = 4
_QUIET_S = 0.5
_QUIET_MAX_S = 20.0
_FIRST = {
    "plan.after_claim": "link.before_put",
    "plan.before_recommit": "link.after_put",
    "plan.after_recommit": "link.after_put",
}
"""Steps of recovery, and the kill that makes it necessary."""
_SLOTS = ("slot.begun", "slot.prepared", "slot.voted", "slot.failed")
_KINDS = (
    *("epoch.planned", *_SLOTS, "votes.collected", "link.persisted", "handle.committed", "handle.resolved"),
    *("handle.aborted", "swept", "epoch.completed", "receipt.persisted", "epoch.done", "epoch.aborted"),
)
"""What is kept of the event log."""
_RANK = {kind: place for place, kind in enumerate(_KINDS)}


def crash(world: World, point: str) -> Crash:
    """Record the run that is killed at a crash point. Raises ``SetupError`` where the job does not come to it."""
    _feed(world, EVEN)
    first = _FIRST.get(point, "")
    life = world.start(stop=EPOCH)
    life.stand()
    before = world.look(EPOCH)
    if first:
        _killed(world, life, first)
        life = world.start(stop=EPOCH)
        life.stand()
    _killed(world, life, point)
    between = world.look(EPOCH)
    world.start().until_over()
    return Crash(
        point=point,
        where=failpoints.NAMES[point],
        first=first,
        before=before,
        between=between,
        after=world.look(EPOCH),
        steps=tuple(steps(world)),
    )


def commits(world: World) -> tuple[Step, ...]:
    """Record a run that nobody kills."""
    _feed(world, UNEVEN)
    world.start().until_over()
    return tuple(steps(world))


def aborts(world: World) -> tuple[Step, ...]:
    """Record a run in which one of the two slots fails as often as Spark tries it: the other one's vote is void."""
    _feed(world, EVEN)
    life = world.start(stop=EPOCH)
    life.stand()
    point = "slot.before_prepare"
    # The slot that comes first is let through; the other one is tried four times.
    life.go(*(f"{point}=raise@{nth}#{nth}" for nth in range(2, 6)))
    life.until_over(fails=True)
    world.start().until_over()
    return tuple(steps(world))


def ranges(world: World) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return each epoch's range of each partition, as Spark has written them ahead."""
    found, start = [], [0] * len(UNEVEN)
    for epoch in world.numbers("offsets"):
        ends = [world.barrier(epoch)[partition] for partition in range(len(UNEVEN))]
        found.append(tuple(zip(start, ends, strict=True)))
        start = ends
    return tuple(found)


def steps(world: World) -> Iterator[Step]:
    """Yield the steps of the epoch, life by life. Slots run side by side: theirs are told in the order of slots."""
    for number, life in enumerate(world.lives, 1):
        lines = [line for line in world.events(number) if line["kind"] in _KINDS and line["epoch"] == EPOCH]
        yield from in_order(number, lines)
        if life.killed:
            yield Step(life=number, kind="killed", note=life.killed)


def in_order(life: int, lines: Iterable[Mapping[str, object]]) -> Iterator[Step]:
    """Yield the lines of one life as steps: those of several slots by their kind and slot, whoever was first. Pure."""
    told = [_step(life, line) for line in lines]
    for together, some in groupby(told, key=lambda step: _together(step.kind)):
        found = list(some)
        yield from sorted(found, key=lambda step: (_RANK[step.kind], step.slot)) if together else found


def _together(kind: str) -> str:
    return "slots" if kind in _SLOTS else kind if kind.startswith(("handle.", "swept")) else ""


def _step(life: int, line: Mapping[str, object]) -> Step:
    note = line.get("link") or line.get("outcome") or line.get("mode") or line.get("rows") or ""
    return Step(life=life, kind=str(line["kind"]), slot=int(str(line["slot"])), note=str(note))


def _feed(world: World, partitions: tuple[tuple[str, ...], ...]) -> None:
    world.feed([[(row, row) for row in rows] for rows in partitions])


def _killed(world: World, life: Running, point: str) -> None:
    """Let a life run to a crash point, and kill it when nothing else of it moves any more."""
    life.go(f"{point}=pause")
    life.until(lambda: life.has_fired(point), f"at {point}")
    _quiet(lambda: len(world.events(life.told.life)))
    life.kill(point)


def _quiet(count: Callable[[], int]) -> None:
    """Wait until a number stands still: what runs beside the step that is paused comes to its end."""
    seen, since = count(), time.monotonic()

    def is_quiet() -> bool:
        nonlocal seen, since
        now = count()
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > _QUIET_S

    until(is_quiet, _QUIET_MAX_S)
