"""The values of the protocol. All frozen; all of them survive JSON and pickle."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from onceonly import offsets


class Guarantee(enum.StrEnum):
    """What a sink promises for each row of its input."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"


class Visible(enum.StrEnum):
    """When rows of exactly-once are seen."""

    DECIDED = "decided"
    """Exactly once, seen when decided."""
    EARLY = "early"
    """Exactly once by key, seen early: as they are written; what a later try writes of a key takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """When and where something was written, for people: nothing is ever decided by it, and it is not compared.

    ``at`` is the writer's wall clock as text, UTC with milliseconds (``2026-03-01T12:00:00.000Z``); ``host`` and
    ``pid`` name the process.
    """

    at: str = ""
    host: str = ""
    pid: int = 0


def seconds_of(stamp: Stamp | None) -> float:
    """Return the moment of a stamp in seconds since 1970; 0 where it is not known or cannot be read. Pure."""
    try:
        return datetime.fromisoformat(stamp.at).timestamp() if stamp is not None else 0.0
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a sink can do, declared by its class and asked before the first record.

    ``guarantees`` are the promises that it can keep. ``recovers`` says that it can list the leftovers of a query, so
    that losers' transactions are swept. ``commits_at_once`` is how many handles its ``commit_many`` is given at most;
    ``whole_epochs`` says that it is always given all handles of an epoch in one call, however many. ``gives_back`` says
    that its ``write`` can give back the rows that its target will never take. ``early`` says that it can show rows
    before they are decided, exactly once by key. ``lacks`` says why it promises no more, for who asks for more.
    """

    guarantees: frozenset[Guarantee]
    recovers: bool = False
    commits_at_once: int = 1
    whole_epochs: bool = False
    gives_back: bool = False
    early: bool = False
    lacks: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """The durable name of a prepared transaction, no secret: enough to commit, abort or look it up from any process.

    ``transaction`` is unique among all of the query that can be open at a time; ``data`` is the sink's own, JSON only.
    """

    transaction: str
    data: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """VOTE_COMMIT of one attempt at one slot. Failing, or staying silent, is VOTE_ABORT.

    ``handle`` is None where the slot was empty (or, at least once, where the rows are already visible).
    ``checksum`` is order-independent over the slot's rows: the algorithm's name, a colon, and the sum of row hashes
    modulo 2**64 as 16 hex digits; the oldest have no name, and none can be compared with them.
    For people: ``stamp`` is when and where it was given; ``bytes`` is the rows' size in Arrow, 0 before format 3.
    """

    sink: str
    epoch: int
    slot: int
    plan: str
    run: str
    attempt: str
    rows: int
    checksum: str
    handle: Handle | None = None
    stamp: Stamp | None = field(default=None, compare=False)
    bytes: int = field(default=0, compare=False)


class LinkKind(enum.StrEnum):
    """The two words a coordinator can say about an epoch, and one for an epoch that it had no say in."""

    COMMIT = "GLOBAL_COMMIT"
    ABORT = "ABORT"
    SKIPPED = "SKIPPED"
    """Spark has noted the epoch and no sink of the query's was asked for a decision; ``reason`` is a ``Skip``."""


