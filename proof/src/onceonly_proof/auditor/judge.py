"""Judging a world: values in, named anomalies out. Pure, and linear in the number of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.model import Guarantee
from onceonly_proof.auditor.anomalies import ALLOWED, Anomaly
from onceonly_proof.auditor.epochs import check_epochs, check_log
from onceonly_proof.auditor.lookup import Facts, Findings, unknown_sink
from onceonly_proof.auditor.moments import check_moments
from onceonly_proof.auditor.visible import SinkCheck

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly_proof.auditor.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found: how often each anomaly, zeros too, and a few readable examples of each."""

    guarantee: Guarantee
    anomalies: Mapping[Anomaly, int] = field(default_factory=lambda: dict.fromkeys(Anomaly, 0))
    examples: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Say whether this is what the guarantee promises."""
        return not any(
            count for anomaly, count in self.anomalies.items() if anomaly not in ALLOWED[self.guarantee]
        )


def judge(world: World, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> Verdict:
    """Compare what is visible with what went in and with what was decided. Anywhere; pure.

    One defect may have several names: half a transaction of one of two sinks is torn, lost and a partial epoch.

    Raises:
        ConfigurationError: the world is none that can be judged, for example two inputs with the same value.
    """
    facts, findings = Facts(world), Findings()
    shown = {sink: SinkCheck(sink, world, facts, findings).run() for sink in world.sinks}
    for row in (*world.at_end, *world.during):
        if row.sink not in shown:
            raise unknown_sink(row.sink, world.sinks)
    check_epochs(world, facts, shown, findings)
    check_moments(world, facts, findings)
    check_log(world, facts, findings)
    for orphan in world.orphans:
        findings.add(Anomaly.ORPHAN, orphan.sink, orphan.what)
    return Verdict(guarantee=guarantee, anomalies=findings.counts, examples=findings.examples)
