"""What goes to and fro between the protocol and its runtime: commands, and the events that answer them. Frozen.

The runtime carries a command out, and answers with the event that the command's text names.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.model import InputFile, Inputs, Link, Outcome, Passed, Plan, Receipt, Span, Vote

# --- commands -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadChain:
    """Read the epoch's chain. Answer: ``ChainRead``, with the log's owners where ``owners`` asks for them."""

    epoch: int
    owners: bool = False


@dataclass(frozen=True, slots=True)
class PutLink:
    """Put the link if its number is free, durably. Answer: ``LinkPersisted``, ``LinkTaken``.

    Where neither can be told, the run ends there without an answer: the next one reads what stands, and puts a link
    under the same number where nothing does.
    """

    link: Link


@dataclass(frozen=True, slots=True)
class CheckPrepared:
    """Measure the epoch's age, ask the sinks which of the link's handles will end soon, and see to Spark's checkpoint.

    What a replay of the epoch reads of it is durable, or the answer says that it is not. Answer: ``Checked``.
    """

    plan: Plan
    link: Link


@dataclass(frozen=True, slots=True)
class RestoreInputs:
    """Write Spark's files as these decisions had them. Answer: ``InputsRestored``, ``InputsNotRestored``.

    All or nothing, durably. ``discard`` is a barrier that was planned from wrong ones and goes before they are written,
    unless the file says something else by now, or ``claim``, under which it goes, is not the last link any more.
    """

    links: tuple[Link, ...]
    discard: InputFile | None = None
    claim: Link | None = None


@dataclass(frozen=True, slots=True)
class SyncLink:
    """Make a link that was read durable: its writer may have died before it was. Answer: ``LinkPersisted``."""

    link: Link


@dataclass(frozen=True, slots=True)
class CommitHandle:
    """Commit the vote's handle. Answer: ``Resolved``. ``once`` forbids a retry (at most once)."""

    vote: Vote
    link: Link
    once: bool = False


@dataclass(frozen=True, slots=True)
class AbortHandle:
    """Abort a handle that no link names nor can name. No answer."""

    vote: Vote


@dataclass(frozen=True, slots=True)
class PutReceipt:
    """Tell each sink that its epoch is complete, then note it durably. Answer: ``ReceiptPersisted``."""

    receipt: Receipt
    link: Link


@dataclass(frozen=True, slots=True)
class Sweep:
    """Abort and fence what this query has open, but for ``keep``. Answer: ``Swept``, ``SweepFailed``, ``LinkTaken``.

    A sweep voids other runs' votes, so it is allowed only while ``link`` is the last of all. The runtime lists
    first, then looks whether ``link`` still is the last, then fences what it listed: a newer run begins its
    transactions after its own link, so none of them can be in a list that is older than that look.
    """

    link: Link
    keep: frozenset[str]


@dataclass(frozen=True, slots=True)
class StartTasks:
    """The epoch is resolved: let its tasks run by this plan. No answer; the votes come to ``resume``."""

    plan: Plan


class ReportKind(enum.StrEnum):
    """What people are told of; the name of its event."""

    REPLAY_DIFFERS = "replay.differs"
    """The output stands, but the replay of its epoch gave other rows."""
    TARGET_CHANGED = "target.changed"
    """Nothing was pending in a sink's target, and now it has another one."""
    EPOCH_SKIPPED = "epoch.skipped"
    """Spark has noted an epoch that onceonly did not decide; it has no rows, or was taken over as it is."""


@dataclass(frozen=True, slots=True)
class Report:
    """Tell people loudly, and go on. No answer."""

    kind: ReportKind
    message: str


