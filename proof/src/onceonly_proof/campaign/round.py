"""One round: a query of its own under a plan of faults, drained, stopped, and audited."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from onceonly.errors import OnceonlyError
from onceonly_proof import traces
from onceonly_proof.auditor import judge
from onceonly_proof.auditor.log import replayed
from onceonly_proof.campaign import queries, result, speculating, watch, windows
from onceonly_proof.campaign.keeping import keep, remove
from onceonly_proof.campaign.making import make_task
from onceonly_proof.campaign.result import Round
from onceonly_proof.campaign.scene import Arena, Scene
from onceonly_proof.campaign.targets import by_sink
from onceonly_proof.campaign.watch import Watch
from onceonly_proof.campaign.way import KAFKA

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.model import Guarantee
    from onceonly_proof.auditor import Verdict, World
    from onceonly_proof.campaign.plan import Plan
    from onceonly_proof.campaign.values import Trace

_TRACE_TIMEOUT_S = 600.0


def run_round(
    arena: Arena, plan: Plan, guarantee: Guarantee, *, crashes_max: int | None = None
) -> tuple[Round, Path | None]:
    """Run a round until its plan is done or so many crashes have happened; audit it.

    Return the round, and the folder that is kept of it if it was not clean.
    """
    started, begun = datetime.now(UTC), time.monotonic()
    name = f"{plan.seed}-{plan.number}-{plan.connector.replace('+', '-')}"
    folder = arena.folder / f"round-{name}"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    task, flow = make_task(arena, plan, guarantee, name, folder)
    verdict: Verdict | None = None
    world: World | None = None
    not_audited = ""
    trace: Trace = ""
    stuck: tuple[str, ...] = ()
    rows = replays = never_taken = came_again = late = 0
    with ExitStack() as close:
        close.callback(flow.close)
        reader = Watch.begin(task, by_sink(task.connector, arena.targets))
        close.callback(reader.close)
        life = arena.lives.next(task)
        scene = Scene(arena, plan, guarantee, task, reader, flow, life, [life])
        try:
            scene.play(crashes_max)
            reader.close()
            arena.display.step = "audit"
            arena.store.copy(task.checkpoint, task.audited)
            world = watch.world(
                task,
                watch.inputs(task, flow),
                reader,
                scene.lives,
                scene.targets,
                flow.ends_of,
                drained=scene.is_drained,
            )
            scene.trouble += reader.blind(world.at_end)
            replays = replayed(task.audited)
            if arena.source is not None and arena.source.is_lossy:
                world, never_taken = watch.arrived(world)
            came_again = sum(map(len, flow.came_again.values()))
            if plan.query not in queries.DROPPING:
                world = watch.told_apart(world, flow.came_again)
            due, rows, late = windows.due(task, world)
            verdict = judge(watch.judged(task, due, is_ordered=flow.is_ordered), guarantee)
            if arena.trace:
                arena.display.step = "trace"
                trace, stuck = _held_against_the_model(folder / watch.EVENTS, scene)
        except OnceonlyError as error:
            not_audited = error.what
        finally:
            arena.points.disarm()
    anomalies, allowed = result.split(
        verdict.anomalies if verdict else {}, guarantee.value, early=bool(arena.visible)
    )
    examples = verdict.examples if verdict else ()
    done = Round(
        seed=plan.seed,
        number=plan.number,
        connector=plan.connector,
        guarantee=guarantee.value,
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(time.monotonic() - begun, 1),
        rows=rows,
        epochs=arena.store.newest(task.checkpoint, "commits") + 1,
        crashes=scene.crashes,
        armed=dict(scene.armed),
        faults=dict(scene.fired),
        anomalies=anomalies,
        allowed=allowed,
        # Of what the guarantee allows there may be many, and they are no findings.
        examples=(*stuck, *(each for each in examples if each.partition(":")[0] not in allowed)),
        recovery_s=tuple(scene.recovery_s),
        # A last line of a job may be many; a doubt is one.
        trouble=tuple(" ".join(text.split()) for text in scene.trouble),
        not_audited=not_audited,
        dear=plan.dear,
        each=plan.each,
        trace=trace,
        limit_s=plan.limit_s,
        visible=arena.visible,
        query=plan.query,
        broker=arena.broker,
        store=arena.store_kind,
        commit=arena.commit,
        source="" if arena.source_kind == KAFKA else arena.source_kind,
        replays=replays,
        never_taken=never_taken,
        came_again=came_again,
        globbed=reader.globbed(),
        late=late,
        looks=reader.looks(),
        asked=reader.asked(),
        executors=arena.executors,
        speculation=arena.speculation,
        second_attempts=sum(
            speculating.second_attempts(life.folder) for life in scene.lives if arena.speculation
        ),
    )
    if done.verdict == "clean":
        remove(arena, scene, folder)
        return done, None
    keep(arena, scene, folder, world)
    arena.kept.append(folder)
    return done, folder


def _held_against_the_model(events: Path, scene: Scene) -> tuple[Trace, tuple[str, ...]]:
    """Ask whether a behaviour of the model gives this event log; return the word, and what is not explained."""
    try:
        found = traces.validate(events, timeout_s=_TRACE_TIMEOUT_S)
    except (ValueError, TimeoutError) as error:
        scene.trouble.append(f"its event log could not be held against the model: {error}")
        return "unknown", ()
    stuck = tuple(str(verdict) for verdict in found if not verdict.accepted)
    return ("rejected" if stuck else "accepted"), stuck
