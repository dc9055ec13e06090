"""``python -m benchmarks.sinks.page RESULTS`` records a comparison in docs/proof, and writes the page that shows it."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.sinks.values import ASKED, CONTENDERS, OURS, ROW_BYTES, Sinks
from benchmarks.store import recorded
from onceonly_proof.campaign import marks

if TYPE_CHECKING:
    from benchmarks.sinks.values import Asked

RECORD, PAGE = Path("docs/proof/sinks.json"), Path("docs/explanation/sinks-beside-others.md")
"""Relative to the project's folder."""
MARKS = "figures"


def figures(record: Sinks | None) -> str:
    """Return what stands in the page. Pure."""
    if record is None:
        return marks.NONE
    rounds = max(len(each.rows_per_s) for each in record.ran)
    missing = "".join(f"- `{group}` could not be run: {why}\n" for group, why in record.not_run.items())
    broken = [f"{each.group} {each.contender}" for each in record.ran if not each.whole]
    where = marks.recorded_on(record.machine, [record.versions.get("commit", "")], record=RECORD)
    wrong = f"**Not whole: {', '.join(broken)}.**\n\n" if broken else ""
    return (
        f"Rows of {ROW_BYTES} bytes a second, medians of {rounds} runs:\n\n{table(record)}\n\n{wrong}"
        f"{missing}{missing and chr(10)}Recorded by `{record.command}` on {record.started[:10]} in "
        f"{record.seconds / 60:.0f} minutes {where}"
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


def main() -> None:
    """Record the results that are given, and write the page."""
    if len(sys.argv) > 1:
        RECORD.write_bytes(Path(sys.argv[1]).read_bytes())
    marks.write(PAGE, figures(recorded(RECORD, Sinks)), name=MARKS)


if __name__ == "__main__":
    main()