class StopReason(enum.StrEnum):
    """Why the protocol stops; the runtime makes a typed error of it."""

    SUPERSEDED = "superseded"
    OVERTAKEN = "overtaken"
    IN_DOUBT = "in doubt"
    DELAYED = "delayed"
    UNSWEPT = "unswept"
    REFUSED = "refused"
    LATE = "late"
    UNSYNCED = "unsynced"
    MOVED = "moved"
    RESTORED = "restored"
    EXCHANGED = "exchanged"
    LOST = "lost"
    MISMATCH = "mismatch"
    LETTERS = "letters"
    REPLAY = "replay"
    BARRIER = "barrier"
    SETTINGS = "settings"
    OWED = "owed"
    SHARED = "shared"
    BRANCH = "branch"
    GAP = "gap"
    PASSED = "passed"
    FOREIGN_VOTE = "foreign vote"


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the query. Nothing else is done: what is open stays open, what is decided stays decided."""

    reason: StopReason
    detail: str


Command: TypeAlias = (
    ReadChain
    | CheckPrepared
    | RestoreInputs
    | PutLink
    | SyncLink
    | CommitHandle
    | AbortHandle
    | PutReceipt
    | Sweep
    | StartTasks
    | Report
    | Stop
)


# --- events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChainRead:
    """The log was read: the epoch's links and receipt, and the last link of the epoch before with its receipt.

    ``newest`` is the newest epoch that the log knows, None for an empty log; where it is an earlier one, ``last``
    is its last link and ``last_receipt`` its receipt, and ``passed`` what Spark has noted of the first epoch between
    that has no decision. ``inputs`` and ``inputs_before`` are what Spark's checkpoint says now of this epoch's input
    and of that of the epoch before; None where nobody could look, or Spark is yet to plan the epoch. ``span`` is what
    Spark itself reads in this epoch, None where that is known from the epoch before, or cannot be told. ``owners`` are
    the applications that put the log's links, oldest link first, neighbours named once; those of folded epochs, and
    unknown ones, are left out.
    """

    links: tuple[Link, ...]
    receipt: Receipt | None
    previous: Link | None = None
    previous_receipt: Receipt | None = None
    newest: int | None = None
    last: Link | None = None
    last_receipt: Receipt | None = None
    passed: Passed | None = None
    inputs: Inputs | None = None
    inputs_before: Inputs | None = None
    span: Span | None = None
    owners: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if [link.index for link in self.links] != list(range(len(self.links))):
            message = f"links out of order: {[link.name for link in self.links]}"
            raise ValueError(message)


@dataclass(frozen=True, slots=True)
class LinkPersisted:
    """This link is durable, and it is the one that was put (or read and synced)."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkTaken:
    """Another link stands where ours should be: a newer run has claimed the epoch, or an older one decided it."""

    link: Link


@dataclass(frozen=True, slots=True)
class Resolved:
    """A commit was answered."""

    vote: Vote
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ReceiptPersisted:
    """The receipt is durable."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What this query had open and no link names is aborted and fenced."""

    transactions: int


@dataclass(frozen=True, slots=True)
class SweepFailed:
    """The outside world could not be asked, or not completely. This means unknown, not none.

    ``needs`` says what somebody has to do first, where to ask again does not help: a permission to grant.
    """

    reason: str
    needs: str = ""


@dataclass(frozen=True, slots=True)
class VotesCollected:
    """Every slot has voted VOTE_COMMIT."""

    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """The epoch is ``age_s`` seconds old; ``expiring`` says which prepared transactions are gone or about to be.

    ``settings`` name the target of each sink as it is now, where something is prepared. ``unsynced`` says what of
    Spark's checkpoint a loss of power could take away; ``inputs`` is what it says of the epoch's input now, and
    ``span`` what Spark itself reads in it, None where nobody could look. ``votes`` are those that the sinks will take,
    where they are others than the link's, None for the link's.
    """

    age_s: float
    expiring: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    unsynced: str = ""
    inputs: Inputs | None = None
    span: Span | None = None
    votes: tuple[Vote, ...] | None = None


@dataclass(frozen=True, slots=True)
class InputsRestored:
    """Spark's checkpoint says again what was decided; ``files`` are those that did not."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InputsNotRestored:
    """Spark's checkpoint says something else than was decided, and it cannot be made to say it again."""

    reason: str


Event: TypeAlias = (
    ChainRead
    | LinkPersisted
    | LinkTaken
    | Resolved
    | ReceiptPersisted
    | Swept
    | SweepFailed
    | VotesCollected
    | Checked
    | InputsRestored
    | InputsNotRestored
)
