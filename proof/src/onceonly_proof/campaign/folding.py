"""Everything that follows from a campaign's rounds: sums, the guarantee matrix, the verdict. Pure; no I/O."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from onceonly.model import Guarantee
from onceonly_proof.auditor.anomalies import ALLOWED, SEEN_EARLY, Anomaly
from onceonly_proof.campaign.values import VERSION, Counts, Result, Round, Row, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_EXAMPLES_MAX = 20
_NAMES = {str(anomaly): 0 for anomaly in Anomaly}


def fold(
    rounds: Iterable[Round],
    *,
    seed: int,
    machine: Mapping[str, str | int | float],
    versions: Mapping[str, str],
) -> Result:
    """Make a report of rounds. Pure; the order does not matter, and the same round twice is one."""
    every = _ordered(rounds)
    word, why = verdict(every)
    return Result(
        version=VERSION,
        verdict=word,
        why=why,
        seed=seed,
        crashes=sum(each.crashes for each in every),
        faults=total(each.faults for each in every),
        armed=total(each.armed for each in every),
        anomalies=_found(every),
        allowed=total(each.allowed for each in every),
        examples=tuple(f"{each.name} ({each.way}): {example}" for each in every for example in each.examples)[
            :_EXAMPLES_MAX
        ],
        traces=total({str(each.trace): 1} for each in every if each.trace),
        matrix=matrix(every),
        rounds=every,
        machine=machine,
        versions=versions,
    )


def add(result: Result, done: Round) -> Result:
    """Return the report with one more round."""
    return refold(result, (*result.rounds, done))


def matrix(rounds: Iterable[Round]) -> tuple[Row, ...]:
    """Sum up the rounds of each connector under each guarantee. Pure; sorted by guarantee, then connector."""
    groups: dict[tuple[str, ...], list[Round]] = {}
    for each in _ordered(rounds):
        name = (
            *(each.guarantee, each.connector, each.visible, each.source),
            *(each.other_store, each.other_broker, each.other_query),
        )
        groups.setdefault(name, []).append(each)
    # Exactly-once, the promise that people look for, comes first.
    order = sorted(groups, key=lambda group: (group[0] != "exactly-once", group))
    return tuple(_row(groups[group]) for group in order)


def verdict(rounds: Iterable[Round]) -> tuple[Verdict, tuple[str, ...]]:
    """Judge: anomalies before inconclusive before clean, and why it is not clean. Pure.

    Inconclusive is a fault that was armed and did not fire, an audit that was not done or saw no row, a connector
    that no fault has crashed, and a report without a round.
    """
    every = _ordered(rounds)
    if not every:
        return "inconclusive", ("no round has been run",)
    found = {name: count for name, count in _found(every).items() if count}
    why = [f"{count:,} {name.replace('_', ' ')}" for name, count in found.items()]
    why += [
        f"{row.way}, {row.promise}: no process has died, so nothing is proven"
        for row in matrix(every)
        if row.crashes == 0
    ]
    rejected = sum(each.trace == "rejected" for each in every)
    if rejected:
        why.insert(0, f"event logs that the model rejects: {rejected:,}")
    why += [doubt for each in every for doubt in each.doubts]
    if found or rejected:
        return "anomalies", tuple(why)
    return ("inconclusive" if why else "clean"), tuple(why)


def total(counts: Iterable[Counts]) -> dict[str, int]:
    """Add up counts by name; every name stays, zero too. Sorted, so that files differ only where figures do."""
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return dict(sorted(found.items()))


def split(
    found: Counts | Mapping[Anomaly, int], guarantee: str, *, early: bool = False
) -> tuple[dict[str, int], dict[str, int]]:
    """Part what the auditor counted into a round's ``anomalies`` (zero too) and ``allowed`` (only what there was)."""
    allowed = {str(each) for each in ALLOWED[Guarantee(guarantee)] | (SEEN_EARLY if early else set())}
    broken = {str(name): count for name, count in found.items() if name not in allowed}
    return {**_NAMES, **broken}, {
        str(name): count for name, count in found.items() if name in allowed and count
    }


def listed(counts: Counts) -> str:
    """Name what is not zero, the most frequent first: ``lost 3, duplicated 1``. Empty where all is zero."""
    found = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in found if count)


def spread(seconds: Iterable[float]) -> tuple[float, float] | tuple[None, None]:
    """Return the median and the worst of some times; none of none."""
    values = list(seconds)
    return (statistics.median(values), max(values)) if values else (None, None)


def next_number(result: Result, seed: int) -> int:
    """Return the number of the next round of a seed: where an interrupted campaign goes on."""
    return max((each.number for each in result.rounds if each.seed == seed), default=0) + 1


def _found(rounds: Iterable[Round]) -> dict[str, int]:
    return total([_NAMES, *(each.anomalies for each in rounds)])


def _row(rounds: list[Round]) -> Row:
    crashes = sum(each.crashes for each in rounds)
    verdicts = {each.verdict for each in rounds} | ({"inconclusive"} if crashes == 0 else set())
    worst: Verdict = "clean"
    if "anomalies" in verdicts:
        worst = "anomalies"
    elif "inconclusive" in verdicts:
        worst = "inconclusive"
    return Row(
        connector=rounds[0].connector,
        guarantee=rounds[0].guarantee,
        visible=rounds[0].visible,
        source=rounds[0].source,
        store=rounds[0].other_store,
        broker=rounds[0].other_broker,
        query=rounds[0].other_query,
        rounds=len(rounds),
        crashes=crashes,
        faults=total(each.faults for each in rounds),
        epochs=sum(each.epochs for each in rounds),
        rows=sum(each.rows for each in rounds),
        anomalies=_found(rounds),
        allowed=total(each.allowed for each in rounds),
        replays=sum(each.replays for each in rounds),
        never_taken=sum(each.never_taken for each in rounds),
        came_again=sum(each.came_again for each in rounds),
        globbed=total(each.globbed for each in rounds),
        looks=total(each.looks for each in rounds),
        asked=total(each.asked for each in rounds),
        verdict=worst,
    )


def _ordered(rounds: Iterable[Round]) -> tuple[Round, ...]:
    """Sort by time, and drop a round that is there twice: a file merged with itself is itself."""
    found: dict[tuple[str, int, int, str], list[Round]] = {}
    for each in rounds:
        same = found.setdefault((each.started, each.seed, each.number, each.way), [])
        if each not in same:
            same.append(each)
    return tuple(each for key in sorted(found) for each in sorted(found[key], key=_bytes))


def _bytes(each: Round) -> bytes:
    return msgspec.json.encode(each, order="deterministic")


def refold(result: Result, rounds: Iterable[Round]) -> Result:
    """Return a report of other rounds, with the seed, machine and versions of this one."""
    return fold(rounds, seed=result.seed, machine=result.machine, versions=result.versions)
