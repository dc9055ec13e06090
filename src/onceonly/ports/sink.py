"""What a sink must offer, and what it is told.

``TwoPhaseCommitSink`` is the contract of a sink, and the base class that people write theirs on: five methods, and more
for those that need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from onceonly.model import Capabilities, Guarantee, Handle, Mode, differing
from onceonly.options import Option, read_options
from onceonly.ports.standing import Standing, Stands

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from onceonly.model import Outcome
    from onceonly.ports.standing import Hanging, Held, Part, Untold

T = TypeVar("T")

BATCH = "batch-"
"""How the id of a batch begins: it is a query of its own, and many write to one target."""

LETTER_COLUMNS = (
    "code", "why", "row", "query", "sink", "epoch", "slot", "number", "topic", "partition",
)  # fmt: skip
"""The columns of a dead letter as a sink gets them that asks for no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """Where a sink is used. Driver."""

    query: str
    sink: str
    guarantee: Guarantee
    columns: tuple[tuple[str, str], ...] = ()
    """Name and Spark type (``simpleString``) of each column; empty where not known (at recovery from outside)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteContext:
    """Where one attempt writes. Executor.

    ``run`` is one life of the driver, ``attempt`` is unique among all attempts of that life (Spark's attempt
    number is not: it restarts at 0 when a stage is retried). ``facts`` are what ``check`` found on the driver.
    ``mode`` is tentative where a part of the epoch is committed already. ``gives_back`` says that ``write`` may give
    back refused rows: there is a sink that takes dead letters. ``index`` is the plan's: of two tries at an epoch, the
    later one has the greater. ``early`` says that rows are to be seen as they are written (``onceonly.visible``).
    """

    query: str
    sink: str
    run: str
    epoch: int
    plan: str
    slot: int
    attempt: str
    guarantee: Guarantee
    mode: Mode = Mode.RUN
    facts: Mapping[str, str | int] = field(default_factory=dict)
    gives_back: bool = False
    index: int = 0
    early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A row that the target will never take. Executor.

    ``row`` is its place in the batch that was written, from 0. ``code`` is one word for the kind of refusal, such as
    TOO_LARGE; ``why`` says in a sentence what is wrong with the row, and ``next_step`` what the reader does.
    """

    row: int
    code: str
    why: str
    next_step: str = "mend the row, or filter it out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A transaction of this query that was found open in the outside world.

    ``epoch`` is the one that it belongs to, where its name tells, and ``committed`` the newest one that its sink is
    known to have committed: where they are newer than the checkpoint, an older checkpoint was restored, and nothing is
    swept. ``is_decided`` says that its commit was begun, as only a decision lets it be: where the log names it nowhere,
    that is one, too. ``is_open`` is false where the transaction has ended and only what it needed is left: it is tidied
    up, and nobody is told that something was aborted.
    """

    transaction: str
    data: Mapping[str, str | int] = field(default_factory=dict)
    epoch: int | None = None
    is_open: bool = True
    is_decided: bool = False
    committed: int | None = None

    @property
    def handle(self) -> Handle:
        return Handle(transaction=self.transaction, data=self.data)


class TwoPhaseCommitSink(ABC, Generic[T]):
    """A sink of anyone's. Options in, five methods, and exactly-once is the runtime's work.

    An instance lives in one process. The runtime builds it from ``options`` on the driver and in every
    executor worker; it is never pickled. ``T`` is whatever the sink keeps for an open transaction.
    """

    name: ClassVar[str]
    """The format is ``onceonly.{name}``, and ``{name}`` is the default name of the sink in handles and logs."""
    capabilities: ClassVar[Capabilities] = Capabilities(guarantees=frozenset({Guarantee.EXACTLY_ONCE}))
    declared: ClassVar[tuple[Option, ...]] = ()
    """The options that the sink understands; any other is refused. What is marked secret is never shown."""
    instead: ClassVar[Mapping[str, str]] = {}
    """What to do about options, in lower case, that other writers to the same system take: the error's next step."""
    letter_columns: ClassVar[tuple[str, ...]] = LETTER_COLUMNS
    """What the sink gets of a dead letter, where it takes those of another one; a choice of ``LETTER_COLUMNS``, the
    refused row's ``key`` (binary), and ``value``, the whole letter as a JSON text."""
    place: str = ""
    """A folder in the query's checkpoint, set before any other call, for what sinks keep there; perhaps not made yet. A
    path, or an address as ``s3a://bucket/…`` where the checkpoint is on such a store. Empty where a sink is made
    without a query."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Take and validate the options. Driver and executor; must not touch the outside world.

        Afterwards ``self.options`` gives the value of each declared option by its name. Raises
        ``ConfigurationError`` that names a wrong option.
        """
        self.options: dict[str, Any] = read_options(
            self.declared, options, who=f"the sink {self.name}", instead=self.instead, of_sink=True
        )

    def check(self, context: QueryContext) -> Mapping[str, str | int]:  # noqa: ARG002
        """Look at the outside world before the first record of a run: limits, permissions, columns.

        Driver, once a run, idempotent. Return facts that travel to ``WriteContext.facts``; raise a typed error.
        """
        return {}

    def refresh(self, facts: Mapping[str, str | int]) -> Mapping[str, str | int]:
        """Return the facts of the next epoch of a run, where the target may be changed while it runs.

        For one whose rows are looked at on executors by what it is like: a column that has become wider. Driver, once
        an epoch but the first of a run, by the instance that has checked; only looks. Raises as ``check`` does.
        """
        return facts

    def identity(self) -> Mapping[str, str | int]:
        """Name the target, without secrets. Driver, twice an epoch; by the operator's commands without ``check``.

        It is kept in the decision. Handles that are pending are refused when it has changed since, and an epoch during
        which it changes is run again. Under ``cluster``, ``server`` and ``url`` it may name several nodes, separated by
        commas: it has not changed while one of them is named again.
        """
        return {}

    def overlaps(self, identity: Mapping[str, str | int]) -> bool:
        """Say whether rows of a sink of this class, with this ``identity``, get among this one's. Driver, once a run.

        Then it cannot take this one's dead letters: whoever reads the rows would read them, too. And a target whose
        identity has changed since the last decision lies where that one lay, and is looked back at.
        """
        return not differing(identity, self.identity())

    def expect(self, context: WriteContext) -> None:
        """Hear that an attempt waits for its rows: what it will need can be looked up meanwhile. Must not wait.

        Executor, once an attempt, before ``begin_transaction``. Where no row comes, nothing else is called: it must
        hold nothing that has to be given back.
        """

    @abstractmethod
    def begin_transaction(self, context: WriteContext) -> T:
        """Begin. Executor, once an attempt that has rows; what it makes must be invisible outside."""

    @abstractmethod
    def write(self, transaction: T, batch: pa.RecordBatch) -> Sequence[Refused] | None:
        """Write a batch of at least one row. Executor, any number of times.

        Spark's batches are put together before, up to 20,000 rows or 2 MB; one with more comes as it is, and so does
        the first.

        A row that the target will never take is left out and given back, where ``capabilities.gives_back`` says so and
        the context asks for it: it becomes a dead letter, decided together with the others. Else raise
        ``RecordRefusedError``, which stops the query.
        """

    @abstractmethod
    def pre_commit(self, transaction: T) -> Handle | None:
        """Make all rows durable, still invisible, such that any process can commit them. Executor, once.

        Return the handle, or None for a sink at-least-once: its rows are visible already. Raise to vote abort.
        """

    def discard(self, transaction: T) -> None:
        """Drop a transaction that will not be voted, best effort. Executor, after an error in this attempt."""

    def expiring(self, handles: Sequence[Handle], facts: Mapping[str, str | int], age_s: float) -> str:  # noqa: ARG002
        """Say why prepared transactions may not live until they are committed; empty where nothing speaks against it.

        For a target that drops transactions after a time. Driver, once a try at an epoch, before its decision is
        put, in a thread of its own; only looks. All sinks are asked at the same time, and have 30 s together. None of
        the transactions is older than ``age_s`` seconds; ``facts`` are what ``check`` found. A reason voids the epoch,
        which is run again. An empty answer is no promise: ``commit`` still
        tells what became of each. Raise ``UnavailableError`` where the target had to be asked and does not answer.
        """
        return ""

    def rehearse(self, handles: Sequence[Handle], facts: Mapping[str, str | int]) -> None:
        """See whether the target will take what is prepared, all handles of an epoch together, and change nothing.

        For a target that could refuse a row only when it is committed: after the decision nobody could take it back.
        Driver, once a try at an epoch, the last question before its decision is put. What it raises voids the try:
        ``RecordRefusedError`` or ``ConfigurationError`` stop the query, ``UnavailableError`` has the epoch run again.
        """

    @abstractmethod
    def commit(self, handle: Handle) -> Outcome:
        """Make the rows visible. Driver, from several threads, idempotent and repeatable from any process.

        Return an outcome, and raise only for what no outcome describes; then it is asked again, as for ``RetryLater``,
        and ``InDoubtError`` counts as ``Unknown``. An answer that did not arrive is
        ``Unknown`` or ``RetryLater``, never ``Lost``: ``Lost`` needs proof, and a fence.
        """

    def commit_many(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """Commit many, and return their outcomes in the same order. Driver, from several threads; as ``commit`` else.

        For a target to which many commits cost less than each alone: asked only where ``capabilities.commits_at_once``
        is above 1, for at most so many, and never at most once. Where it raises, each is asked alone by ``commit``.

        With ``capabilities.whole_epochs`` it is the only one that is asked, with all handles of an epoch that are not
        known to be committed, in one call at a time: for a target that shows an epoch in one instant.
        """
        return [self.commit(handle) for handle in handles]

    @abstractmethod
    def abort(self, handle: Handle) -> None:
        """Remove the transaction, and fence it so that a paused writer cannot finish it.

        Driver, from several threads, idempotent.
        """

    def complete(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        """Learn that every handle of an epoch is committed, before its receipt is written. Driver, idempotent.

        For a sink that publishes an epoch as a whole (a manifest, a partition, a message). Called at least once
        for each epoch that has handles of this sink. At most once, a handle whose one try failed is among them:
        look what is there. Raise ``UnavailableError`` to have it called again.
        """

    def make_durable(self, handles: Sequence[Handle]) -> None:
        """See that these, which are committed, stay so through a loss of power.

        For a sink whose ``commit`` leaves that to ``complete``. Driver, idempotent, before another part of their epoch,
        which is lost, is written again: from then on the log says that these are committed, and nobody commits them
        once more. Raise ``UnavailableError`` to have it called again.
        """

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        """See whether the target still holds what it was given, before the ``check`` of a start. Only looks.

        Where it raises anything but ``TargetBehindError`` then, it is called once more after ``check``.
        ``epoch`` is the newest complete one by the log in which this sink has written, ``handles`` are its own, all of
        them committed; none where the target is another one since, elsewhere (``overlaps``). Driver, once a start, in a
        thread of its own. Raise ``TargetBehindError`` where the target went back (a backup was restored). What cannot
        be told must not stop.
        """

    def newest_epoch(self, context: QueryContext) -> int | None:  # noqa: ARG002
        """Return the newest epoch of this query of which the target holds anything, by its own books.

        None where it holds none, or does not tell. An operator's process; driver, at the start of a query that has the
        sink no more. Only looks. Raise ``UnavailableError``.
        """
        return None

    def look_up(self, handle: Handle) -> Standing:  # noqa: ARG002
        """Say what the target has of a transaction, in words. An operator's process; changes and ends nothing.

        Of what was decided long ago, too. Raise ``UnavailableError`` where the target does not answer.
        """
        return Standing(
            stands=Stands.UNKNOWN, told="this sink has no way to look a transaction up without ending it"
        )

    @classmethod
    def parts(cls, handle: Handle, rows: int) -> Iterable[Part]:  # noqa: ARG003
        """Say where a transaction of ``rows`` rows has written, by its handle alone. Pure; an operator's process.

        Return none where the handle does not say it. An error counts as that.
        """
        return ()

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:  # noqa: ARG002
        """See that the target permits what an epoch does, without doing it. An operator's process; only looks.

        ``user`` is the job's on this machine, None where nothing tells that. Return why it cannot be seen, empty where
        it is. Raise ``ConfigurationError`` that names what is missing, ``UnavailableError``.
        """
        return "its rights show only in doing what needs them"

    def held(self, handles: Sequence[Handle]) -> Held | None:  # noqa: ARG002
        """Read what the target holds of one committed epoch; None where it tells no epochs apart, or not so old ones.

        An operator's process, all handles of the sink; only looks. Raise ``UnavailableError``.
        """
        return None

    def held_in_all(self, context: QueryContext) -> Held | Untold | None:  # noqa: ARG002
        """Read what the target holds in all, whoever wrote it; None, or why, where that proves nothing.

        An operator's process; only looks. Raise ``UnavailableError``.
        """
        return None

    def read_back(self, context: QueryContext, handles: Sequence[Handle]) -> Held | None:  # noqa: ARG002
        """Read the rows themselves, of one committed epoch or without handles all that the target holds; add them up.

        ``context.columns`` are those of the rows as they were written. None where it cannot, as ``held`` and
        ``held_in_all`` say what there is. An operator's process; reads a part at a time. Raise ``UnavailableError``.
        """
        return None

    def held_by_epoch(
        self,
        context: QueryContext,  # noqa: ARG002
        links: Mapping[int, int],  # noqa: ARG002
    ) -> Mapping[int, Held] | Untold | None:
        """Count the rows that stand, and add them up by ``context.columns``, by the epoch that wrote each last.

        ``links`` are the numbers of the last links of epochs: a later try than that was nobody's of ours. For rows that
        carry their epoch, and of which each epoch writes a key at most once; None, or why, where the target does not
        tell. An operator's process, once; only looks. Raise ``UnavailableError``.
        """
        return None

    def recover(self, context: QueryContext) -> Iterable[Leftover]:  # noqa: ARG002
        """List what this query has open outside: the sweep aborts what no link names. Driver; only looks.

        Must raise ``UnavailableError`` rather than give a part of the list. Never list foreign things.
        """
        return ()

    def hanging(self) -> Iterable[Hanging]:
        """List what is open in the target under our names, of whichever query, and what nobody can end any more.

        Also of which queries it only remembers what they have committed, where people may want to remove that.
        An operator's process; only looks. Raise ``UnavailableError`` rather than give a part of the list.
        """
        return ()

    def close(self) -> None:
        """Give back connections. Any process, at the end; idempotent."""


Sink: TypeAlias = TwoPhaseCommitSink[Any]
"""Any sink, as the runtime uses it."""
