"""A campaign in the shape of Kafka's own system test ``transactions_test``: its plan, its result, its verdict. Pure.

That test copies 100,000 messages from a topic of two partitions to one of three, in transactions of 750, while brokers
and clients are bounced hard and cleanly and a ``read_committed`` consumer reads along. Its source:
``tests/kafkatest/tests/core/transactions_test.py`` of Apache Kafka.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotations at run time
from typing import TYPE_CHECKING

import msgspec

from onceonly.words import n
from onceonly_proof.campaign.values import Counts, Verdict  # noqa: TC001  as above

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly_proof.auditor import Decision

VERSION = 1
MESSAGES, TRANSACTION = 100_000, 750
SOURCE_PARTITIONS, TARGET_PARTITIONS = 2, 3
"""As in Kafka's test. A slot reads one partition, so two transactions are one epoch."""
KINDS = ("hard broker", "clean job", "hard job", "clean broker")
"""What is bounced, and how; in turn."""
_MESSAGES_PER_TURN = 20_000
_DELAY_MAX_S = 0.4
_EXAMPLES_MAX = 20


class Bounce(msgspec.Struct, frozen=True, kw_only=True):
    """One bounce: when so many messages are visible, and a moment later, so that it hits any step of an epoch."""

    kind: str
    at_rows: int
    delay_s: float


class Bounced(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bounce that was done, and how long it took from its beginning to the next newly visible message."""

    kind: str
    at_rows: int
    seconds: float


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run has found, as it stands in the file. Made by ``conclude`` only."""

    version: int
    verdict: Verdict
    why: tuple[str, ...]
    seed: int
    messages: int
    transaction: int
    started: str
    seconds: float
    """From the job's first start to the last message visible; without the audit."""
    bounces: Counts
    """By kind, those that were done."""
    planned: Counts
    done: tuple[Bounced, ...]
    rows: int
    """Visible in the end."""
    seen_meanwhile: int
    """By the reader that read all the time."""
    epochs: int
    transactions: Mapping[int, int]
    """How many transactions carried so many messages."""
    anomalies: Counts
    """By every name that the auditor knows, zero too."""
    examples: tuple[str, ...]
    machine: Mapping[str, str | int | float] = {}
    versions: Mapping[str, str] = {}


def plan_bounces(messages: int, seed: int) -> tuple[Bounce, ...]:
    """Plan all kinds in turn, once at least, evenly over the messages. The same seed gives the same plan."""
    draw = random.Random(f"{seed}/{messages}/bounces")
    count = len(KINDS) * max(1, round(messages / _MESSAGES_PER_TURN))
    return tuple(
        Bounce(
            kind=KINDS[number % len(KINDS)],
            at_rows=messages * (number + 1) // (count + 1),
            delay_s=round(draw.uniform(0, _DELAY_MAX_S), 3),
        )
        for number in range(count)
    )


def sizes(decisions: Iterable[Decision]) -> dict[int, int]:
    """Count the committed transactions by the messages that they carried, most frequent first."""
    found = Counter(
        slot.rows
        for decision in decisions
        if decision.is_commit
        for slot in decision.slots
        if slot.rows and slot.slot >= 0  # of a folded epoch there is only a sum
    )
    return dict(found.most_common())


def conclude(  # noqa: PLR0913  what was found, each by its name
    *,
    seed: int,
    messages: int,
    transaction: int,
    started: str,
    seconds: float,
    done: tuple[Bounced, ...],
    rows: int,
    seen_meanwhile: int,
    epochs: int,
    transactions: Mapping[int, int],
    anomalies: Mapping[str, int],
    examples: Iterable[str] = (),
    trouble: Iterable[str] = (),
) -> Shape:
    """Judge: anomalies before inconclusive before clean, and why it is not clean. Pure."""
    planned = Counter(each.kind for each in plan_bounces(messages, seed))
    bounces = Counter(each.kind for each in done)
    doubts = list(trouble)
    doubts += [
        f"{count} bounces were planned of kind {kind}, {bounces[kind]} were done"
        for kind, count in planned.items()
        if bounces[kind] < count
    ]
    if seen_meanwhile < messages:
        doubts.append(f"the reader that read all the time has seen {n(seen_meanwhile, 'message')}")
    if max(transactions, default=0) != transaction:
        doubts.append(f"the largest transaction carried {max(transactions, default=0):,} messages")
    found = [f"{count:,} {name.replace('_', ' ')}" for name, count in anomalies.items() if count]
    verdict: Verdict = "clean"
    if found or doubts:
        verdict = "anomalies" if found else "inconclusive"
    return Shape(
        version=VERSION,
        verdict=verdict,
        why=(*found, *doubts),
        seed=seed,
        messages=messages,
        transaction=transaction,
        started=started,
        seconds=round(seconds, 1),
        bounces={kind: bounces[kind] for kind in KINDS},
        planned={kind: planned[kind] for kind in KINDS},
        done=done,
        rows=rows,
        seen_meanwhile=seen_meanwhile,
        epochs=epochs,
        transactions=transactions,
        anomalies=anomalies,
        examples=tuple(examples)[:_EXAMPLES_MAX],
    )
