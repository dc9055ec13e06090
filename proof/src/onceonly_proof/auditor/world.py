"""The values that an audit compares: what went in, what came out, what was decided. Frozen, pure, no I/O.

One :class:`World` is one query: its input, its sinks under one decision, its decision log. Times are seconds of
``time.time()`` on the machine that looked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.model import LinkKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Input:
    """One row that went in. Its value is its identity: no two inputs may have the same.

    ``partition`` is the input partition as barriers name it, ``topic/0`` for Kafka; ``position`` is the row's
    offset there.
    """

    id: int
    partition: str
    position: int
    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Seen:
    """One row that a reader got from a sink.

    ``place`` is the output partition or file; ``order`` is the offset or line in it, -1 where a place has no
    order. ``transaction`` names the transaction or attempt if the place tells it, as the decision log does.
    ``seen_s`` is when this reader got the row first, and ``unseen_s`` when its look before began, which did not get it.
    """

    sink: str
    key: bytes | None
    value: bytes | None
    place: str = ""
    order: int = -1
    transaction: str = ""
    seen_s: float | None = None
    unseen_s: float | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot's share of a decided epoch in one sink. ``transaction`` is empty where nothing had to be committed."""

    sink: str
    slot: int
    rows: int
    transaction: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the decision log and Spark's checkpoint say of one epoch.

    ``kind`` is the last link's word, None where no link is there though something else speaks of the epoch.
    ``ranges`` gives the input of the epoch by input partition: first position, and the position after the last.
    ``slots`` are those of the last link, carried ones too; ``void`` are transactions that an earlier link named
    and the last one does not. ``decided_s`` is when the first COMMIT link was durable, None where nobody noted it:
    no transaction of the epoch may be visible before. ``spark_commit`` says whether ``commits/N`` is there, None
    where Spark no longer keeps it. ``contradictions`` are what the files say against each other, or a file that
    cannot be believed.

    Of folded epochs the log keeps one sum for each sink: their slot has the number -1. Where their barriers are gone,
    too, several come as one value, from ``first`` to ``epoch``.
    """

    epoch: int
    kind: LinkKind | None
    first: int | None = None
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    slots: tuple[Slot, ...] = ()
    void: frozenset[str] = frozenset()
    decided_s: float | None = None
    receipt: bool = False
    spark_commit: bool | None = None
    contradictions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The epoch as people write it."""
        folded = self.first is not None and self.first != self.epoch
        return f"chk-{self.first} to chk-{self.epoch}" if folded else f"chk-{self.epoch}"

    @property
    def is_commit(self) -> bool:
        return self.kind is LinkKind.COMMIT

    @property
    def is_skipped(self) -> bool:
        """Whether Spark noted the epoch and nobody decided it: its input is not due in any sink."""
        return self.kind is LinkKind.SKIPPED


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something of ours that is left in a target: what it is, with its name, for people."""

    sink: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All that an audit knows. Every input becomes one row in each sink, unchanged.

    ``sinks`` are all sinks under the one decision, also those where nothing is visible; in ``upserts`` a key has
    one row, its newest. ``at_end`` is what a fresh reader gets after the faults are over, ``during`` what watching
    readers got meanwhile. ``uncommitted`` is what is in the targets beyond the point where a ``read_committed``
    reader stands now. ``decisions`` is None where there is no log to compare with. ``drained`` says that the query
    has had the time to write all its input; if not, only what lies before the last receipt is due.
    Rows of ``keyless`` sinks show no key. ``whole`` sinks show all rows of an epoch from the same moment on, to readers
    who get the whole sink as it is at one moment.
    """

    sinks: tuple[str, ...]
    inputs: Sequence[Input]
    at_end: Sequence[Seen]
    during: Sequence[Seen] = ()
    uncommitted: Sequence[Seen] = ()
    decisions: Sequence[Decision] | None = None
    orphans: Sequence[Orphan] = ()
    upserts: frozenset[str] = frozenset()
    keyless: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    drained: bool = True
