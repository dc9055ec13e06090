"""What the docs show of the recorded power-loss campaign, so that nobody types a figure.

``python -m onceonly_proof.power.page`` writes the figures from ``docs/proof/power.json``; a test sees that they are
those of the record.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onceonly_proof.campaign import marks
from onceonly_proof.power import outcome

if TYPE_CHECKING:
    from onceonly_proof.power.outcome import Result

RECORD, PAGE = Path("docs/proof/power.json"), Path("docs/explanation/power-loss.md")
"""Relative to the project's folder."""
MARKS = "figures"


def figures(found: Result | None) -> str:
    """Return what was found on each pipeline. Pure."""
    if found is None or not found.pipelines:
        return marks.NONE
    head = (
        "| pipeline | cuts | states tried | operations hit | kinds hit | rows due | lost | doubled | by hand |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    )
    lines = "".join(
        f"| `{each.pipeline}` | {each.cuts:,} | {each.states:,} | {each.ordinals_hit:,} of {each.ordinals:,} "
        f"| {len(each.operations_hit):,} of {len(each.operations):,} | {each.rows:,} "
        f"| {each.lost:,} | {each.doubled:,} | {each.by_hand:,} |\n"
        for each in sorted(found.pipelines, key=lambda each: each.pipeline)
        if each.cuts
    )
    other = sum(each.other for each in found.pipelines)
    verdict = "nothing was lost or doubled, and nobody was needed" if found.is_clean else "**not clean**"
    bad = [text for each in found.pipelines if not each.is_clean for text in each.examples[:2]]
    summary = (
        f"{found.cuts:,} cuts in {found.states:,} different states: {verdict}. Remarks of the auditor on"
        f" notes of epochs and on young files that a crash left, which no reader sees: {other:,}."
    )
    where = (
        f"Recorded by `onceonly verify power-cuts` from {found.begun[:16]} to {found.ended[:16]}, {found.minutes:,.0f}"
        f" minutes, {marks.recorded_on(found.machine, found.commits, record=RECORD)}"
    )
    examples = "".join(f"\n- {_plain(text)}" for text in bad)
    return f"{head}{lines}\n{summary}\n{examples}\n{where}"


def _plain(text: str) -> str:
    """Make one line of an example, without what a page would take for marks of its own."""
    return "`" + " ".join(text.replace("`", "'").split())[:300] + "`"


def block(root: Path) -> str:
    """Return what belongs into the page, by the record of the project in ``root``."""
    record = root / RECORD
    return figures(outcome.read(record) if record.exists() else None)


def write(root: Path) -> None:
    """Write the page of the project in ``root``. Any number of times."""
    marks.write(root / PAGE, block(root), name=MARKS)


if __name__ == "__main__":
    write(Path())
