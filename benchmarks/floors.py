"""What could be reached at best: what is left of a figure if the sink's own part took no time at all. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import costs, phases
from benchmarks.ratios import median, of
from benchmarks.values import FLINK_EO, ONCEONLY_EO, SPARK_TUNED, Work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.ratios import Asked
    from benchmarks.values import Ratio, Record, Results


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFloor:
    """Of a sink in Python: microseconds of a processor for a row, and times Spark's own sink with our settings."""

    received_us: float
    """Until Python has the row."""
    broker_us: float
    """The broker's least for writing it."""
    sending_us: float
    """What sending takes ours."""
    most: float
    """How many times as fast a sink would be that takes nothing itself."""
    sent: float
    """And one that takes what sending takes ours."""
    looped: float
    """And, for checksum and record batches, what these take ours when it has a process and rows for itself."""

    @property
    def us(self) -> float:
        """What any sink in Python takes."""
        return self.received_us + self.broker_us


def of_row(spent: costs.Costs) -> RowFloor:
    """Give it, of what rows cost."""
    by_sink = {each.sink: each for each in spent.costs}
    receiving, ours, spark = by_sink[costs.RECEIVING], by_sink[ONCEONLY_EO], by_sink[SPARK_TUNED]
    writing = [each for each in spent.costs if each.sink not in {costs.READING, costs.RECEIVING}]
    broker = min(each.broker_us for each in writing) - receiving.broker_us
    floor = receiving.all_us + broker
    sending = (ours.python_us - receiving.python_us) * shares(spent)[costs.SENDING]
    loops = spent.parts[costs.CHECKSUM] + spent.parts[costs.MAKING]
    return RowFloor(
        received_us=receiving.all_us,
        broker_us=broker,
        sending_us=sending,
        most=spark.all_us / floor,
        sent=spark.all_us / (floor + sending),
        looped=spark.all_us / (floor + sending + loops),
    )


def shares(spent: costs.Costs) -> dict[str, float]:
    """Return what each part has of ours in Python."""
    # Alone in its process, each part takes another time than beside Spark; how they relate stays.
    return {name: us / sum(spent.parts.values()) for name, us in spent.parts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFloor:
    """Of an epoch of 64 transactions, in milliseconds: if our process took no time but for the decision."""

    decided_ms: float
    broker_ms: float
    """Of the cores' time."""
    own_ms: float
    """Of the cores' time, too, and what the floor is without."""
    cores: int
    few_ms: float
    """What an epoch of 4 takes now."""

    @property
    def ms(self) -> float:
        """What must pass."""
        return self.decided_ms + self.broker_ms / self.cores


def of_commit(results: Results) -> CommitFloor | None:
    """Return it; None where commits were not measured."""
    few, many = (
        of(results.runs, "commit", Work(kind="commit", count=count), ONCEONLY_EO) for count in (4, 64)
    )
    now, decided = median(few, "decide_ms"), median(many, "until_link.persisted_ms")
    broker, own = median(many, "cpu_broker_ms"), median(many, "cpu_own_ms")
    if not (now and decided and broker and own):
        return None
    return CommitFloor(
        decided_ms=decided, broker_ms=broker, own_ms=own, cores=int(results.machine["cores"]), few_ms=now
    )


def of_ratio(
    asked: Asked,
    note: Ratio,
    results: Results,
    spent: Mapping[Record, costs.Costs],
    epochs: Mapping[int, phases.Phases],
) -> float | None:
    """Return the best value of a ratio; None where no floor of it was measured.

    Phases are measured in processes of their own. What counts is their share that is Spark's.
    """
    if not note.ours or not note.theirs:
        return None
    if asked.part == "commit":
        commit = of_commit(results)
        return None if commit is None else commit.ms / commit.few_ms
    return of_rows(asked, note, results, spent) or of_wait(asked, note, epochs)


def of_rows(
    asked: Asked,
    note: Ratio,
    results: Results,
    spent: Mapping[Record, costs.Costs],
    *,
    with_loops: bool = False,
) -> float | None:
    """Return the ratio of records a second of a sink that only sends, or sends what its loops have made.

    None where rows of that size were not taken apart.
    """
    if asked.part != "throughput" or asked.work.record not in spent or not note.theirs:
        return None
    floor = of_row(spent[asked.work.record])
    best = floor.looped if with_loops else floor.sent
    if FLINK_EO not in asked.theirs:
        return best
    spark = median(of(results.runs, "throughput", asked.work, SPARK_TUNED), "records_per_s")
    return None if spark is None else best * spark / note.theirs


def of_wait(
    asked: Asked, note: Ratio, epochs: Mapping[int, phases.Phases], *, left: str = phases.SPARK
) -> float | None:
    """Return the ratio of waits that is left if all but ``left`` took no time; None where no floor was measured."""
    found = epochs.get(asked.work.rate)
    if asked.part != "latency" or found is None or left not in found.rows or not (note.ours and note.theirs):
        return None
    least, now = (found.rows[which][asked.figure] for which in (left, phases.ALL))
    return note.ours / note.theirs * least / now
