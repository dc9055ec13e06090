"""What the docs show of a recorded run: its figures as Markdown and its picture, so that nobody types or draws them.

``python -m onceonly_proof.campaign.unaligned_page`` writes both from ``docs/proof/unaligned.json``; a test sees that
they are what the record gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onceonly.words import n
from onceonly_proof.campaign import marks
from onceonly_proof.campaign.unaligned_audit import Shown
from onceonly_proof.campaign.unaligned_plan import UNDECIDED
from onceonly_proof.campaign.unaligned_run import picture

if TYPE_CHECKING:
    from onceonly_proof.campaign.unaligned_audit import Counted

RECORD, PICTURE = Path("docs/proof/unaligned.json"), Path("docs/proof/unaligned.svg")
PAGE = Path("docs/explanation/unaligned.md")
"""Relative to the project's folder."""
MARKS = "figures"


def figures(found: Shown) -> str:
    """Return the run's figures. Pure."""
    kills = "".join(
        f"| `chk-{kill.epoch}` | `{kill.point}` | {'no' if kill.point in UNDECIDED else 'yes'} "
        f"| {found.aligned.again.get(kill.epoch, 0)} | {found.unaligned.again.get(kill.epoch, 0)} |\n"
        for kill in found.kills
    )
    return (
        "| operator | rows that went in | counted again | missing | windows that are right | replays reported |\n"
        "|---|--:|--:|--:|--:|--:|\n"
        f"{_line(found.aligned)}{_line(found.unaligned)}\n"
        f"The whole process tree was killed {found.crashes} times with SIGKILL, in the middle of these epochs:\n\n"
        "| epoch | killed at | decided by then | counted again, aligned | counted again, unaligned |\n"
        f"|---|---|---|--:|--:|\n{kills}\n"
        f"Recorded by `onceonly verify unaligned --seed {found.seed}`: {n(found.epochs, 'epoch')} in "
        f"{found.seconds:.0f} s {marks.recorded_on(found.machine, [found.versions['commit']], record=RECORD)}"
    )


def _line(counted: Counted) -> str:
    series = counted.windows
    rows, right = (
        sum(each.expected for each in series.windows),
        sum(each.counted == each.expected for each in series.windows),
    )
    cells = (series.name, f"{rows:,}", f"{series.over:,}", f"{series.missing:,}")
    return f"| {' | '.join(cells)} | {right} of {len(series.windows)} | {counted.differing} |\n"


def main() -> None:
    """Write page and picture."""
    found = msgspec.json.decode(RECORD.read_bytes(), type=Shown)
    PICTURE.write_text(picture(found), encoding="utf-8")
    marks.write(PAGE, figures(found), name=MARKS)


if __name__ == "__main__":
    main()
