"""Decides, from a seed, what a round feeds and which faults strike it. Pure: the same seed gives the same plan."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.model import Guarantee
from onceonly_proof.campaign import queries
from onceonly_proof.campaign.kinds import KINDS
from onceonly_proof.campaign.way import KAFKA, ONCE, PRINTED, way
from onceonly_proof.campaign.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly_proof.campaign.fault import Fault
    from onceonly_proof.campaign.kinds import Kind

FAULTS_MIN, FAULTS_MAX = 15, 40
OWN_WITHIN = 20
"""Within so many crashes, whatever is a source's own has died at each of its points."""
_GAP_MAX_S = 0.3
_AT_STEPS = "kill driver at"
LIMITS_S = (None, None, 120.0, 600.0)
"""What an epoch may take. Those of a campaign take a second or two, and half a minute where a job starts on a machine
that is busy: so a limit is armed, and is hit only where something has gone wrong."""
# Without a decision that handles wait for, there is nothing to commit again, and nothing to commit at all.
_RECOVERY = frozenset({"plan.before_recommit", "plan.after_recommit"})
_NOT_PASSED = {
    Guarantee.EXACTLY_ONCE: frozenset[str](),
    Guarantee.AT_MOST_ONCE: _RECOVERY,
    Guarantee.AT_LEAST_ONCE: _RECOVERY | {"commit.before_handle", "commit.after_handle", "complete.before"},
}


@dataclass(frozen=True, slots=True)
class Blow:
    """A fault, and how long the job runs undisturbed before it is armed."""

    gap_s: float
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One round. A shorter one is a prefix of it: ``blows`` do not depend on how many of them are carried out."""

    seed: int
    number: int
    connector: str
    dear: bool
    each: bool
    workload: Workload
    blows: tuple[Blow, ...]
    limit_s: float | None
    """How long an epoch may take, from its plan to its decision."""
    query: str = queries.UNCHANGED
    """What the query does with the rows."""
    source: str = KAFKA
    """What it reads."""


def plan_round(  # noqa: PLR0913  one keyword for each thing that is asked for
    seed: int,
    number: int,
    connector: str,
    *,
    kinds: Mapping[str, Kind] = KINDS,
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    dear: bool = True,
    each: bool = False,
    query: str = "",
    served: bool = False,
    dies: bool = True,
    source: str = KAFKA,
    executors: bool = False,
    speculation: bool = False,
    early: bool = False,
) -> Plan:
    """Draw a round. ``dear`` takes in the faults that cost seconds instead of one; ``each`` is one of every kind.

    ``query`` is drawn, too, where it is not given, for what is exactly once. ``served`` says that the checkpoint is on
    a store that has servers, ``dies`` that these can be killed, ``executors`` that they are processes of their own,
    ``speculation`` that Spark starts second attempts there, ``early`` that rows by key are seen before they are
    decided.
    """
    is_kafka = source == KAFKA
    if not query:
        is_drawn = guarantee is Guarantee.EXACTLY_ONCE
        query = queries.draw(seed, number, connector, source) if is_drawn else queries.UNCHANGED
    draws = f"{seed}/{number}/{way(source, connector)}"
    draw = random.Random(draws)
    workload = queries.adapt(Workload.draw(draw), query)
    if early and ONCE.intersection(connector.split("+")):
        workload = workload.once()
    if PRINTED in connector.split("+"):
        workload = workload.printed()
    offered = {
        name: kind
        for name, kind in kinds.items()
        if (dear or not kind.dear)
        and ((served and dies) or not kind.served)
        and not (served and kind.folder)
        and kind.query in {"", query}
        and (not kind.sources or source in kind.sources)
        and (executors or not kind.executors)
        and (speculation or not kind.speculation)
        and not (kind.rows and query == queries.WINDOW)
        and (not kind.broker or is_kafka or "kafka" in connector.split("+"))
        and kind.points(connector)
    }
    decks: dict[str, list[str]] = {name: [] for name in offered}

    def deal(name: str, draw: random.Random) -> Blow:
        kind, deck = offered[name], decks[name]
        if not deck:
            # Every point once, before one comes again.
            deck += [
                point
                for point in kind.points(connector)
                if point.partition("[")[0] not in _NOT_PASSED[guarantee]
            ]
            draw.shuffle(deck)
        return Blow(draw.uniform(0, _GAP_MAX_S), kind.draw(draw, deck.pop()))

    first = {name: kind for name, kind in offered.items() if not kind.later}
    names = _order(first, draw, each=each)
    if connector.count("+") > 1 and _AT_STEPS in first and not each:
        # Under the decision of many sinks all but the slots is the driver: it dies at every step once a round.
        names += [_AT_STEPS] * len(first[_AT_STEPS].points(connector))
        draw.shuffle(names)
    if (executors or not is_kafka) and not each:
        names = _own_first(first, names, random.Random(f"{draws}/own"), connector)
    blows = [deal(name, draw) for name in names]
    # From numbers of their own, and behind: what the seed has always given stays as it was.
    apart = random.Random(f"{draws}/later")
    blows += [deal(name, apart) for name in _later(offered, len(blows), apart, each=each)]
    return Plan(
        seed=seed,
        number=number,
        connector=connector,
        dear=dear,
        each=each,
        workload=workload,
        blows=tuple(blows),
        # From numbers of its own: what the seed has always given stays as it was.
        limit_s=random.Random(f"{draws}/limit").choice(LIMITS_S),
        query=query,
        source=source,
    )


def _own_first(kinds: Mapping[str, Kind], names: list[str], draw: random.Random, connector: str) -> list[str]:
    """Put what is a source's or an executor's own among the first, once for each of its points.

    By weight alone some rounds lack it.
    """
    own = [
        name for name, kind in kinds.items() if kind.sources or kind.executors for _ in kind.points(connector)
    ]
    # Where another fault has to lead to one, two die.
    beside = max(OWN_WITHIN - len(own), 0) // 2
    head = [*own, *names[:beside]]
    draw.shuffle(head)
    return [*head, *names[beside:]][:FAULTS_MAX]


def _later(kinds: Mapping[str, Kind], count: int, draw: random.Random, *, each: bool) -> list[str]:
    """Return the later kinds, each as often as its weight among all gives it beside ``count`` others."""
    total = sum(kind.weight for kind in kinds.values() if not kind.later)
    names = []
    for name, kind in kinds.items():
        if kind.later:
            share = count * kind.weight / total if total else 1.0
            names += [name] * (1 if each else int(share + draw.random()))
    return names if each else names[: max(FAULTS_MAX - count, 0)]


def _order(kinds: Mapping[str, Kind], draw: random.Random, *, each: bool) -> list[str]:
    names = list(kinds)
    if each:
        return draw.sample(names, len(names))
    return draw.choices(
        names, [kind.weight for kind in kinds.values()], k=draw.randint(FAULTS_MIN, FAULTS_MAX)
    )
