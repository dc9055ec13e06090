"""Where one try at an epoch can stand.

Planning (driver, before any task)::

    Reading ─▶ Claiming ─▶ SweepingStart ─▶ Running (tentative where a part is committed)
       │          ▲ all or some lost
       ├▶ Restoring ─▶ Stopped, with what was planned wrongly: Withdrawing ─▶ Restoring
       └▶ Syncing ─▶ Resolving ─▶ Receipting
       ├─────────── receipt ──────────┴▶ Draining ─▶ ClaimingNext ─▶ SweepingNext ─▶ Running (drain)
       ├▶ Skipping ─▶ Skipped ─▶ Reading (an epoch before, noted by Spark and decided by nobody)
       └▶ Syncing ─▶ Resolving ─▶ Receipting ─▶ Reading (an epoch before, noted by Spark, decided and not settled)

Deciding (driver, after the votes)::

    Running ─▶ Checking ─▶ Deciding ─▶ Committing ─▶ Receipting ─▶ SweepingEnd ─▶ Done

Giving up (driver, after VOTE_ABORT)::

    Abandoning ─▶ Voiding ─▶ SweepingEnd ─▶ Done
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from onceonly.model import Mode, Plan
from onceonly.protocol.messages import Command, StartTasks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.model import Guarantee, InputFile, Link, Outcome, SinkUse, Vote


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What is fixed for one try at an epoch.

    ``plan`` is the id drawn for this try; it begins with ``application``, the name of the Spark application, and a dot,
    where that is known. ``continues`` is the id of the plan that this same process made for the epoch before, or None:
    if the last link before still carries it, nobody has come between, and the epoch needs no claim. ``late`` says that
    it does not go on from it for the sake of a sink that joins here. ``limit_s`` is how long an epoch that writes may
    take, None for as long as it takes. ``inputs`` is the digest of what Spark's checkpoint says of the epoch's input,
    empty until it is read or where nobody can. ``then`` is the try to go on with, where this one only settles an epoch
    that Spark has noted already; ``forgives`` says that the user takes that one over, whatever it has lost. ``beside``
    are the targets of sinks that the epoch does not write to, and to which the decision before it owes something;
    ``seen`` are the newest links that name those which it writes to, looked up where this process has not used them
    yet.
    """

    epoch: int
    plan: str
    run: str
    guarantee: Guarantee
    application: str = ""
    continues: str | None = None
    late: bool = False
    barrier: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    beside: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    seen: Mapping[str, Link] = field(default_factory=dict)
    uses: Mapping[str, SinkUse] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    limit_s: float | None = None
    inputs: str = ""
    then: Context | None = None
    forgives: bool = False

    def new_plan(self, mode: Mode, *, index: int, decided: Link | None = None) -> Plan:
        """Make the plan of this try, whose next link has this number."""
        return Plan(
            id=self.plan,
            epoch=self.epoch,
            mode=mode,
            index=index,
            guarantee=self.guarantee,
            barrier=self.barrier,
            settings=self.settings,
            uses=self.uses,
            facts=self.facts,
            decided=decided,
            # A drain decides nothing: however long it takes, there is nothing to void.
            limit_s=None if mode is Mode.DRAIN else self.limit_s,
            inputs=self.inputs,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """The chain of the epoch is being read."""

    context: Context


@dataclass(frozen=True, slots=True)
class Skipping:
    """The link of an earlier epoch is being put that Spark has noted and nobody decided."""

    context: Context
    link: Link


@dataclass(frozen=True, slots=True)
class Skipped:
    """The receipt of a skipped epoch is being put; then the chain is read again."""

    context: Context


@dataclass(frozen=True, slots=True)
class Claiming:
    """Our claim is being put: an ABORT link, so that what came before in this epoch is void.

    Where a part of the epoch is committed, the claim is a COMMIT link that repeats the decision.
    """

    context: Context
    link: Link


@dataclass(frozen=True, slots=True)
class SweepingStart:
    """The epoch is ours; what earlier runs left open is being swept."""

    context: Context
    link: Link


@dataclass(frozen=True, slots=True)
class Draining:
    """The epoch is settled. The chain of the next one is being read: it is claimed before the drain begins."""

    context: Context
    link: Link


@dataclass(frozen=True, slots=True)
class ClaimingNext:
    """Our claim of the next epoch is being put, so that leftovers may be swept though nothing new comes."""

    context: Context
    link: Link


@dataclass(frozen=True, slots=True)
class SweepingNext:
    """The next epoch is ours; what earlier runs left open is being swept before the drain."""

    context: Context
    link: Link


@dataclass(frozen=True, slots=True)
class Withdrawing:
    """Our claim of an epoch is being put whose offsets, ``discard``, were planned from a wrong start and are to go."""

    context: Context
    links: tuple[Link, ...]
    discard: InputFile


@dataclass(frozen=True, slots=True)
class Restoring:
    """Spark's checkpoint does not say what was decided; it is being made to, and then the query starts again."""

    context: Context


@dataclass(frozen=True, slots=True)
class Syncing:
    """A decision without receipt was found; before it is acted upon it is made durable."""

    context: Context
    link: Link


@dataclass(frozen=True, slots=True)
class Resolving:
    """Commits of a found decision are under way; ``expected`` is how many there are."""

    context: Context
    link: Link
    expected: int
    outcomes: tuple[tuple[Vote, Outcome], ...] = ()


@dataclass(frozen=True, slots=True)
class Receipting:
    """The receipt is being put; ``found_by`` is the try that has found the decision, None after our own."""

    link: Link
    found_by: Context | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """Tasks run. This state crosses processes: it is the plan."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Checking:
    """All votes are in; before their COMMIT link is put, it is seen whether the epoch is still in time."""

    plan: Plan
    link: Link
    rest: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True)
class Deciding:
    """Our COMMIT link is being put. ``rest`` are tentative votes that it does not name."""

    plan: Plan
    link: Link
    rest: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True)
class Committing:
    """Commits of our own decision are under way; ``expected`` is how many there are."""

    plan: Plan
    link: Link
    expected: int
    outcomes: tuple[tuple[Vote, Outcome], ...] = ()


@dataclass(frozen=True, slots=True)
class SweepingEnd:
    """The epoch is settled; leftovers of its attempts are being swept."""

    link: Link


@dataclass(frozen=True, slots=True)
class Abandoning:
    """A slot voted abort; the chain is read before anything is touched, as Spark aborts failed commits too."""

    plan: Plan
    run: str
    votes: tuple[Vote, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Voiding:
    """Our link after VOTE_ABORT is being put: ABORT, or the former decision repeated."""

    link: Link


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do for this try."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The query must stop."""


State: TypeAlias = (
    Reading
    | Skipping
    | Skipped
    | Claiming
    | SweepingStart
    | Draining
    | ClaimingNext
    | SweepingNext
    | Withdrawing
    | Restoring
    | Syncing
    | Resolving
    | Receipting
    | Running
    | Checking
    | Deciding
    | Committing
    | SweepingEnd
    | Abandoning
    | Voiding
    | Done
    | Stopped
)

Move: TypeAlias = tuple[State, tuple[Command, ...]]
"""The next state, and what is to be carried out."""


def start_tasks(plan: Plan) -> Move:
    """Let the tasks run by a plan."""
    return Running(plan), (StartTasks(plan),)
