"""What the protocol asks to be carried out. The runtime carries out, and answers with an event."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from onceonly.model import InputFile, Link, Plan, Receipt, Vote


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
    REFUSED = "refused"
    LATE = "late"
    UNSYNCED = "unsynced"
    MOVED = "moved"
    RESTORED = "restored"
    EXCHANGED = "exchanged"
    LOST = "lost"
    MISMATCH = "mismatch"
    REPLAY = "replay"
    BARRIER = "barrier"
    SETTINGS = "settings"
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
