"""The metrics of queries, from what is known of each: names, words, labels. Pure.

One prefix, base units, ``_total`` for what only grows. Labels are bounded: the query's name, the names of its sinks,
the number of a source or an operator, words of ours.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias

from onceonly.model import LinkKind, seconds_of
from onceonly.telemetry.totals import BOUNDS_S, PHASES, Times, Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from onceonly.model import Link
    from onceonly.telemetry.lag import Lag

Labels: TypeAlias = tuple[tuple[str, str], ...]
Samples: TypeAlias = "Iterator[tuple[Labels, float]]"
_TRANSACTIONS: Final = "transaction.timeout.ms"
_MS: Final = 1000
_SPARKS: Final = (
    "triggerExecution",
    "latestOffset",
    "walCommit",
    "queryPlanning",
    "getBatch",
    "addBatch",
    "commitOffsets",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One stateful operator, as Spark has reported it last."""

    rows: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is known of one query at the moment ``now``, in seconds since 1970.

    ``chain`` is that of the newest epoch where that one is not settled. ``limit_s`` bounds the retries of its commits,
    None where only the job knows it. ``is_running`` is None where nobody can tell, ``began`` 0 where no run is known;
    ``starts`` counts those that were seen. ``readable`` says whether the log could be read. ``spark_s`` are the parts
    of the newest epoch by Spark's own names. ``savepoint_at`` is when the newest savepoint was made that the query
    makes by itself, 0 for none yet; ``savepoint_every_s`` how often it is to make one, None for never.
    """

    name: str
    now: float
    totals: Totals = field(default_factory=Totals)
    chain: tuple[Link, ...] = ()
    limit_s: float | None = None
    is_running: bool | None = None
    began: float = 0.0
    starts: int = 0
    readable: bool = True
    lags: Mapping[str, Lag] = field(default_factory=dict)
    operators: Mapping[str, Operator] = field(default_factory=dict)
    spark_s: Mapping[str, float] = field(default_factory=dict)
    savepoint_at: float = 0.0
    savepoint_every_s: float | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric is called without our prefix, of which kind it is, and how its samples are had from a query."""

    name: str
    kind: str
    help: str
    samples: Callable[[Observed], Samples]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. ``kind`` is counter, gauge or histogram."""

    name: str
    kind: str
    help: str
    samples: tuple[tuple[Labels, float], ...] = ()
    times: tuple[tuple[Labels, Times], ...] = ()


def families(queries: Iterable[Observed]) -> Iterator[Family]:
    """Return every metric with the samples of all queries; those of which nothing is known are there without any."""
    known = list(queries)
    for metric in _METRICS:
        samples = tuple(
            ((("query", each.name), *labels), value)
            for each in known
            for labels, value in metric.samples(each)
        )
        ending = "_total" if metric.kind == "counter" else ""
        yield Family(f"onceonly_{metric.name}{ending}", metric.kind, metric.help, samples)
    yield Family(
        "onceonly_epoch_phase_seconds",
        "histogram",
        "How long each phase of a committed epoch took: write (plan to decision), commit (the commits alone), settle "
        "(decision to receipt).",
        times=tuple(
            ((("query", each.name), ("phase", phase)), each.totals.times[phase])
            for each in known
            for phase in PHASES
            if phase in each.totals.times
        ),
    )


def buckets(times: Times) -> list[tuple[str, float]]:
    """Return the buckets of a histogram as Prometheus counts them: each with all below it."""
    bounds = [f"{bound:g}" for bound in BOUNDS_S]
    return list(zip([*bounds, "+Inf"], map(float, accumulate(times.counts)), strict=True))


def transaction_limit_s(link: Link) -> dict[str, float]:
    """Return how long the transactions of each sink may live, where the decision tells it: those of Kafka."""
    found = {}
    for name, use in link.uses.items():
        told = next((text for key, text in use.options.items() if key.endswith(_TRANSACTIONS)), "")
        if use.sink == "kafka" and told.isdecimal():
            found[name] = int(told) / _MS
    return found


def _pending(known: Observed) -> Counter[str]:
    """Count the decided transactions that are not known to be committed, by sink."""
    last = known.chain[-1] if known.chain else None
    return Counter(vote.sink for vote in last.pending) if last and last.kind is LinkKind.COMMIT else Counter()


def _age(known: Observed) -> float:
    decided = seconds_of(known.chain[-1].stamp) if _pending(known) else 0.0
    return max(0.0, known.now - decided) if decided else 0.0


def _in_doubt(known: Observed) -> Counter[str]:
    is_late = known.limit_s is not None and _age(known) > known.limit_s
    return _pending(known) if is_late or known.is_running is False else Counter()


def _by(label: str, found: Mapping[str, float]) -> Samples:
    yield from (((((label, name),)), float(value)) for name, value in sorted(found.items()))


def _one(value: float | None) -> Samples:
    if value is not None:
        yield (), float(value)


def _of_all_sinks(known: Observed, found: Mapping[str, int]) -> dict[str, int]:
    """Return a number for each sink, 0 where nothing is found: alerts need a series that does not come and go."""
    return {**dict.fromkeys(known.totals.rows, 0), **found}


_METRICS: Final = (
    Metric("epochs", "counter", "Epochs that are over: committed, or skipped, as no sink of ours wrote them.",
           lambda known: _by("outcome", {"committed": known.totals.committed, "skipped": known.totals.skipped})),
    # Those of the newest epoch stay when it is settled.
    Metric("aborts", "counter", "ABORT links: tries at an epoch that came to nothing, and claims of new runs.",
           lambda known: _one(known.totals.aborts + sum(each.kind is LinkKind.ABORT for each in known.chain))),
    Metric("repairs", "counter", "Decisions that were repeated, as the target had lost a part of what was decided.",
           lambda known: _one(known.totals.repairs)),
    Metric("rows", "counter", "Rows that were committed; dead letters are not among them.",
           lambda known: _by("sink", known.totals.rows)),
    Metric("bytes", "counter", "Size of the rows that were handed to the sink, as Arrow held them; refused ones, too.",
           lambda known: _by("sink", known.totals.bytes)),
    Metric("transactions", "counter", "Transactions of committed epochs.",
           lambda known: _by("sink", known.totals.transactions)),
    Metric("commits", "counter", "What became of commits, by the outcome's name in the log.",
           lambda known: _by("outcome", known.totals.outcomes)),
    Metric("dead_letters", "counter", "Rows that the target of a sink refused, and another one took.",
           lambda known: _by("sink", _of_all_sinks(known, known.totals.letters))),
    Metric("restarts", "counter", "Starts of the query after its first, as far as metrics were asked for.",
           lambda known: _one(max(0, known.starts - 1) if known.starts else None)),
    Metric("epoch", "gauge", "The number of the newest settled epoch.",
           lambda known: _one(known.totals.through if known.totals.through >= 0 else None)),
    Metric("settled_timestamp_seconds", "gauge", "When the newest settled epoch got its receipt.",
           lambda known: _one(known.totals.settled_at or None)),
    Metric("running", "gauge", "Whether a run of the query is alive: 1 or 0.",
           lambda known: _one(known.is_running)),
    Metric("run_started_timestamp_seconds", "gauge", "When the newest run began.",
           lambda known: _one(known.began or None)),
    Metric("pending_transactions", "gauge", "Decided transactions that are not known to be committed.",
           lambda known: _by("sink", _of_all_sinks(known, _pending(known)))),
    Metric("in_doubt_transactions", "gauge",
           "Pending transactions that nobody asks for: older than the limit of the retries, or no run is alive.",
           lambda known: _by("sink", _of_all_sinks(known, _in_doubt(known)))),
    Metric("pending_age_seconds", "gauge", "How old the decision of the pending transactions is; 0 without any.",
           lambda known: _one(_age(known))),
    Metric("pending_limit_seconds", "gauge", "For how long a run asks for commits again (onceonly.commit.timeout).",
           lambda known: _one(known.limit_s)),
    Metric("transaction_limit_seconds", "gauge", "How long the pending transactions of a sink live, where it is told.",
           lambda known: _by("sink", transaction_limit_s(known.chain[-1]) if _pending(known) else {})),
    Metric("lag_rows", "gauge", "Unread rows when the newest epoch began; of Kafka and of streams of RabbitMQ.",
           lambda known: _by("source", {name: lag.rows for name, lag in known.lags.items()})),
    Metric("lag_seconds", "gauge", "For how long the oldest unread row has been in the source; as lag_rows.",
           lambda known: _by("source", {name: lag.seconds(known.now) for name, lag in known.lags.items()})),
    Metric("state_rows", "gauge", "Rows in the state of an operator, as Spark reported it last.",
           lambda known: _by("operator", {name: each.rows for name, each in known.operators.items()})),
    Metric("state_memory_bytes", "gauge", "Memory that the state of an operator takes, as Spark reported it last.",
           lambda known: _by("operator", {name: each.memory_bytes for name, each in known.operators.items()})),
    Metric("spark_phase_seconds", "gauge", "How long each part of the newest epoch took, by Spark's own names.",
           lambda known: _by("phase", {name: known.spark_s[name] for name in _SPARKS if name in known.spark_s})),
    Metric("savepoint_timestamp_seconds", "gauge", "When the newest savepoint was made that the query makes by itself.",
           lambda known: _one(known.savepoint_at or None)),
    Metric("savepoint_interval_seconds", "gauge", "How often the query makes a savepoint (onceonly.savepoint.every).",
           lambda known: _one(known.savepoint_every_s)),
    Metric("log_readable", "gauge", "Whether the decision log could be read for this answer: 1 or 0.",
           lambda known: _one(known.readable)),
)  # fmt: skip