class Skip(enum.StrEnum):
    """Why an epoch that Spark has noted has no decision."""

    UNCHANGED = "unchanged"
    """It has no rows: its end offsets are those of the epoch before (state repartitioned, nothing to write)."""
    FOREIGN = "foreign"
    """Another sink wrote it, or a foreachBatch function returned without onceonly; the user took it over."""
    SWALLOWED = "swallowed"
    """A try at it failed, and the foreachBatch function kept the error back; the user took it over."""
    SAVEPOINT = "savepoint"
    """The query begins after it, with a savepoint of another query, whose the rows are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """An epoch that Spark has noted and the log has no decision of.

    ``barrier`` are its end offsets, empty where Spark no longer keeps them; ``unchanged`` says that it cannot have had
    rows; ``taken`` that the user has asked to take it over as it is; ``inputs`` are the files that say what it read.
    """

    epoch: int
    barrier: tuple[str, ...] = ()
    unchanged: bool = False
    taken: bool = False
    inputs: Inputs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkUse:
    """How a query uses a sink, for tools that finish its transactions while the job is down. Never a secret.

    ``sink`` is the name of a built-in sink, or ``package.module:Class``; ``options`` are its own as given, without the
    secret ones; ``columns`` names and Spark types of its rows, empty where not known or many, and before format 4.
    """

    sink: str
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    options: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file of Spark's checkpoint that says what an epoch reads, by its name below the checkpoint: ``offsets/7``.

    ``digest`` and ``text`` are of what the file says of this epoch: of a compacted list of files, the newest entries.
    ``text`` is None where it is too long to be kept; then the file can be compared and not be written again.
    """

    name: str
    digest: str
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What Spark's checkpoint says of the input of one epoch: ``offsets/N``, then lists of files in ``sources``.

    Without files, ``offsets/N`` is not there.
    """

    files: tuple[InputFile, ...] = ()

    @property
    def barrier(self) -> tuple[str, ...] | None:
        """The end offsets, one JSON text a source; None where they are not there."""
        text = self.files[0].text if self.files else None
        return None if text is None else offsets.barrier(text)

    @property
    def digest(self) -> str:
        """One word for all of it."""
        names = "".join(f"{each.name} {each.digest}\n" for each in self.files)
        return hashlib.sha256(names.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What Spark reads in an epoch by its own memory, whatever its files say: offsets of its sources, in no order."""

    epoch: int
    starts: tuple[str, ...]
    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link of an epoch's decision chain: ``chk-{epoch}``, link ``{epoch}.{index}``.

    ``votes`` are decided by this link; ``carried`` were decided *and committed* under an earlier link of the
    same epoch and still belong to its output. ``barrier`` holds the end offsets, one JSON text per source.
    ``settings`` identify each sink's target, so that pending handles are never sent elsewhere; ``uses`` say how
    to reach it. ``planned`` is when and where the plan was handed out by which its votes came, ``stamp`` when and where
    the link was put; both are None before format 2. ``inputs`` of a decision are the files of Spark's that a replay
    reads, so that they can be compared and written again; None where nobody could look, and before format 2.
    """

    epoch: int
    index: int
    kind: LinkKind
    plan: str
    run: str
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    votes: tuple[Vote, ...] = ()
    carried: tuple[Vote, ...] = ()
    barrier: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    uses: Mapping[str, SinkUse] = field(default_factory=dict)
    reason: str = ""
    planned: Stamp | None = field(default=None, compare=False)
    stamp: Stamp | None = field(default=None, compare=False)
    inputs: Inputs | None = None

    @property
    def name(self) -> str:
        return f"{self.epoch}.{self.index}"

    @property
    def application(self) -> str:
        """Name the application that put it: of Spark, or of an operator's command; empty where that is not known."""
        return self.plan.rpartition(".")[0]

    @property
    def pending(self) -> tuple[Vote, ...]:
        """The votes whose handles this link commits."""
        return tuple(vote for vote in self.votes if vote.handle is not None)

    @property
    def output(self) -> tuple[Vote, ...]:
        """All votes that make up the epoch's output."""
        return self.carried + self.votes


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The durable note that every handle of link ``{epoch}.{index}`` is committed.

    ``outcomes`` counts the commits by the outcome's name; ``seconds`` is the time from link to receipt; ``stamp`` is
    when and where it was put.
    """

    epoch: int
    index: int
    plan: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    stamp: Stamp | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the log says around an epoch: its own chain and receipt, and those of the epoch before.

    ``newest`` is the newest epoch that the log knows, None for an empty log; where it is an earlier one, ``last`` is
    its last link and ``last_receipt`` its receipt. ``owners`` are the applications that put the log's links, oldest
    first, where they were asked for. Links and receipts stay as they are; what is not there may have come since.
    """

    links: tuple[Link, ...] = ()
    receipt: Receipt | None = None
    before: tuple[Link, ...] = ()
    before_receipt: Receipt | None = None
    newest: int | None = None
    last: Link | None = None
    last_receipt: Receipt | None = None
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """This commit made the transaction visible."""


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The transaction was visible before; this commit changed nothing."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The outside system will take the commit, but not now.

    ``needs`` says what somebody has to do first, where waiting alone does not help: a permission to grant.
    """

    reason: str
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """Proven not committed, and fenced so that it never will be. The rows must be written again."""

    proof: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Neither done nor failed: nothing may be concluded, nothing is aborted."""

    reason: str


