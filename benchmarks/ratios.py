"""The figures that the benchmark is asked for: medians of its runs, and how ours compare. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from benchmarks.values import FLINK_EO, ONCEONLY_EO, SPARK_DEFAULT, SPARK_TUNED, Ratio, Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.values import Measured, Part

_THROUGHPUT, _P50, _P99 = "records_per_s", "p50_ms", "p99_ms"
_200_RPS = Work(kind="pass", rate=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A ratio by its definition. ``theirs``: the best of those contenders counts; without one it is our own figure."""

    part: Part
    work: Work
    figure: str
    theirs: tuple[str, ...]
    meaning: str
    brief: str
    """The same in a few words."""
    aim: float
    """What it is meant to reach, or to stay below."""
    beside: Work | None = None
    """Theirs is at this work, if it is another one."""
    is_worst: bool = False
    """The worst of all runs counts, not their median."""

    @property
    def better(self) -> Literal["higher", "lower"]:
        """Say which direction is the good one."""
        return "higher" if self.figure == _THROUGHPUT else "lower"

    @property
    def bound(self) -> str:
        """Return the aim as it is written."""
        return f"{'≥' if self.better == 'higher' else '≤'} {self.aim:g}"


ASKED: Mapping[str, Asked] = {
    "throughput_100b_vs_spark": Asked(
        part="throughput",
        work=Work(kind="pass"),
        figure=_THROUGHPUT,
        theirs=(SPARK_DEFAULT, SPARK_TUNED),
        meaning="records/s, ours exactly once / Spark's own sink, the faster of its defaults and our settings",
        brief="100 B, against Spark",
        aim=1.15,
    ),
    "throughput_100b_vs_flink_exactly_once": Asked(
        part="throughput",
        work=Work(kind="pass"),
        figure=_THROUGHPUT,
        theirs=(FLINK_EO,),
        meaning="records/s, ours exactly once / PyFlink exactly once",
        brief="100 B, against PyFlink",
        aim=1.25,
    ),
    "throughput_1kb_vs_spark": Asked(
        part="throughput",
        work=Work(kind="pass", record="1kb"),
        figure=_THROUGHPUT,
        theirs=(SPARK_DEFAULT, SPARK_TUNED),
        meaning="records/s, ours exactly once / Spark's own sink, the faster of its defaults and our settings",
        brief="1 KB, against Spark",
        aim=1.05,
    ),
    "latency_p50_200rps_vs_spark": Asked(
        part="latency",
        work=_200_RPS,
        figure=_P50,
        theirs=(SPARK_DEFAULT,),
        meaning="ms, ours exactly once / Spark's own sink with Spark's defaults; default trigger",
        brief="p50 at 200/s, against Spark as shipped",
        aim=0.8,
    ),
    "latency_p50_200rps_vs_spark_tuned": Asked(
        part="latency",
        work=_200_RPS,
        figure=_P50,
        theirs=(SPARK_TUNED,),
        meaning="ms, ours exactly once / Spark's own sink with our settings; default trigger",
        brief="p50 at 200/s, against Spark, equal settings",
        aim=1.4,
    ),
    "latency_p99_ms_200rps": Asked(
        part="latency",
        work=_200_RPS,
        figure=_P99,
        theirs=(),
        meaning="ms, ours exactly once, no ratio; default trigger",
        brief="p99 at 200/s, ms",
        aim=200,
    ),
}

FURTHER: Mapping[str, Asked] = {
    "throughput_1kb_vs_flink_exactly_once": Asked(
        part="throughput",
        work=Work(kind="pass", record="1kb"),
        figure=_THROUGHPUT,
        theirs=(FLINK_EO,),
        meaning="records/s, ours exactly once / PyFlink exactly once",
        brief="1 KB, against PyFlink",
        aim=1.05,
    ),
    "latency_p99_5000rps_vs_spark_tuned": Asked(
        part="latency",
        work=Work(kind="pass", rate=5_000),
        figure=_P99,
        theirs=(SPARK_TUNED,),
        meaning="ms, ours exactly once / Spark's own sink with our settings; default trigger",
        brief="p99 at 5,000/s, against Spark, equal settings",
        aim=1.5,
    ),
    "latency_max_ms_4rps": Asked(
        part="latency",
        work=Work(kind="pass", rate=4),
        figure="max_ms",
        theirs=(),
        meaning="ms, the longest wait of all runs, ours exactly once; default trigger",
        brief="longest wait at 4/s, ms",
        aim=500,
        is_worst=True,
    ),
    "commit_64_vs_4_transactions": Asked(
        part="commit",
        work=Work(kind="commit", count=64),
        figure="decide_ms",
        theirs=(ONCEONLY_EO,),
        meaning="ms, an epoch of 64 transactions / one of 4",
        brief="64 transactions, against 4",
        aim=3,
        beside=Work(kind="commit", count=4),
    ),
}
"""What has an aim, too, but is no key of the summary's ``ratios``."""
EVERY: Mapping[str, Asked] = {**ASKED, **FURTHER}


