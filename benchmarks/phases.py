"""Where the time of an epoch goes: ``python -m benchmarks.phases EVENTS``, the folder that ``ONCEONLY_EVENTS`` named.

Clocks of one machine are compared, so this is for one machine, or for one whose clocks agree to the millisecond.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotations at run time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.figures import percentiles
from benchmarks.values import encode
from onceonly import events
from onceonly_proof.campaign import machine as host
from onceonly_proof.campaign.result import save

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

VERSION = 1
_PLANNED, _VISIBLE = "plan.started", "epoch.completed"
# Spark's report of an epoch comes when it is over, and says when it began and how long it took.
_REPORTED, _TRIGGERED, _ENDED = "epoch.reported", "trigger.began", "trigger.ended"
SPARK, KAFKA, OURS = "Spark", "Kafka", "onceonly"
"""Whose time it is."""
ALL = "all"
BOTH = "Spark and Kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """From the last event of one kind to the first or the last of another, within an epoch.

    ``whose`` says whose work most of it is, ``holds`` what happens meanwhile.
    """

    title: str
    whose: str
    begin: str
    end: str
    ends_with_last: bool = True
    holds: str


PHASES = (
    Phase(
        title="Spark, until it asks for the plan",
        whose=SPARK,
        begin=_TRIGGERED,
        end=_PLANNED,
        holds="the topic's new end is read, `offsets/N` written, the query planned; workers initialise their "
        "next producers",
    ),
    Phase(
        title="the plan",
        whose=OURS,
        begin=_PLANNED,
        end="epoch.planned",
        holds="log and offsets are read, the target is asked for its name",
    ),
    Phase(
        title="until a slot has rows",
        whose=SPARK,
        begin="epoch.planned",
        end="slot.has_rows",
        ends_with_last=False,
        holds="tasks start, read, and hand the first batch to Python",
    ),
    Phase(
        title="the slot's transaction begun",
        whose=KAFKA,
        begin="slot.has_rows",
        end="slot.begun",
        ends_with_last=False,
        holds="the marker's predecessor was looked up before",
    ),
    Phase(
        title="rows written, flushed and marked",
        whose=KAFKA,
        begin="slot.begun",
        end="slot.prepared",
        holds="all replicas acknowledge batches and marker",
    ),
    Phase(
        title="votes on their way to the commit process",
        whose=SPARK,
        begin="slot.prepared",
        end="votes.collected",
        holds="tasks and job end, votes are handed over",
    ),
    Phase(
        title="the votes checked",
        whose=OURS,
        begin="votes.collected",
        end="epoch.checked",
        holds="the target is asked for its name",
    ),
    Phase(
        title="the link on disk: decided",
        whose=OURS,
        begin="epoch.checked",
        end="link.persisted",
        holds="two syncs: a file and its folder",
    ),
    Phase(
        title="every transaction committed: visible",
        whose=KAFKA,
        begin="link.persisted",
        end=_VISIBLE,
        holds="all EndTxn at once; coordinators write their log",
    ),
    Phase(
        title="the receipt, and the log cleaned",
        whose=OURS,
        begin=_VISIBLE,
        end="epoch.done",
        holds="two syncs; open transactions are listed; sometimes old epochs are folded",
    ),
    Phase(
        title="Spark, until the epoch is over",
        whose=SPARK,
        begin="epoch.done",
        end=_ENDED,
        holds="Spark writes `commits/N`",
    ),
)
BETWEEN = "Spark, between two epochs"
_BETWEEN_HOLDS = "it reports the one, and begins the next"
HOLDS = {**{phase.title: phase.holds for phase in PHASES}, BETWEEN: _BETWEEN_HOLDS}
"""What happens in each phase, in their order."""
WHOSE = {**{phase.title: phase.whose for phase in PHASES}, BETWEEN: SPARK}
_UNTIL_VISIBLE = [
    phase.title for phase in PHASES[: 1 + next(n for n, phase in enumerate(PHASES) if phase.end == _VISIBLE)]
]


class Spent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a phase took, in milliseconds, over ``epochs``."""

    title: str
    epochs: int
    median_ms: float
    p95_ms: float


