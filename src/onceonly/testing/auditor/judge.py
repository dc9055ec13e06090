"""Judging a world: values in, named anomalies out. Pure, and linear in the number of rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.model import Guarantee
from onceonly.testing.auditor.anomalies import ALLOWED, Anomaly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.testing.auditor.world import World


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
    """Compare what is visible with what went in and with what was decided. Anywhere; pure."""
    counts: dict[Anomaly, int] = dict.fromkeys(Anomaly, 0)
    known = {each.value for each in world.inputs}
    for sink in world.sinks:
        seen = Counter(row.value for row in world.at_end if row.sink == sink)
        counts[Anomaly.LOST] += len(known - seen.keys())
        counts[Anomaly.DUPLICATED] += sum(count - 1 for count in seen.values() if count > 1)
        counts[Anomaly.FOREIGN] += sum(count for value, count in seen.items() if value not in known)
    return Verdict(guarantee=guarantee, anomalies=counts)