def ratios(
    runs: Sequence[Measured], not_run: Mapping[str, str], wanted: Mapping[str, Asked] = ASKED
) -> tuple[dict[str, float | None], dict[str, Ratio]]:
    """Return every ratio that is asked for, and how it came about. None, with the reason, where it was not measured."""
    notes = {name: _ratio(asked, runs, not_run) for name, asked in wanted.items()}
    values = {name: _value(wanted[name], note) for name, note in notes.items()}
    return values, notes


def is_missed(asked: Asked, value: float) -> bool:
    """Say whether a value is on the wrong side of its aim."""
    return value < asked.aim if asked.better == "higher" else value > asked.aim


def median(runs: Iterable[Measured], figure: str) -> float | None:
    """Return the median of a figure over runs that are whole; None where none has it."""
    values = [each.figures[figure] for each in runs if each.outcome == "whole" and figure in each.figures]
    return statistics.median(values) if values else None


def of(
    runs: Iterable[Measured], part: Part, work: Work, contender: str, *, every_interval: bool = False
) -> list[Measured]:
    """Return the runs of one contender at one work; with ``every_interval`` whatever its trigger or checkpoints are."""
    return [
        each
        for each in runs
        if (each.run.part, each.run.contender) == (part, contender)
        and (replace(each.run.work, interval_ms=0) if every_interval else each.run.work) == work
    ]


def _ratio(asked: Asked, runs: Sequence[Measured], not_run: Mapping[str, str]) -> Ratio:
    mine = of(runs, asked.part, asked.work, ONCEONLY_EO)
    ours, why = _usable(mine, ONCEONLY_EO, asked, not_run)
    note = Ratio(is_=asked.meaning, better=asked.better, ours=ours, runs_ours=len(mine), why=why)
    if not asked.theirs:
        return note
    found: list[tuple[float, str, int]] = []
    for contender in asked.theirs:
        # Flink has checkpoints in runs of throughput, too.
        work = asked.beside or asked.work
        theirs = of(runs, asked.part, work, contender, every_interval=asked.part == "throughput")
        value, reason = _usable(theirs, contender, asked, not_run)
        why = "; ".join(filter(None, (why, reason)))
        if value is not None:
            found.append((value, contender, len(theirs)))
    # The best of them is known only if all of them were measured.
    if why or ours is None:
        return replace(note, why=why)
    value, against, count = (max if asked.better == "higher" else min)(found)
    return replace(note, theirs=value, against=against, runs_theirs=count)


def _usable(
    runs: Sequence[Measured], contender: str, asked: Asked, not_run: Mapping[str, str]
) -> tuple[float | None, str]:
    """Return the median, or why there is none: a contender that lost or doubled rows, even once, has no figure."""
    if contender in not_run:
        return None, f"{contender} could not be had: {not_run[contender]}"
    broken = next((each for each in runs if each.outcome != "whole"), None)
    if broken is not None:
        return None, f"{broken.run.id}: {broken.outcome}{f', {broken.why}' if broken.why else ''}"
    value = median(runs, asked.figure)
    if value is None or value <= 0:
        return None, f"{contender} was not measured"
    return max(each.figures[asked.figure] for each in runs) if asked.is_worst else value, ""


def _value(asked: Asked, note: Ratio) -> float | None:
    if note.why or note.ours is None:
        return None
    if not asked.theirs:
        return round(note.ours, 3)
    return round(note.ours / note.theirs, 3) if note.theirs else None
