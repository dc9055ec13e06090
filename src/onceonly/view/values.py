"""What is drawn of a checkpoint: frozen values, in the order of its log. No clock, no disk.

``story`` makes them. Times are seconds since 1970, by the clock of whoever took the step: they only place it. Whatever
the log does not tell is None, and is drawn as unknown.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.operations.offsets import Partition
    from onceonly.operations.states import EpochState
    from onceonly.ports.standing import Part

DRIVER: Final = "driver"
"""The lane of planners, commit processes and operators' commands."""
EXECUTORS: Final = "executors"
"""The lane of slots."""


WRITE, DECIDE, COMMIT = "write", "decide", "commit"
"""The phases of an epoch: plan to last vote, to decision, to receipt."""


def lane_of(sink: str) -> str:
    """Name the lane of a sink, which no sink's name can be."""
    return f"sink {sink}"


class What(enum.StrEnum):
    """What a mark stands for; the value is its name for people, too."""

    BARRIER = "barrier"
    PLAN = "plan"
    VOTE = "vote"
    DECISION = "decision"
    ABORT = "abort"
    SKIPPED = "skipped"
    COMMITTED = "committed"
    DOUBT = "in doubt"
    RECOVERED = "recovered"
    SWEPT = "swept"
    LOST = "lost"
    TRIED = "tried once"
    RECEIPT = "receipt"
    NOTED = "noted by Spark"
    BEGAN = "run began"
    ENDED = "run ended"
    CUT = "run cut off"
    BY_HAND = "by hand"
    FOLDED = "folded epoch"
    HEARD = "heard of"
    """Told by the event log alone, of a try that no decision came of."""


class Work(enum.StrEnum):
    """What a bar stands for."""

    RUN = "run"
    WRITING = "writing"
    COMMITTING = "committing"
    DOUBT = "in doubt since the decision"
    """Until it is settled, or until the process that finished what another one had decided."""
    FOLDED = "folded: one line of history"
    UNHEARD = "begun, and nothing more was heard of it"


class Level(enum.StrEnum):
    """How a checkpoint stands."""

    SAFE = "safe"
    """Everything that was decided is committed."""
    WORKING = "working"
    """Something is under way, and a run sees to it."""
    WAITING = "waiting"
    """Something is unfinished that the next start finishes by itself; no decision is in doubt, and nothing lost."""
    STUCK = "stuck"
    """Something is decided and not known to be committed, or was lost, and no run sees to it."""
    UNKNOWN = "unknown"
    """It cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One step. ``at`` is None where no clock was noted; ``place`` is where it is drawn: never before the step before.

    ``skewed`` says that its clock contradicts the log's order. ``told`` is a sentence without its full stop. ``file``
    is below the checkpoint. ``slot`` and ``sink`` are of votes and of what became of their transactions, ``plan`` names
    the plan by which a link or a vote came, ``size`` how many bytes of Arrow the rows of a vote were.
    """

    what: What
    lane: str
    told: str
    place: float | None = None
    at: float | None = None
    skewed: bool = False
    by: str = ""
    record: str = ""
    file: str = ""
    sink: str = ""
    slot: int | None = None
    rows: int | None = None
    size: int | None = None
    checksum: str = ""
    transaction: str = ""
    plan: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Something that took time, between two places; ``end`` is None where it is not known to have ended."""

    work: Work
    lane: str
    told: str
    begin: float
    end: float | None = None
    sink: str = ""
    slot: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of an epoch: ``seconds`` is None where clocks at its ends are not known, or contradict the order."""

    name: str
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One epoch. ``words`` say its state; ``marks`` are its steps in the log's order, ``bars`` what took time.

    Of one that is ``folded`` there is one line: its decision, how long it took, rows and transactions of each sink.
    ``once`` says how often its rows were written, ``slow`` which phase and which slot took longest, ``behind`` how much
    its sources had that was not read, ``behind_s`` how old the place was at which it began. ``ranges``, of its sources,
    and ``parts``, of its targets, are there where an epoch was read in full.
    """

    number: int
    state: EpochState
    words: str
    folded: bool = False
    at: float | None = None
    marks: tuple[Mark, ...] = ()
    bars: tuple[Bar, ...] = ()
    phases: tuple[Phase, ...] = ()
    once: str = ""
    slow: str = ""
    sinks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    aborts: int = 0
    pending: int = 0
    behind: int | None = None
    behind_s: float | None = None
    ranges: tuple[tuple[Partition, ...], ...] = ()
    parts: tuple[tuple[str, Part], ...] = ()
    note: str = ""

    @property
    def name(self) -> str:
        return f"chk-{self.number}"

    @property
    def rows(self) -> int | None:
        """Rows of all sinks together; None where nothing is decided."""
        return sum(rows for rows, _ in self.sinks.values()) if self.sinks else None

    @property
    def in_doubt(self) -> tuple[Mark, ...]:
        """Its transactions that are decided and not known to be committed."""
        return tuple(mark for mark in self.marks if mark.what is What.DOUBT)

    def phase(self, name: str) -> float | None:
        """Return the seconds of a phase; None where they are not known."""
        return next((each.seconds for each in self.phases if each.name == name), None)

    @property
    def decided_s(self) -> float | None:
        """Return the seconds from plan to decision; None where a part of them is not known."""
        return _sum([each.seconds for each in self.phases if each.name != COMMIT])

    @property
    def seconds(self) -> float | None:
        """Return the seconds from plan to receipt; None where a part of them is not known."""
        return _sum([each.seconds for each in self.phases])


def _sum(seconds: list[float | None]) -> float | None:
    return sum(each for each in seconds if each is not None) if seconds and None not in seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One sentence for each question; an empty one has nothing to say. What is stuck is said first.

    ``safe`` says what is settled, ``stuck`` what is not, ``since`` since when (seconds since 1970, None where that is
    not known), ``waits`` who waits for it, ``next_step`` what happens or is to be done, ``command`` what to type.
    ``at_latest`` says that it was so by then, and may have been so before: the record of it has no time.
    """

    level: Level
    safe: str
    stuck: str = ""
    since: float | None = None
    at_latest: bool = False
    waits: str = ""
    next_step: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A checkpoint as it is drawn; everything is in the log's order, oldest first.

    ``marks`` and ``bars`` are of no epoch: runs, and what operators did by hand. ``lanes`` are the driver, executors,
    and then each sink; ``known`` is how many epochs there are, None where nobody counted; ``left_out`` says in
    sentences what is there and is not drawn, ``skew`` what is wrong with whose clock, ``name`` what the query is
    called, ``runs_left`` how many older runs are kept and were not read.
    """

    query: str
    address: str
    path: str
    run: str
    who: str
    promise: str
    verdict: Verdict
    lanes: tuple[str, ...]
    epochs: tuple[Epoch, ...] = ()
    marks: tuple[Mark, ...] = ()
    bars: tuple[Bar, ...] = ()
    known: int | None = None
    left_out: tuple[str, ...] = ()
    skew: tuple[str, ...] = ()
    name: str = ""
    runs_left: int = 0

    @property
    def called(self) -> str:
        """The query for people: its name, where it has one, and its id."""
        return f"{self.name} {self.query}".strip()

    def epoch(self, number: int) -> Epoch | None:
        """Return an epoch by its number; None where it is not drawn."""
        return next((each for each in self.epochs if each.number == number), None)

    @property
    def in_doubt(self) -> tuple[tuple[Epoch, Mark], ...]:
        """All transactions that are decided and not known to be committed."""
        return tuple((epoch, mark) for epoch in self.epochs for mark in epoch.in_doubt)