class Phases(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of phases."""

    version: int
    machine: Mapping[str, str | int | float]
    versions: Mapping[str, str]
    last_s: float | None
    """Only what happened in this many seconds before the end was looked at."""
    warm_s: float
    """A query's first seconds were not."""
    phases: tuple[Spent, ...]
    rows: Mapping[str, Mapping[str, float]]
    """By ``reckoned``."""


def spent(lines: Iterable[Mapping[str, Any]]) -> list[Spent]:
    """Return each phase's time over all epochs that ended. Pure; an epoch's last try counts."""
    took: dict[str, list[float]] = defaultdict(list)
    for epochs in _took(lines):
        for epoch in epochs.values():
            for title, took_ms in epoch.items():
                took[title].append(took_ms)
    return [
        Spent(
            title=title,
            epochs=len(took[title]),
            median_ms=round(statistics.median(took[title]), 2),
            p95_ms=percentiles(np.array(took[title]))["p95_ms"],
        )
        for title in WHOSE
        if took[title]
    ]


def reckoned(lines: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return how long a row waits until it is visible, and how long it would if some of it took no time.

    ``BOTH``: if what onceonly itself does took none; ``SPARK``: if what Kafka does took none, too.

    Percentiles in ms, of rows that are due one each millisecond: a row waits for the end of the epoch that runs when it
    is due, and until the next one is visible. Empty without two whole epochs one after the other. Pure.
    """
    waits: dict[str, list[npt.NDArray[np.float64]]] = defaultdict(list)
    for epochs in _took(lines):
        for number, epoch in epochs.items():
            before = epochs.get(number - 1, {})
            if not (set(before) == set(WHOSE) and set(_UNTIL_VISIBLE) <= set(epoch)):
                continue
            for which, counted in ((ALL, {SPARK, KAFKA, OURS}), (BOTH, {SPARK, KAFKA}), (SPARK, {SPARK})):
                length = sum(ms for title, ms in before.items() if WHOSE[title] in counted)
                visible = sum(epoch[title] for title in _UNTIL_VISIBLE if WHOSE[title] in counted)
                waits[which].append(visible + np.arange(0.5, length))
    return {which: percentiles(np.concatenate(found)) for which, found in waits.items()}


def _took(lines: Iterable[Mapping[str, Any]]) -> list[dict[int, dict[str, float]]]:
    """Return what each phase took, in ms, of each epoch that ended; a mapping for each query."""
    queries: dict[str, dict[int, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for line in lines:
        moments = queries[line["query"]][line["epoch"]]
        if line["kind"] == _PLANNED:
            moments.clear()
        if line["kind"] == _REPORTED:
            moments[_TRIGGERED].append(float(line["began"]))
            moments[_ENDED].append(float(line["began"]) + float(line["took_ms"]) / 1000)
            continue
        moments[line["kind"]].append(float(line["t"]))
    return [
        {
            number: _of_epoch(moments, epochs.get(number + 1, {}))
            for number, moments in sorted(epochs.items())
            if moments["epoch.done"] and moments["slot.begun"]
        }
        for epochs in queries.values()
    ]


def _of_epoch(
    moments: Mapping[str, Sequence[float]], following: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    bounds = [(phase.title, _begin(phase, moments), _end(phase, moments)) for phase in PHASES]
    ended, next_one = moments.get(_ENDED), following.get(_TRIGGERED)
    bounds.append((BETWEEN, ended[-1] if ended else None, next_one[0] if next_one else None))
    return {
        title: (end - begin) * 1000 for title, begin, end in bounds if begin is not None and end is not None
    }


def whose(phases: Sequence[Spent]) -> dict[str, float]:
    """Return whose medians add up to what, in milliseconds. Pure."""
    took = dict.fromkeys((SPARK, KAFKA, OURS), 0.0)
    for each in phases:
        took[WHOSE[each.title]] += each.median_ms
    return took


def steady(
    lines: Sequence[Mapping[str, Any]], *, last_s: float | None, warm_s: float
) -> Sequence[Mapping[str, Any]]:
    """Return the lines of the last seconds of a log (all without a ``last_s``), but of no query's first ones. Pure.

    A query's first epochs bring its processes up.
    """
    if not lines:
        return lines
    end = max(float(line["t"]) for line in lines)
    first: dict[str, float] = {}
    for line in lines:
        first[line["query"]] = min(float(line["t"]), first.get(line["query"], end))
    return [
        line
        for line in lines
        if float(line["t"]) >= first[line["query"]] + warm_s
        and (last_s is None or float(line["t"]) > end - last_s)
    ]


def _begin(phase: Phase, moments: Mapping[str, Sequence[float]]) -> float | None:
    # The slots begin one after the other; the first one's rows are written while others wait for theirs.
    found = moments.get(phase.begin)
    return None if not found else min(found) if phase.begin in {"slot.has_rows", "slot.begun"} else max(found)


def _end(phase: Phase, moments: Mapping[str, Sequence[float]]) -> float | None:
    found = moments.get(phase.end)
    return None if not found else max(found) if phase.ends_with_last else min(found)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--last",
    "last_s",
    type=click.FloatRange(0, min_open=True),
    help="Only these seconds before the end: processes are warm.",
)
@click.option(
    "--warm",
    "warm_s",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Not the first seconds of a query: they are its start.",
)
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Record it there, too.")
def main(folder: Path, last_s: float | None, warm_s: float, path: Path | None) -> None:
    """Show where the time of the epochs in an event log went."""
    lines = steady(list(events.read(folder)), last_s=last_s, warm_s=warm_s)
    found, rows = spent(lines), reckoned(lines)
    console = Console()
    if not found:
        console.print(
            f"No epoch came to its end in {folder}: was ONCEONLY_EVENTS set for driver and executors?",
            markup=False,
        )
        raise SystemExit(1)
    table = Table("phase", "whose", "epochs", "median ms", "p95 ms")
    for each in found:
        table.add_row(
            each.title, WHOSE[each.title], str(each.epochs), f"{each.median_ms:.1f}", f"{each.p95_ms:.1f}"
        )
    console.print(table)
    for which, waits in rows.items():
        whole = "a row is visible after" if which == ALL else f"if all but {which} took no time, after"
        console.print(whole, ", ".join(f"{name[:-3]} {ms:.0f} ms" for name, ms in waits.items()))
    if path is not None:
        record = Phases(
            version=VERSION,
            machine=host.machine(),
            versions=host.versions(),
            last_s=last_s,
            warm_s=warm_s,
            phases=tuple(found),
            rows=rows,
        )
        save(path, encode(record))


if __name__ == "__main__":
    main()
