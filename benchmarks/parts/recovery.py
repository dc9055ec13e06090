"""Recovery: the measurement that ``onceonly verify recovery`` does, taken over as figures of both sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from benchmarks.values import ONCEONLY_EO, SPARK_TUNED, Measured
from onceonly_proof.campaign.recovery import OURS, SPARKS
from onceonly_proof.campaign.recovery_run import RecoveryOptions, run_recovery

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.values import Run
    from onceonly_proof.campaign.recovery import Recovery

# Both of its jobs have our settings.
_NAMES = {OURS: ONCEONLY_EO, SPARKS: SPARK_TUNED}


def measure(run: Run, kills: int, say: Callable[[str], None]) -> list[Measured]:
    """Kill each sink's job so many times, and give a result for each sink."""
    return taken_over(run_recovery(RecoveryOptions(kills=kills), say), run)


def taken_over(found: Recovery, run: Run) -> list[Measured]:
    """Return its figures as ours. Pure. Rows visible again are what at least once allows, and are not judged here."""
    return [
        Measured(
            run=msgspec.structs.replace(run, contender=_NAMES[line.sink]),
            outcome="whole" if found.verdict == "measured" else "failed",
            why="; ".join(found.why),
            figures={
                "kills": float(line.kills),
                "recovery_median_s": line.median_s,
                "recovery_worst_s": line.worst_s,
                "query_median_s": line.query_median_s,
                "query_worst_s": line.query_worst_s,
                "rows_again": float(line.again),
            },
        )
        for line in found.table
    ]