Outcome: TypeAlias = Committed | AlreadyCommitted | RetryLater | Lost | Unknown


class Mode(enum.StrEnum):
    """What the tasks of an epoch do."""

    RUN = "run"
    """Write and prepare."""
    DRAIN = "drain"
    """Run the plan (state stores need it), write nothing, count and compare."""
    TENTATIVE = "tentative"
    """Write and prepare; only slots that match a lost handle will be decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The resolved beginning of one try at an epoch; travels with the writer to tasks and to commit.

    ``id`` is drawn anew whenever an epoch is planned; votes and links carry it. ``index`` is the number that
    the next link must have: a put that finds it taken has been superseded. ``decided`` is the link to compare with
    (drain) or to repair (tentative); ``lost`` and ``carried`` split its output. ``facts`` are what each sink's check
    found out on the driver. ``limit_s`` is how long the epoch may take, None for as long as it takes; ``planned_s`` is
    when it was planned, by the monotonic clock of the driver's machine, and ``stamp`` the same for people. ``inputs``
    is the digest of what Spark's checkpoint said of the epoch's input then, empty where nobody looked. ``strict`` stops
    a drain whose rows are not those that were decided.
    """

    id: str
    epoch: int
    mode: Mode
    index: int
    guarantee: Guarantee
    barrier: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    uses: Mapping[str, SinkUse] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    decided: Link | None = None
    lost: tuple[Vote, ...] = ()
    carried: tuple[Vote, ...] = ()
    limit_s: float | None = None
    planned_s: float = 0.0
    stamp: Stamp | None = field(default=None, compare=False)
    inputs: str = ""
    strict: bool = False


_LETTERS = ".letters"  # a user's sink has no dot in its name


def letters_name(sink: str) -> str:
    """Name the sink that takes the dead letters of a sink. Pure."""
    return f"{sink}{_LETTERS}"


def letters_of(sink: str) -> str | None:
    """Name the sink whose dead letters this one takes; None where it takes none. Pure."""
    return sink.removesuffix(_LETTERS) if sink.endswith(_LETTERS) else None


def handles_of(votes: Iterable[Vote]) -> dict[str, tuple[Handle, ...]]:
    """Return the handles of each sink that has some, by the sink's name. Pure."""
    handles: dict[str, list[Handle]] = {}
    for vote in votes:
        if vote.handle is not None:
            handles.setdefault(vote.sink, []).append(vote.handle)
    return {name: tuple(each) for name, each in handles.items()}


def differing(then: Mapping[str, str | int], now: Mapping[str, str | int]) -> list[str]:
    """Name what of a target, as noted in a decision, is not so now; what older versions did not note is so. Pure."""
    return sorted(key for key, value in then.items() if not _told(key, value) & _told(key, now.get(key)))


def _told(key: str, value: object) -> frozenset[object]:
    """Return what says the same of a target: of ``scheme://one,two/more``, and of several addresses, each node."""
    if key not in {"cluster", "server", "url"} or not isinstance(value, str):
        return frozenset({value})
    scheme, separator, rest = value.rpartition("://")
    hosts, slash, more = rest.partition("/")
    each = [f"{scheme}{separator}{host}{slash}{more}" for host in hosts.split(",")]
    return frozenset(value.split(",") if "://" in scheme else each)
