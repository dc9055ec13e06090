"""The power-loss campaign: pipeline after pipeline, cut after cut, until so many are made or the time is over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from onceonly_proof.campaign.machine import machine, versions
from onceonly_proof.power import outcome, recorded, struck
from onceonly_proof.power.stage import Stage
from onceonly_proof.power.task import PIPELINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceonly_proof.power.outcome import Found, Result
    from onceonly_proof.power.task import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOptions:
    """What is run. ``states`` are tried of a pipeline before the next has its turn, more until every ordinal was hit.

    ``cuts`` bounds the states that were tried: of cuts that leave the same files, one counts.
    """

    pipelines: tuple[Pipeline, ...] = PIPELINES
    cuts: int | None = None
    minutes: float | None = None
    seed: int = 1
    json: Path | None = None
    states: int = 20


def run_power(options: PowerOptions, say: Callable[[str], None]) -> Result:
    """Run it, write the result after each state, and return it. Needs the right to mount, Java and PySpark.

    Raises:
        SetupError: the machine or the user lacks something.
    """
    result = outcome.read(options.json) if options.json else outcome.Result()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    result.begun = result.begun or now
    result.machine, result.versions = machine(), versions()
    result.commits = sorted({*result.commits, result.versions["commit"]})
    result.seeds = sorted({*result.seeds, options.seed})
    begun, minutes = time.monotonic(), result.minutes

    def is_over() -> bool:
        passed = (time.monotonic() - begun) / 60
        result.minutes = round(minutes + passed, 1)
        result.ended = datetime.now(UTC).isoformat(timespec="seconds")
        if options.json:
            outcome.write(options.json, result)
        enough = options.cuts is not None and result.states >= options.cuts
        return enough or (options.minutes is not None and passed >= options.minutes)

    brokers = any("kafka" in (pipeline.source, pipeline.sink) for pipeline in options.pipelines)
    with Stage(broker=brokers) as stage:
        turn = 0
        while True:
            # Those that have seen the fewest states go first, so that one that goes on is gone on with evenly.
            pipeline = min(options.pipelines, key=lambda each: (result.pipeline(each.name).states, each))
            found = result.pipeline(pipeline.name)
            way = recorded if pipeline.sink == "files" else struck
            turn += 1
            for number, is_covered in enumerate(
                way.cuts(stage, pipeline, found, seed=options.seed + turn), 1
            ):
                say(_line(result, found))
                if is_over():
                    return result
                if is_covered and number >= options.states:
                    break


def _line(result: Result, found: Found) -> str:
    return (
        f"{result.states:,} states | {found.pipeline}: {found.states} of {found.cuts:,} cuts,"
        f" ordinals {found.ordinals_hit} of {found.ordinals}, lost {found.lost}, doubled {found.doubled},"
        f" by hand {found.by_hand}"
    )
