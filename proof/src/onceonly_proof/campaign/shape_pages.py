"""What the docs show of two recorded runs, ``--like-kafka`` and ``--recovery``, so that nobody types a figure.

``python -m onceonly_proof.campaign.shape_pages`` writes the figures from ``docs/proof``; a test sees that they are
those of the records. A run that is not recorded is said not to be.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from onceonly_proof.campaign import marks
from onceonly_proof.campaign.recovery import Recovery
from onceonly_proof.campaign.shape import Shape

_Found = TypeVar("_Found")

SHAPE_RECORD, SHAPE_PAGE = (
    Path("docs/proof/transactions-test.json"),
    Path("docs/explanation/transactions-test.md"),
)
RECOVERY_RECORD, RECOVERY_PAGE = Path("docs/proof/recovery.json"), Path("docs/explanation/recovery.md")
"""Relative to the project's folder."""
MARKS = "figures"


def shape_figures(found: Shape | None) -> str:
    """Return what the run in Kafka's shape has found. Pure."""
    if found is None:
        return marks.NONE
    anomalies = {name: count for name, count in found.anomalies.items() if count}
    listed = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in anomalies.items())
    of_size = ", ".join(f"{count:,} of {size:,} messages" for size, count in found.transactions.items())
    rows = {
        "messages in the input": f"{found.messages:,}",
        "visible in the end": f"{found.rows:,}",
        "seen by the reader that read all the time": f"{found.seen_meanwhile:,}",
        "transactions": of_size,
        "anomalies": f"{listed or 0} (of {len(found.anomalies)} kinds that the auditor knows)",
        "verdict": f"**{found.verdict}**",
    }
    bounces = "".join(
        f"| {kind} | {count} | {_worst(found, kind)} |\n" for kind, count in found.bounces.items()
    )
    command = f"onceonly verify like-kafka --messages {found.messages} --transaction {found.transaction}"
    return (
        "| | |\n|---|--:|\n"
        + "".join(f"| {name} | {value} |\n" for name, value in rows.items())
        + "\n| bounced | times | longest until a new message was visible |\n|---|--:|--:|\n"
        + bounces
        + "".join(f"\n- {why}" for why in found.why)
        + f"\nRecorded by `{command} --seed {found.seed}` on {found.started[:10]}: {found.epochs:,} epochs in "
        f"{found.seconds:,.0f} s {marks.recorded_on(found.machine, [found.versions['commit']], record=SHAPE_RECORD)}"
    )


def recovery_figures(found: Recovery | None) -> str:
    """Return both sinks' times. Pure."""
    if found is None:
        return marks.NONE
    head = (
        "| sink | kills | median | worst | query alone, median | query alone, worst | rows visible again |\n"
        "|---|--:|--:|--:|--:|--:|--:|\n"
    )
    lines = "".join(
        f"| `{line.sink}` | {line.kills} | {line.median_s:.1f} s | {line.worst_s:.1f} s "
        f"| {line.query_median_s:.1f} s | {line.query_worst_s:.1f} s | {line.again:,} |\n"
        for line in found.table
    )
    ratio = " | ".join(f"{each:.2f}" for each in found.ratio.values())
    kills = max(line.kills for line in found.table)
    return (
        f"{head}{lines}| ratio | | {ratio} | |\n"
        + "".join(f"\n- {why}" for why in found.why)
        + f"\nRecorded by `onceonly verify recovery --kills {kills} --seed {found.seed}` on {found.started[:10]}: "
        f"{found.seconds:,.0f} s, epochs of {found.per_epoch:,} rows, "
        f"{marks.recorded_on(found.machine, [found.versions['commit']], record=RECOVERY_RECORD)}"
    )


def write(root: Path) -> None:
    """Write both pages of the project in ``root``. Any number of times."""
    for page, block in blocks(root).items():
        marks.write(root / page, block, name=MARKS)


def blocks(root: Path) -> dict[Path, str]:
    """Return what belongs into each page, by the records of the project in ``root``."""
    return {
        SHAPE_PAGE: shape_figures(_recorded(root / SHAPE_RECORD, Shape)),
        RECOVERY_PAGE: recovery_figures(_recorded(root / RECOVERY_RECORD, Recovery)),
    }


def _recorded(path: Path, kind: type[_Found]) -> _Found | None:
    return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else None


def _worst(found: Shape, kind: str) -> str:
    times = [each.seconds for each in found.done if each.kind == kind]
    return f"{max(times):.1f} s" if times else ""


if __name__ == "__main__":
    write(Path())
