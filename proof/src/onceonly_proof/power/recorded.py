"""A pipeline whose whole world lies on the disk: one run is recorded, and the power is cut in it as often as one likes.

What a killed process tree leaves is what it had done until then, so the state after a cut at the n-th operation needs
no kill: it is the first n operations of the recording, less what the cut forgets. The query then starts on it, in a job
that runs one such query after the other.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from onceonly.errors import SetupError
from onceonly_proof.power import plan, recording, workers
from onceonly_proof.power.audits import judge
from onceonly_proof.power.tree import STYLES, Keep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly_proof.power.outcome import Found
    from onceonly_proof.power.stage import Stage, World
    from onceonly_proof.power.task import Pipeline, Task

_EPOCHS = 4
_LATE_FILES = 2
# Every so many states the recovery is cut, too.
_AGAIN = 3
# Every so many states a worker dies in the recovery.
_DEATH = 4
# Every so many states the query is rescaled after its recovery, where Spark can do that.
_RESCALE = 12
_PARTITIONS_MIN = 3


def cuts(stage: Stage, pipeline: Pipeline, found: Found, *, seed: int) -> Iterator[bool]:
    """Record a run, then try one state after the other; yield after each whether every ordinal of the run was hit.

    Raises:
        SetupError: the query did not run even without a cut.
    """
    world = stage.world(pipeline)
    world.feed(_EPOCHS)
    is_second = found.recordings % 2 == 1
    death = workers.death(random.Random(seed)) if is_second else ""  # noqa: S311  a seeded choice
    if is_second and pipeline.can_rescale:
        _run(stage, world, found, world.task(epochs=_EPOCHS))
        _run(stage, world, found, world.task(rescale=_PARTITIONS_MIN + 2))
        found.rescales += 1
        # Whoever types it sees that it is durable before the query goes on: Spark's repartition syncs nothing.
        stage.disk.restore(stage.recording, at=stage.disk.save(stage.recording), keep=Keep("all", 0))
        world.feed(_EPOCHS)
    _run(stage, world, found, world.task(epochs=_EPOCHS), death=death)
    count = stage.disk.save(stage.recording)
    # What comes next says that it is older: a barrier that names no files would now mean others.
    world.feed(_LATE_FILES, early=True)
    base, ops = recording.load(stage.recording)
    said = plan.words(base, ops)
    found.recordings += 1
    found.ordinals += count + 1
    found.operations |= set(said)
    hit: set[int] = set()
    before = found.ordinals_hit
    for state in plan.states(base, ops, seed=seed):
        _try(stage, world, found, state, said)
        hit |= {cut.at for cut in state.cuts}
        found.ordinals_hit = before + len(hit)
        found.operations_hit |= {said[cut.at - 1] for cut in state.cuts if cut.at}
        yield len(hit) == count + 1


def _run(stage: Stage, world: World, found: Found, task: Task, *, death: str = "") -> None:
    """Run the query to its end without a cut; a worker may die."""
    life = stage.life(world.pipeline)
    with workers.dying(life, found, death):
        done = life.run(task)
    if not done.ok:
        raise SetupError(
            f"the query {world.pipeline.name} failed without a power cut: {done.code} {done.what}",
            next_step="see that it runs on an ordinary disk",
        )


def _try(stage: Stage, world: World, found: Found, state: plan.State, said: list[str]) -> None:
    cut = state.first
    stage.disk.restore(stage.recording, at=cut.at, keep=cut.keep)
    where = (
        f"cut {cut.at} ({said[cut.at - 1] if cut.at else 'nothing done'}), {cut.keep.style} {cut.keep.seed}"
    )
    if not _recover(stage, world, found, cut, where, cuts=len(state.cuts)):
        return
    if world.pipeline.can_rescale and found.states % _RESCALE == 0:
        _rescale(stage, world, found, where)
    elif found.states % _AGAIN == 0:
        _cut_again(stage, world, found, cut, where)


def _cut_again(stage: Stage, world: World, found: Found, cut: plan.Cut, where: str) -> None:
    """Let the power fail in the recovery, too."""
    draw = random.Random(cut.at)  # noqa: S311  a seeded choice
    count = stage.disk.save(stage.recovery)
    again = plan.Cut(draw.randrange(count + 1), Keep(draw.choice(STYLES), cut.at))
    stage.disk.restore(stage.recovery, at=again.at, keep=again.keep)
    where += f", and in the recovery at {again.at} of {count}, {again.keep.style} {again.keep.seed}"
    _recover(stage, world, found, again, where, cuts=1)


def _rescale(stage: Stage, world: World, found: Found, where: str) -> None:
    """Deal the state of a query that has come to its end to more partitions, and let it go on over new input.

    Some of it has come before, which only the state knows.
    """
    world.feed(1)
    task = world.task(rescale=_PARTITIONS_MIN + found.rescales % 2)
    done = stage.life(world.pipeline).run(task)
    found.rescales += 1
    found.add(f"{where}, rescaled", done, judge(task, world.values, drained=done.ok), cuts=0)


def _recover(stage: Stage, world: World, found: Found, cut: plan.Cut, where: str, *, cuts: int) -> bool:
    """Start the query on what is there, judge it at its end, and count it; say whether all is well."""
    # Epochs of another size than before: what is planned anew is not what was planned.
    task = world.task(files=1 + (cut.at + cut.keep.seed) % 3, epochs=2)
    draw = random.Random(cut.at + cut.keep.seed)  # noqa: S311  a seeded choice
    death = workers.death(draw) if found.states % _DEATH == _DEATH - 1 else ""
    where += f", {death}" if death else ""
    life = stage.life(world.pipeline)
    with workers.dying(life, found, death):
        done = life.run(task)
    judged = judge(task, world.values, drained=done.ok)
    found.add(where, done, judged, cuts=cuts)
    return done.ok and not judged.bad
