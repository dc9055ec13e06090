"""Recovery, measured: from SIGKILL of a job to its first newly visible row, beside Spark's own sink. Values; pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotations at run time
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly_proof.auditor import Seen

VERSION = 1
OURS, SPARKS = "onceonly.kafka", "kafka"
"""The formats that are compared: exactly once, and Spark's own, at least once."""
SINKS = (OURS, SPARKS)
KILLS = 10
KILLS_PER_TURN = 2

Word: TypeAlias = Literal["measured", "anomalies", "inconclusive"]


class Kill(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One SIGKILL to a job's whole process tree. Seconds from just before it.

    ``ready_s`` is when the new process had a Spark session, ``seconds`` when a row was visible that had not been.
    """

    sink: str
    ready_s: float
    seconds: float


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All kills of one sink. ``query_…`` are without the start of process and session: the query's own restart."""

    sink: str
    kills: int
    median_s: float
    worst_s: float
    query_median_s: float
    query_worst_s: float
    again: int
    """Rows that were visible more than once in the end, each surplus counted."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run has measured, as it stands in the file. Made by ``conclude`` only."""

    version: int
    verdict: Word
    why: tuple[str, ...]
    seed: int
    started: str
    seconds: float
    per_epoch: int
    table: tuple[Line, ...]
    ratio: Mapping[str, float]
    """Our figure by Spark's, by the name of the figure."""
    kills: tuple[Kill, ...]
    machine: Mapping[str, str | int | float] = {}
    versions: Mapping[str, str] = {}


def turns(kills: int) -> list[tuple[str, int]]:
    """Return the order: a few kills of the one sink, then of the other, and who comes first changes. Pure."""
    order: list[tuple[str, int]] = []
    for number, begin in enumerate(range(0, kills, KILLS_PER_TURN)):
        share = min(KILLS_PER_TURN, kills - begin)
        order += [(sink, share) for sink in (SINKS if number % 2 == 0 else SINKS[::-1])]
    return order


def first_new(rows: Sequence[Seen], after_s: float) -> float | None:
    """Say when a row was seen after a moment that is none of those before it; None while there is none. Pure.

    Rows that are written again are not new: a sink that writes at least once would seem to be back too early.
    """
    known: set[bytes | None] = set()
    for row in rows:
        if (row.seen_s or 0.0) <= after_s:
            known.add(row.value)
        elif row.value not in known:
            return row.seen_s
    return None


def again(rows: Iterable[Seen]) -> int:
    """Count the rows that are a repetition of another one. Pure."""
    values = [row.value for row in rows]
    return len(values) - len(set(values))


def conclude(
    kills: Sequence[Kill],
    repeated: Mapping[str, int],
    *,
    wanted: int,
    seed: int,
    started: str,
    seconds: float,
    per_epoch: int,
) -> Recovery:
    """Sum up. Pure; ``wanted`` kills of each sink make it measured."""
    table = tuple(_line(sink, kills, repeated.get(sink, 0)) for sink in SINKS)
    why = [
        f"{line.kills} of {n(wanted, 'kill')} of {line.sink} were measured"
        for line in table
        if line.kills != wanted
    ]
    verdict: Word = "inconclusive" if why else "measured"
    ours, sparks = table
    if ours.again:
        verdict = "anomalies"
        why.insert(0, f"{n(ours.again, 'row was')} visible more than once under {OURS}")
    names = ("median_s", "worst_s", "query_median_s", "query_worst_s")
    return Recovery(
        version=VERSION,
        verdict=verdict,
        why=tuple(why),
        seed=seed,
        started=started,
        seconds=round(seconds, 1),
        per_epoch=per_epoch,
        table=table,
        ratio={
            name: round(getattr(ours, name) / getattr(sparks, name), 2)
            for name in names
            if getattr(sparks, name)
        },
        kills=tuple(kills),
    )


def _line(sink: str, kills: Sequence[Kill], repeated: int) -> Line:
    own = [kill for kill in kills if kill.sink == sink]
    whole = [kill.seconds for kill in own] or [0.0]
    query = [kill.seconds - kill.ready_s for kill in own] or [0.0]
    return Line(
        sink=sink,
        kills=len(own),
        median_s=round(statistics.median(whole), 3),
        worst_s=round(max(whole), 3),
        query_median_s=round(statistics.median(query), 3),
        query_worst_s=round(max(query), 3),
        again=repeated,
    )
