"""What the performance page says of the comparison of sinks. Pure."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.sinks.values import ASKED, CONTENDERS, OURS, ROW_BYTES
from onceonly_proof.campaign import marks

if TYPE_CHECKING:
    from benchmarks.sinks.values import Asked, Sinks

RECORD = Path("docs/proof/sinks.json")
"""Relative to the project's folder."""
_WHAT = (
    "One Spark session writes the same epochs of rows of {} bytes, in two slots, with one contender after the other, "
    "in turns, each group on one server that waits for its disk at each commit. The first epoch of a run does not "
    "count. "
    "Rows a second, medians of {} runs, and how long an epoch takes; all rows were counted after each run."
)


def section(record: Sinks | None) -> str:
    """Return the section in Markdown; empty where nothing is recorded."""
    if record is None:
        return ""
    rounds = max(len(each.rows_per_s) for each in record.ran)
    missing = "".join(f"\n- `{group}` could not be run: {why}" for group, why in record.not_run.items())
    broken = [f"{each.group} {each.contender}" for each in record.ran if not each.whole]
    where = marks.recorded_on(record.machine, [record.versions.get("commit", "")], record=RECORD)
    wrong = f"\n\n**Not whole: {', '.join(broken)}.**" if broken else ""
    return (
        f"## Sinks beside others\n\n{_WHAT.format(ROW_BYTES, rounds)}\n\n"
        f"Recorded by `{record.command}` on {record.started[:10]} in {record.seconds / 60:.0f} minutes "
        f"{where}{missing}{wrong}\n\n{table(record)}"
    )


def table(record: Sinks) -> str:
    """Return the figures, and the ratios that are asked for."""
    lines = ["| group | contender | rows | rows/s | epoch, ms | |", "|---|---|--:|--:|--:|---|"]
    medians = {(each.group, each.contender): statistics.median(each.rows_per_s) for each in record.ran}
    for each in record.ran:
        of = next(
            (asked for asked in ASKED if (asked.group, asked.theirs) == (each.group, each.contender)), None
        )
        ours = medians[each.group, OURS]
        told = "" if of is None else _ratio(of, ours / medians[each.group, each.contender])
        cells = (
            each.group,
            CONTENDERS[each.contender],
            f"{each.rows:,}",
            f"{medians[each.group, each.contender]:,.0f}",
            f"{each.epoch_ms:,.0f}",
            told,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(asked: Asked, value: float) -> str:
    bound = (
        ""
        if asked.at_least is None
        else f" (aim: ≥ {asked.at_least:g}{'' if value >= asked.at_least else ', missed'})"
    )
    return f"ours: **{value:.2f}** times{bound}"
