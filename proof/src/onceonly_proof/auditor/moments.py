"""What watching readers tell of moments: half an epoch, and a sink that lags behind by more than one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.auditor.anomalies import Anomaly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceonly_proof.auditor.lookup import Facts, Findings
    from onceonly_proof.auditor.world import Seen, World


def check_moments(world: World, facts: Facts, findings: Findings) -> None:
    """See that sinks which show whole epochs did so in each look, and had an epoch before any sink had a later one.

    Others may be read a while after they have changed, so that nothing is said of how far they lag.
    """
    if not world.whole:
        return
    told = list(_told(world, facts))
    looks: dict[str, dict[int, set[float]]] = {sink: {} for sink in sorted(world.whole)}
    for index, row in told:
        # Of folded epochs whose barriers are gone nobody can tell one from another.
        is_one = facts.decisions[index].first in {None, facts.decisions[index].epoch}
        if row.sink in looks and row.seen_s is not None and is_one:
            looks[row.sink].setdefault(index, set()).add(row.seen_s)
    for sink, epochs in looks.items():
        for index, moments in epochs.items():
            if len(moments) > 1:
                late_s = max(moments) - min(moments)
                findings.add(
                    Anomaly.HALF_EPOCH,
                    f"{sink} {facts.decisions[index].name}",
                    f"came in {len(moments)} parts, the last one {late_s:.3f} s after the first",
                )
    _check_lag(told, world, facts, findings)


def _check_lag(told: Sequence[tuple[int, Seen]], world: World, facts: Facts, findings: Findings) -> None:
    """See that no look lacked an epoch after a later one was seen anywhere: it was complete before that was planned."""
    first: dict[int, tuple[float, str]] = {}
    for index, row in told:
        if row.seen_s is not None:
            first[index] = min(first.get(index, (row.seen_s, row.sink)), (row.seen_s, row.sink))
    # By the earliest moment at which anything of a later epoch was seen.
    later: dict[int, tuple[float, str, int]] = {}
    soonest: tuple[float, str, int] | None = None
    for index in sorted(first, reverse=True):
        if soonest is not None:
            later[index] = soonest
        found = (*first[index], index)
        soonest = found if soonest is None else min(soonest, found)
    lagging: set[tuple[str, int]] = set()
    for index, row in told:
        if row.sink not in world.whole or row.unseen_s is None or (row.sink, index) in lagging:
            continue
        if index in later and row.unseen_s > later[index][0]:
            lagging.add((row.sink, index))
            moment, other, newer = later[index]
            findings.add(
                Anomaly.PARTIAL_EPOCH,
                f"{row.sink} lacked rows of {facts.decisions[index].name}",
                f"{row.unseen_s - moment:.3f} s after {other} had shown {facts.decisions[newer].name}",
            )


def _told(world: World, facts: Facts) -> Iterator[tuple[int, Seen]]:
    """Yield what was watched, with the place of its epoch among the decisions."""
    for row in world.during:
        known = facts.by_value.get(row.value) if row.value is not None else None
        index = facts.index_of(known) if known is not None else None
        if index is not None:
            yield index, row
