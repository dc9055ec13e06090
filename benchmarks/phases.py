"""Where the time of an epoch goes: ``python -m benchmarks.phases EVENTS``, the folder that ``ONCEONLY_EVENTS`` named.

Clocks of one machine are compared, so this is for one machine, or for one whose clocks agree to the millisecond.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.figures import percentiles
from onceonly import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_PLANNED = "plan.started"


@dataclass(frozen=True, slots=True)
class Phase:
    """From the last event of one kind to the first or the last of another, within an epoch."""

    title: str
    begin: str
    end: str
    ends_with_last: bool = True


PHASES = (
    Phase("the plan", _PLANNED, "epoch.planned"),
    Phase("until a slot has rows and has begun", "epoch.planned", "slot.begun", ends_with_last=False),
    Phase("rows written, flushed and marked", "slot.begun", "slot.prepared"),
    Phase("votes on their way to the commit process", "slot.prepared", "votes.collected"),
    Phase("the votes checked", "votes.collected", "epoch.checked"),
    Phase("the link on disk: decided", "epoch.checked", "link.persisted"),
    Phase("every transaction committed: visible", "link.persisted", "epoch.completed"),
    Phase("the receipt, and the log cleaned", "epoch.completed", "epoch.done"),
)
BETWEEN = "Spark, until the next plan"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a phase took, in milliseconds, over ``epochs``."""

    title: str
    epochs: int
    median_ms: float
    p95_ms: float


def spent(lines: Iterable[Mapping[str, Any]]) -> list[Spent]:
    """Give each phase's time over all epochs that ended. Pure; an epoch's last try counts."""
    queries: dict[str, dict[int, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for line in lines:
        moments = queries[line["query"]][line["epoch"]]
        if line["kind"] == _PLANNED:
            moments.clear()
        moments[line["kind"]].append(float(line["t"]))
    took: dict[str, list[float]] = defaultdict(list)
    for epochs in queries.values():
        ended = {
            number: moments
            for number, moments in epochs.items()
            if moments["epoch.done"] and moments["slot.begun"]
        }
        for number, moments in ended.items():
            for phase in PHASES:
                _add(took[phase.title], _begin(phase, moments), _end(phase, moments))
            following = epochs.get(number + 1, {}).get(_PLANNED)
            if following:
                _add(took[BETWEEN], moments["epoch.done"][-1], following[0])
    titles = [*(phase.title for phase in PHASES), BETWEEN]
    return [
        Spent(
            title,
            len(took[title]),
            statistics.median(took[title]),
            percentiles(np.array(took[title]))["p95_ms"],
        )
        for title in titles
        if took[title]
    ]


def _begin(phase: Phase, moments: Mapping[str, Sequence[float]]) -> float | None:
    # The slots begin one after the other; the first one's rows are written while others wait for theirs.
    found = moments.get(phase.begin)
    return None if not found else min(found) if phase.begin == "slot.begun" else max(found)


def _end(phase: Phase, moments: Mapping[str, Sequence[float]]) -> float | None:
    found = moments.get(phase.end)
    return None if not found else max(found) if phase.ends_with_last else min(found)


def _add(took: list[float], begin: float | None, end: float | None) -> None:
    if begin is not None and end is not None:
        took.append((end - begin) * 1000)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Show where the time of the epochs in an event log went."""
    found = spent(events.read(folder))
    console = Console()
    if not found:
        console.print(
            f"No epoch came to its end in {folder}: was ONCEONLY_EVENTS set for driver and executors?",
            markup=False,
        )
        raise SystemExit(1)
    table = Table("phase", "epochs", "median ms", "p95 ms")
    for each in found:
        table.add_row(each.title, str(each.epochs), f"{each.median_ms:.1f}", f"{each.p95_ms:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
