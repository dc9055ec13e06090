"""Decides, from a seed, at which steps and moments the job is killed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from onceonly import failpoints
from onceonly.model import Guarantee

RANDOM_MOMENT = "random moment"
# Passed only while a decided handle is committed again: the kill before must fall between link and receipt.
_RECOVERY = ("plan.before_recommit", "plan.after_recommit")
_DECIDED = ("link.after_put", "commit.before_handle", "commit.after_handle", "receipt.before_put")
# Passed once each time the job starts.
_AT_START = ("plan.after_claim",)
# How often a step is passed, at least, while both queries do one epoch each: the clean query has four slots, the
# other one has one in Kafka (or two) and one in the files.
_PASSES = {"slot": 5, "commit.before_handle": 5, "commit.after_handle": 5}
_PASSES_ELSE = 2
# Where no handle travels to Kafka, these are passed too seldom to be waited for, or never.
_NOT_PASSED = {
    Guarantee.EXACTLY_ONCE: (),
    Guarantee.AT_MOST_ONCE: _RECOVERY,
    Guarantee.AT_LEAST_ONCE: (
        *_RECOVERY,
        "commit.before_handle",
        "commit.after_handle",
        "complete.before",
    ),
}
# A kill between writing and the decision makes an at-least-once sink write the epoch again; one between the
# intent and the commit makes an at-most-once sink lose it. One such kill is always there, to show it.
_TELLING = {
    Guarantee.EXACTLY_ONCE: (),
    Guarantee.AT_LEAST_ONCE: ("slot.after_prepare", "link.before_put", "link.during_put"),
    Guarantee.AT_MOST_ONCE: ("link.after_put", "commit.before_handle"),
}
# The rest is room for the epochs that are run again and for the last life of the job.
_SHARE_OF_RUN = 0.7
_ONE_RANDOM_IN = 4
_DELAY_MAX_S = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One kill to be done.

    Armed: when ``step`` is passed for the ``nth`` time in this life of the job. At a random moment:
    ``delay_s`` after ``epochs`` epochs are done in this life.
    """

    step: str
    nth: int = 1
    epochs: int = 0
    delay_s: float = 0.0

    @property
    def is_armed(self) -> bool:
        return self.step != RANDOM_MOMENT

    @property
    def failpoint(self) -> str:
        """What ``ONCEONLY_FAILPOINTS`` is set to: the process stands still there until it is killed."""
        return f"{self.step}=pause@{self.nth}" if self.is_armed else ""


def plan_kills(count: int, *, epochs: int, guarantee: Guarantee, seed: int) -> list[Kill]:
    """Choose ``count`` kills for a run of ``epochs`` epochs a query. Pure; the same seed gives the same kills.

    Three of four are at armed steps, different ones until all are used up; the others at random moments.
    """
    draw = random.Random(seed)
    moments = count // _ONE_RANDOM_IN
    steps = _order(_choose(count - moments, guarantee, draw), draw)
    for _ in range(moments):
        _insert_moment(steps, draw)
    weights = [0.0 if _is_immediate(step) else draw.uniform(0.5, 1.5) for step in steps]
    unit = _SHARE_OF_RUN * epochs / max(sum(weights), 1.0)
    return [
        _kill(step, max(1, int(weight * unit)), draw) for step, weight in zip(steps, weights, strict=True)
    ]


def _choose(count: int, guarantee: Guarantee, draw: random.Random) -> list[str]:
    """Draw steps without repetition, and again from all of them when they are used up."""
    passed = [name for name in failpoints.EVERYWHERE if name not in _NOT_PASSED[guarantee]]
    chosen: list[str] = []
    while len(chosen) < count:
        chosen += draw.sample(passed, min(len(passed), count - len(chosen)))
    telling = _TELLING[guarantee]
    if telling and chosen and not set(chosen) & set(telling):
        chosen[0] = draw.choice(telling)
    if set(chosen) & set(_RECOVERY) and not set(chosen) & set(_DECIDED):
        others = [place for place, name in enumerate(chosen) if name not in _RECOVERY]
        if others:
            chosen[others[0]] = draw.choice(_DECIDED)
        else:
            chosen[0] = draw.choice(_DECIDED)
    return chosen


def _order(steps: list[str], draw: random.Random) -> list[str]:
    """Put each kill in recovery right after one that leaves something to recover."""
    recoveries = sorted((step for step in steps if step in _RECOVERY), key=_RECOVERY.index)
    ordered = [step for step in steps if step not in _RECOVERY]
    draw.shuffle(ordered)
    if recoveries:
        after = next(place for place, step in enumerate(ordered) if step in _DECIDED)
        ordered[after + 1 : after + 1] = recoveries
    return ordered


def _insert_moment(steps: list[str], draw: random.Random) -> None:
    """Put a random moment anywhere but between a kill and the kill in its recovery."""
    places = [
        place for place in range(len(steps) + 1) if steps[place : place + 1] not in [[r] for r in _RECOVERY]
    ]
    steps.insert(draw.choice(places), RANDOM_MOMENT)


def _is_immediate(step: str) -> bool:
    return step in _RECOVERY or step in _AT_START


def _kill(step: str, epochs: int, draw: random.Random) -> Kill:
    if step == RANDOM_MOMENT:
        return Kill(step=step, epochs=2 * epochs, delay_s=draw.uniform(0, _DELAY_MAX_S))
    if _is_immediate(step):
        return Kill(step=step)
    passes = _PASSES.get(step, _PASSES.get(step.partition(".")[0], _PASSES_ELSE))
    return Kill(step=step, nth=draw.randint(1, passes) + passes * (epochs - 1))
