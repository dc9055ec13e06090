"""Which runs a benchmark has, in which order: interleaved, so that no contender has the better hour. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, TypeVar

import msgspec

from benchmarks.values import (
    CONTENDERS,
    FLINK_ALO,
    FLINK_EO,
    ONCEONLY_ALO,
    ONCEONLY_EO,
    PARTS,
    SPARK_DEFAULT,
    SPARK_TUNED,
    Run,
    Work,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from benchmarks.values import Compression, Part, Record

_Item = TypeVar("_Item")
_FLINK = (FLINK_EO, FLINK_ALO)
# The same session and the same settings on both sides.
_OVER_TLS = (ONCEONLY_EO, SPARK_TUNED)
_EPOCHS_TIMED = (ONCEONLY_EO, SPARK_DEFAULT, SPARK_TUNED)


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much a benchmark does. Times in seconds; ``epochs`` are those of Spark in one run of throughput."""

    name: str
    rounds: int
    rounds_few: int
    """In so many rounds, the last ones, is done what no ratio asks for: it need not stand on as many runs."""
    records: dict[Record, int]
    window_records: int
    warm_runs: dict[Record, int]
    """How often a process writes all records of a size, unmeasured, before its first run."""
    paced_warm_s: float
    """For so long it does, unmeasured, what its first run at a rate will do."""
    epochs: int
    latency_s: float
    latency_warm_s: float
    rates: tuple[int, ...]
    """At the default trigger; the first one in few rounds with the others, too."""
    rates_few: tuple[int, ...]
    rate_low: int
    """Records so far apart that each is an epoch of its own; 0 for none."""
    intervals_ms: tuple[int, ...]
    flink_intervals_ms: tuple[int, ...]
    flink_checkpoints_ms: int
    """In runs of throughput. They must have some checkpoints, as what is visible goes forward by them."""
    empty_s: float
    commit_counts: tuple[int, ...]
    kills: int
    parts: tuple[Part, ...]
    contenders: tuple[str, ...]
    limit_s: float = 0
    """No round begins that would end later if it took as long as the one before; 0 for none."""


FULL = Sizes(
    name="full",
    rounds=5,
    rounds_few=2,
    records={"100b": 4_000_000, "1kb": 1_000_000},
    window_records=2_000_000,
    warm_runs={"100b": 1, "1kb": 1},
    paced_warm_s=60,
    # About as long as Flink's checkpoints are apart; Spark's own default has no bound.
    epochs=5,
    latency_s=10,
    latency_warm_s=2,
    rates=(200, 5_000),
    rates_few=(50_000,),
    rate_low=4,
    intervals_ms=(200, 1_000),
    flink_intervals_ms=(1_000, 200, 50),
    flink_checkpoints_ms=1_000,
    empty_s=8,
    commit_counts=(1, 4, 16, 64, 256),
    kills=5,
    parts=PARTS,
    contenders=CONTENDERS,
)
QUICK = msgspec.structs.replace(
    FULL,
    name="quick",
    rounds=3,
    rounds_few=0,
    records={"100b": 3_000_000, "1kb": 500_000},
    warm_runs={"100b": 2, "1kb": 1},
    paced_warm_s=10,
    latency_s=5,
    latency_warm_s=1,
    rates=(200,),
    rates_few=(),
    rate_low=0,
    intervals_ms=(),
    flink_intervals_ms=(),
    flink_checkpoints_ms=500,
    parts=("throughput", "latency"),
    contenders=(ONCEONLY_EO, SPARK_DEFAULT, SPARK_TUNED, FLINK_EO),
    # It promises 8 minutes, also on a slow machine.
    limit_s=450,
)
TINY = msgspec.structs.replace(
    FULL,
    name="tiny",
    rounds=1,
    rounds_few=1,
    records={"100b": 20_000, "1kb": 4_000},
    window_records=20_000,
    warm_runs={"100b": 1},
    paced_warm_s=0.5,
    epochs=4,
    latency_s=3,
    latency_warm_s=0.5,
    rates=(200,),
    rates_few=(),
    rate_low=0,
    intervals_ms=(200,),
    flink_intervals_ms=(200,),
    flink_checkpoints_ms=100,
    empty_s=2,
    commit_counts=(1, 4),
    kills=1,
)
"""Sees that all of it runs; its figures mean nothing."""
SIZES: Mapping[str, Sizes] = {each.name: each for each in (FULL, QUICK, TINY)}


