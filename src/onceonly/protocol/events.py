"""What can happen to the protocol. Frozen, and validated when built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.model import Inputs, Link, Outcome, Passed, Receipt, Span, Vote


@dataclass(frozen=True, slots=True)
class ChainRead:
    """The log was read: the epoch's links and receipt, and the last link of the epoch before with its receipt.

    ``newest`` is the newest epoch that the log knows, None for an empty log; where it is an earlier one, ``last``
    is its last link and ``last_receipt`` its receipt, and ``passed`` what Spark has noted of the first epoch between
    that has no decision. ``inputs`` and ``inputs_before`` are what Spark's checkpoint says now of this epoch's input
    and of that of the epoch before; None where nobody could look. ``span`` is what Spark itself reads in this epoch,
    None where that is known from the epoch before, or cannot be told. ``owners`` are the applications that put the
    log's links, oldest link first, neighbours named once; those of folded epochs, and unknown ones, are left out.
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
    """The outside world could not be asked, or not completely. This means unknown, not none."""

    reason: str


@dataclass(frozen=True, slots=True)
class VotesCollected:
    """Every slot has voted VOTE_COMMIT."""

    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """The epoch is ``age_s`` seconds old; ``expiring`` says which prepared transactions are gone or about to be.

    ``settings`` name the target of each sink as it is now, where something is prepared. ``unsynced`` says what of
    Spark's checkpoint a loss of power could take away; ``inputs`` is what it says of the epoch's input now, and
    ``span`` what Spark itself reads in it, None where nobody could look.
    """

    age_s: float
    expiring: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    unsynced: str = ""
    inputs: Inputs | None = None
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class InputsRestored:
    """Spark's checkpoint says again what was decided; ``files`` are those that did not."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InputsNotRestored:
    """Spark's checkpoint says something else than was decided, and it cannot be made to say it again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """A slot failed or stayed silent, or the query was stopped: VOTE_ABORT."""

    votes: tuple[Vote, ...] = ()
    reason: str = ""


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
    | Aborted
)
