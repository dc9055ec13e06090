"""A pipeline whose rows go to a broker, which has no recording: a job is killed at an operation, and the power cut.

One world goes through cut after cut. Between two of them the query runs to its end and the auditor looks.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from onceonly_proof.handover import until
from onceonly_proof.power import plan, recording
from onceonly_proof.power.audits import judge
from onceonly_proof.power.tree import STYLES, Keep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly_proof.power.outcome import Found
    from onceonly_proof.power.stage import Stage, World
    from onceonly_proof.power.task import Pipeline

_WORLD_MAX = 40


def cuts(stage: Stage, pipeline: Pipeline, found: Found, *, seed: int) -> Iterator[bool]:
    """Yield True after each cut, as no recording is to be finished, until something is wrong or the world is old.

    A life never does quite what the one before did, so each strikes at a kind of operation that was not hit yet.
    """
    draw = random.Random(seed)  # noqa: S311  a seeded choice
    world = stage.world(pipeline)
    # The first life is not struck: it shows which operations there are to strike at.
    begun = stage.disk.count()
    span = _live(stage, world, None)
    kinds = _kinds(stage, begun)[:span]
    found.operations |= set(kinds)
    found.recordings += 1
    found.ordinals += span
    hit: set[int] = set()
    before = found.ordinals_hit
    for number in range(_WORLD_MAX):
        begun = stage.disk.count()
        left = [each for each in range(span) if each not in hit] or list(range(span))
        at = draw.choice([each for each in left if kinds[each] not in found.operations_hit] or left)
        _live(stage, world, begun + at)
        said = _kinds(stage, begun)
        keep = Keep(STYLES[number % len(STYLES)], draw.randrange(1_000))
        stage.disk.cut(keep)
        world.feed(1, early=True)
        healing = world.task(files=1 + number % 3, epochs=2)
        done = stage.life(world.pipeline).run(healing)
        judged = judge(healing, world.values, drained=done.ok)
        hit.add(at)
        found.ordinals_hit = before + len(hit)
        found.operations |= set(said)
        found.operations_hit |= set(said[-1:])
        where = f"cut after {said[-1] if said else 'nothing'}, {keep.style} {keep.seed}"
        found.add(where, done, judged, cuts=1)
        yield True
        if not done.ok or judged.bad:
            return


def _kinds(stage: Stage, begun: int) -> list[str]:
    """Return what the disk has been asked for since ``begun``, by kinds."""
    stage.disk.save(stage.recording)
    return plan.words(*recording.load(stage.recording))[begun:]


def _live(stage: Stage, world: World, at: int | None) -> int:
    """Let a job run the query over more input, and kill it before an operation; return the number of operations."""
    world.feed(2)
    life = stage.life(world.pipeline)
    life.wait_ready()
    begun = stage.disk.count()
    if at is not None:
        stage.disk.strike(at, life.session)
    task = world.task(epochs=3)
    life.give(task)
    until(lambda: life.done() or stage.disk.is_off(), task.limit_s)
    count = stage.disk.count() - begun
    if at is not None:
        # Also where it did less than that before it ended.
        life.process.kill()
    return count
