"""What can be wrong in the outside world: each anomaly's name and one sentence. Names follow Jepsen's where it has one.

Pure. The names are those of the JSON reports, and never change their meaning.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from onceonly.model import Guarantee

if TYPE_CHECKING:
    from typing import Self


class Anomaly(enum.StrEnum):
    """One way in which the world can differ from the promise. The value is its name in reports."""

    sentence: str
    """What it means."""

    def __new__(cls, name: str, sentence: str = "") -> Self:  # looking one up needs the name alone
        self = str.__new__(cls, name)
        self._value_ = name
        self.sentence = sentence
        return self

    LOST = "lost", "A row went in, its time has come, and no reader gets it."
    DUPLICATED = "duplicated", "A row is visible more often than it went in."
    ABORTED_READ = (
        "aborted_read",
        "A reader got a row of an attempt that was given up: the row vanished again, or stands though it is void.",
    )
    TORN_TRANSACTION = (
        "torn_transaction",
        "Of one transaction (one sink's slot in one epoch), some rows are visible and some are not.",
    )
    PARTIAL_EPOCH = (
        "partial_epoch",
        "An epoch is visible in one sink, and not or not whole in another one that is under the same decision.",
    )
    HALF_EPOCH = (
        "half_epoch",
        "A reader got some rows of an epoch and not yet the others, from a sink that shows whole epochs.",
    )
    VISIBLE_BEFORE_DECISION = (
        "visible_before_decision",
        "A reader got a row before its epoch was decided, or though it never was.",
    )
    OUT_OF_ORDER = (
        "out_of_order",
        "Two rows of one input partition are in the other order in one output partition or file.",
    )
    STALE_UPSERT = "stale_upsert", "A key's standing value is older than the newest one that was decided."
    FOREIGN = "foreign", "A visible row is none that went in, byte for byte: foreign or corrupt."
    UNSEEN_AFTER_HEALING = (
        "unseen_after_healing",
        "A decided row is in the target, and after the faults are over a read_committed reader does not get it.",
    )
    ORPHAN = "orphan", "Something of ours was left: an open transaction, a staging file, a prepared id."
    LOG_MISMATCH = (
        "log_mismatch",
        "The decision log, Spark's commits/N and what the target shows do not tell the same story.",
    )


ALLOWED: dict[Guarantee, frozenset[Anomaly]] = {
    Guarantee.EXACTLY_ONCE: frozenset(),
    # What is written is visible at once, so it may be before its decision, and again after a replay.
    Guarantee.AT_LEAST_ONCE: frozenset(
        {Anomaly.DUPLICATED, Anomaly.VISIBLE_BEFORE_DECISION, Anomaly.ABORTED_READ}
    ),
    # Each sink has one try, so a transaction is there or not; a lost newest value leaves the older one.
    Guarantee.AT_MOST_ONCE: frozenset({Anomaly.LOST, Anomaly.PARTIAL_EPOCH, Anomaly.STALE_UPSERT}),
}
"""The anomalies that a guarantee does not exclude. They are counted all the same."""
SEEN_EARLY: frozenset[Anomaly] = frozenset({Anomaly.VISIBLE_BEFORE_DECISION})
"""Those that rows by key do not exclude besides, where they are seen early: the next try takes their place."""
