"""Medians of all runs, line by line: what tables and pages show. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from benchmarks.figures import PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.values import Measured

SHOWN = (
    "records_per_s",
    "cpu_s_per_million",
    *PERCENTILES,
    "epoch_triggerExecution_ms",
    "decide_ms",
    "recovery_median_s",
    "recovery_worst_s",
    "query_median_s",
    "rows_again",
)
"""Of the many figures of a run, those that tables show; all are in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure of one contender at one work, over its whole runs."""

    part: str
    work: str
    contender: str
    runs: int
    figure: str
    median: float
    least: float
    most: float


def lines(runs: Iterable[Measured], figures: Sequence[str] = SHOWN) -> list[Line]:
    """Return a line for each figure, grouped by part and work, in the order of their first run. Pure.

    Runs that lost or doubled rows, or failed, are left out.
    """
    groups: dict[tuple[str, str], dict[str, list[Measured]]] = {}
    for each in runs:
        if each.outcome == "whole":
            by_contender = groups.setdefault((each.run.part, _work(each)), {})
            by_contender.setdefault(each.run.contender, []).append(each)
    found: list[Line] = []
    for (part, work), by_contender in groups.items():
        for figure in figures:
            for contender, measured in by_contender.items():
                values = [each.figures[figure] for each in measured if figure in each.figures]
                if values:
                    found.append(
                        Line(
                            part=part,
                            work=work,
                            contender=contender,
                            runs=len(values),
                            figure=figure,
                            median=statistics.median(values),
                            least=min(values),
                            most=max(values),
                        )
                    )
    return found


def broken(runs: Iterable[Measured]) -> list[Measured]:
    """Return the runs whose figures mean nothing."""
    return [each for each in runs if each.outcome != "whole"]


def _work(each: Measured) -> str:
    """Name the work; checkpoints are a setting of Flink's, and no other work, where throughput is measured."""
    work = each.run.work
    if each.run.part in {"throughput", "window"}:
        work = replace(work, interval_ms=0)
    return work.name