def runs(sizes: Sizes, parts: Collection[str] = (), contenders: Collection[str] = ()) -> tuple[Run, ...]:
    """Return the runs in their order; without ``parts`` or ``contenders``, those of the size. Pure.

    In each round every contender has its turn at every work, one right after the other, as machines have good and bad
    minutes; who begins moves on by one from round to round. Runs of few rows come after all others, as they have
    processes of their own, and memory is for one of a contender; but in a size with a limit every round has all.
    """
    chosen = [each for each in CONTENDERS if each in (contenders or sizes.contenders)]
    wanted = [each for each in PARTS if each in (parts or sizes.parts)]
    groups = ({True, False},) if sizes.limit_s else ({False}, {True})
    found: list[Run] = []
    for group, number, part in product(groups, range(1, sizes.rounds + 1), wanted):
        alike: dict[Work, list[Run]] = {}
        for contender in turned(chosen, number - 1):
            for work in _works(sizes, part, contender, number):
                if work.has_few_rows not in group:
                    continue
                run = Run(part=part, contender=contender, round=number, work=work)
                alike.setdefault(msgspec.structs.replace(work, interval_ms=0), []).append(run)
        found += [run for turns in alike.values() for run in turns]
    return tuple(found)


@dataclass(slots=True)
class Clock:
    """Says whether there is time for another round. ``limit_s``: of all of them; 0 for none."""

    limit_s: float
    _began: list[tuple[float, float]] = field(default_factory=list)
    """When each round did, and what had been done once for all rounds by then, in seconds."""
    _round: int = 0

    def has_time_for(self, run: Run, now_s: float, once_s: float) -> bool:
        """Say whether to do a run; asked of each, in their order. A round that has begun is brought to its end.

        ``once_s`` has been spent so far on what is not done again, as starting processes: the first round has most.
        """
        if run.round != self._round:
            if self.limit_s and self._began:
                began_s, before_s = self._began[-1]
                last_s = (now_s - began_s) - (once_s - before_s)
                if now_s + last_s > self._began[0][0] + self.limit_s:
                    return False
            self._began.append((now_s, once_s))
            self._round = run.round
        return True


def fingerprint(sizes: Sizes, planned: Iterable[Run], *facts: object) -> str:
    """Return a short text that differs where the plan, the sizes or one of ``facts`` does. Pure."""
    ids = [run.id for run in planned]
    data = msgspec.json.encode([msgspec.to_builtins(sizes), ids, facts], order="deterministic")
    return hashlib.sha256(data).hexdigest()[:16]


def _works(sizes: Sizes, part: Part, contender: str, number: int) -> Iterable[Work]:
    is_ours, is_few = contender == ONCEONLY_EO, _is_few(sizes, number)
    match part:
        case "throughput":
            return _throughput(sizes, contender, number)
        case "latency":
            return _latency(sizes, contender, number)
        case "window" if is_few:
            return (Work(kind="window", interval_ms=_interval(sizes, contender)),)
        case "empty" if is_few and contender in _EPOCHS_TIMED:
            return (Work(kind="empty", rate=200),)
        case "commit" if is_ours:
            return (Work(kind="commit", count=count) for count in sizes.commit_counts)
        # One run measures both sinks, in turns of its own.
        case "recovery" if is_ours and number == 1:
            return (Work(kind="recovery"),)
        case _:
            return ()


def _throughput(sizes: Sizes, contender: str, number: int) -> Iterable[Work]:
    compressions: Sequence[Compression] = ("none", "lz4") if _is_few(sizes, number) else ("none",)
    for record in sizes.records:
        for compression in compressions:
            yield Work(
                kind="pass", record=record, compression=compression, interval_ms=_interval(sizes, contender)
            )
    if _is_few(sizes, number) and contender in _OVER_TLS:
        for record in sizes.records:
            yield Work(kind="pass", record=record, tls=True)


def _latency(sizes: Sizes, contender: str, number: int) -> Iterable[Work]:
    first, is_few = sizes.rates[0], _is_few(sizes, number)
    rates = [*sizes.rates, *(sizes.rates_few if is_few else ())]
    if contender == FLINK_EO:
        yield from (Work(kind="pass", rate=first, interval_ms=each) for each in sizes.flink_intervals_ms)
        if is_few:
            yield from (Work(kind="pass", rate=rate, interval_ms=200) for rate in rates[1:])
    elif contender == FLINK_ALO:
        yield from (Work(kind="pass", rate=first, interval_ms=each) for each in sizes.flink_intervals_ms[:1])
    elif contender == ONCEONLY_ALO:
        yield Work(kind="pass", rate=first)
    else:
        yield from (Work(kind="pass", rate=rate) for rate in rates)
        if is_few:
            yield from (Work(kind="pass", rate=first, interval_ms=each) for each in sizes.intervals_ms)
        if sizes.rate_low and contender in {ONCEONLY_EO, SPARK_TUNED}:
            yield Work(kind="pass", rate=sizes.rate_low)


def _is_few(sizes: Sizes, number: int) -> bool:
    return number > sizes.rounds - sizes.rounds_few


def _interval(sizes: Sizes, contender: str) -> int:
    return sizes.flink_checkpoints_ms if contender in _FLINK else 0


def turned(items: Sequence[_Item], by: int) -> list[_Item]:
    """Return all of them in their order, but the first ones, so many, behind the others. Pure."""
    by = by % len(items) if items else 0
    return [*items[by:], *items[:by]]
