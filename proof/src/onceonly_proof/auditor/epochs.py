"""What can be told of epochs: torn transactions, epochs whole in one sink only, and what the log says. Pure."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from onceonly.model import LinkKind
from onceonly_proof.auditor.anomalies import Anomaly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onceonly_proof.auditor.lookup import Facts, Findings
    from onceonly_proof.auditor.visible import Shown
    from onceonly_proof.auditor.world import Decision, World


def check_epochs(world: World, facts: Facts, shown: Mapping[str, Shown], findings: Findings) -> None:
    """Compare what the sinks show of each epoch, with each other and with the decided transactions."""
    visible = {sink: facts.by_epoch(each.visible) for sink, each in shown.items()}
    missing = {sink: facts.by_epoch(each.missing) for sink, each in shown.items()}
    for index, decision in enumerate(facts.decisions):
        lacks = {sink: missing[sink].get(index, set()) for sink in shown}
        if not any(lacks.values()):
            continue
        has = {sink: len(visible[sink].get(index, ())) for sink in shown}
        if any(has.values()) and len({frozenset(each) for each in lacks.values()}) > 1:
            found = ", ".join(f"{sink} shows {has[sink]} and lacks {len(lacks[sink])}" for sink in shown)
            findings.add(Anomaly.PARTIAL_EPOCH, decision.name, found)
        for sink in shown:
            if lacks[sink] and sink not in world.upserts:
                told = any(seen.transaction for seen, _ in shown[sink].rows)
                if not told and not _can_be_whole(decision, sink, has[sink]):
                    findings.add(
                        Anomaly.TORN_TRANSACTION, f"{sink} {decision.name}", f"shows {has[sink]} rows, which no choice",
                        "of whole transactions gives:", [slot.rows for slot in decision.slots if slot.sink == sink],
                    )  # fmt: skip
    for sink in shown:
        _check_transactions(sink, facts, shown[sink], findings)


def _can_be_whole(decision: Decision, sink: str, visible: int) -> bool:
    """Say whether some of the decided transactions, each of them whole, can make up so many rows.

    Each bit of ``sums`` is one number of rows that can be reached.
    """
    slots = [slot.rows for slot in decision.slots if slot.sink == sink]
    if not slots or any(slot.slot < 0 for slot in decision.slots):
        return True  # the log does not tell how the rows were dealt
    sums = 1
    for rows in slots:
        sums |= sums << rows
    return bool(sums >> visible & 1)


def _check_transactions(sink: str, facts: Facts, shown: Shown, findings: Findings) -> None:
    """Where places tell transactions: each that is decided shows all its rows or none."""
    rows = {(seen.transaction, row.id) for seen, row in shown.rows if seen.transaction}
    visible = Counter(transaction for transaction, _ in rows)
    for decision in facts.decisions:
        for slot in decision.slots:
            if slot.sink == sink and 0 < visible.get(slot.transaction, 0) < slot.rows:
                findings.add(
                    Anomaly.TORN_TRANSACTION, f"{sink} {decision.name}", f"{slot.transaction} shows",
                    f"{visible[slot.transaction]} of {slot.rows} rows",
                )  # fmt: skip


def check_log(world: World, facts: Facts, findings: Findings) -> None:
    """Compare the decision log with Spark's checkpoint, with what went in, and with itself."""
    went_in = Counter(facts.index_of(row) for row in world.inputs)
    decided = [each.epoch for each in facts.decisions if each.is_commit]
    newest = max(decided, default=-1)
    for before, after in pairwise(facts.decisions):
        if (after.epoch if after.first is None else after.first) != before.epoch + 1:
            findings.add(Anomaly.LOG_MISMATCH, f"nothing is known between {before.name} and {after.name}")
    for index, decision in enumerate(facts.decisions):
        for problem in (*_doubts(decision), *_problems(decision, newest, drained=world.drained)):
            findings.add(Anomaly.LOG_MISMATCH, decision.name, problem)
        if decision.is_commit and decision.ranges:
            for sink in world.sinks:
                rows = sum(slot.rows for slot in decision.slots if slot.sink == sink)
                if rows != went_in[index]:
                    findings.add(
                        Anomaly.LOG_MISMATCH, decision.name, f"decided {rows} rows of {sink},",
                        f"and {went_in[index]} went in between its barriers",
                    )  # fmt: skip


def _doubts(decision: Decision) -> Iterator[str]:
    """Say what makes a decision's own files hard to believe."""
    yield from decision.contradictions
    if decision.is_skipped and decision.slots:
        yield "was skipped, and has votes"
    for partition, (first, end) in decision.ranges.items():
        if end < first:
            yield f"begins at {first} of {partition} and ends at {end}"


def _problems(decision: Decision, newest: int, *, drained: bool) -> Iterator[str]:
    """Say where the log, its receipts and Spark's commits/N do not fit together."""
    is_newest = decision.epoch >= newest
    if decision.kind is None:
        yield "has no link, and a receipt, commits/N or a barrier before it speaks of it"
    elif decision.kind is LinkKind.ABORT:
        if decision.receipt:
            yield "has a receipt, and its last link is an ABORT"
        if decision.spark_commit:
            yield "is in commits/N, and its last link is an ABORT"
        if not is_newest:
            yield "is void by its last link, and a later epoch is decided"
    else:
        if not decision.receipt and (drained or not is_newest):
            yield "is decided and has no receipt, though the query went on or ended"
        if decision.spark_commit and not decision.receipt:
            yield "is in commits/N and has no receipt"
        if decision.spark_commit is False and decision.receipt and not is_newest:
            yield "has a receipt and is not in commits/N, though a later epoch is decided"
