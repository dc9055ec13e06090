"""The sink that loaded sinks derive from: writing, committing, fencing and recovery are here, the log is theirs.

One entry of the log makes an epoch visible, and names in the same breath the attempts whose files it adds: so the log
is the only word on an outcome. A file that somebody has removed before its epoch was entered is lost: the entry names
its attempt as void, so that no late driver can add it, and its rows are written again.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from onceonly.families import behind
from onceonly.families.loaded import auditing, hanging, missing
from onceonly.families.loaded.attempt import Attempt
from onceonly.families.loaded.load import Load, app_of, epoch_of, folder_of
from onceonly.families.loaded.options import DECLARED
from onceonly.families.loaded.places import home_at
from onceonly.model import (
    AlreadyCommitted,
    Capabilities,
    Committed,
    Guarantee,
    Handle,
    Lost,
    RetryLater,
    Unknown,
)
from onceonly.ports import Leftover, TwoPhaseCommitSink
from onceonly.ports.standing import Standing, Stands

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from onceonly.families.loaded.attempt import Layout
    from onceonly.families.loaded.places import Home
    from onceonly.model import Outcome
    from onceonly.ports import Option, QueryContext, Refused, WriteContext
    from onceonly.ports.standing import Hanging, Held, Part

TRIES_MAX = 20
"""How often an entry is tried in one commit while others are quicker; then the runtime asks again."""
NONE_YET = -1
"""The newest epoch, as a fact, of a query that has committed nothing."""
NEVER = -1
"""The version before all others."""


class ConflictError(Exception):
    """Somebody has changed the target's log meanwhile: the entry was not made, and the log is to be read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What the target's log says of a query's attempts at an epoch, by their names.

    ``newest`` is the newest epoch that it has an entry of. ``is_whole`` is false where older parts of the log were
    removed: a name that is not found may have stood there. ``at`` is the state of the target that was read.
    ``withdrawn`` is the newest version of the target at which epochs were taken back: a load whose ``since`` is not
    later is entered no more.
    """

    committed: frozenset[str] = frozenset()
    void: frozenset[str] = frozenset()
    newest: int | None = None
    is_whole: bool = True
    withdrawn: int = NEVER
    at: Any = None


class LoadedSink(TwoPhaseCommitSink[Attempt]):
    """A table of data files with a log. Derive from it, and define ``home``, ``layout``, ``books``, ``enter``, ``see``.

    ``check`` must give the facts ``home``, ``table`` (the target's own id), ``columns`` (what the files will hold),
    ``since`` (a version of the target), ``newest`` (as ``newest_with_rows``), and ``behind.stood`` of ``standing``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantees=frozenset({Guarantee.EXACTLY_ONCE}), recovers=True, whole_epochs=True, gives_back=True
    )
    declared: ClassVar[tuple[Option, ...]] = DECLARED

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._entered: dict[str, int] = {}
        """By app, the newest epoch that was entered by this one."""
        self._newest: dict[str, Sequence[Load]] = {}
        """By app, what was entered with it."""

    # --- what a sink defines --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def home(self) -> Home:
        """The place below which the target's data files lie. Driver. Raises ``UnavailableError``."""

    @abstractmethod
    def layout(self, facts: Mapping[str, str | int]) -> Layout:
        """Say how rows lie in the files, by what ``check`` found. Executor; asks nobody."""

    def standing(self, app: str) -> int | None:
        """Return the newest epoch whose rows the target still holds, by default that of the newest entry. Driver."""
        return self.books(app, None).newest

    @abstractmethod
    def books(self, app: str, epoch: int | None, *, since: int | None = None) -> Books:
        """Read what the target's log says of an epoch and of later ones, or of the newest. Driver; only looks.

        ``since`` is a version of the target before which no attempt asked for was begun; None where that is not known.
        Raises ``UnavailableError``.
        """

    def is_kept(self, app: str, books: Books) -> bool:  # noqa: ARG002  for those that can tell
        """Say whether what this one has entered last is in the target still, by books that were read since. Driver.

        False only where it is proven that an older state was restored.
        """
        return True

    def files_now(self, *, touched: bool = False) -> Iterable[str] | None:  # noqa: ARG002  for those that can tell
        """Return the data files that a reader of the table sees now; those of which rows are deleted if ``touched``.

        As paths or URIs of ``file:``, in which percent signs stand for themselves; None where the sink cannot tell.
        Only looks. Raises ``UnavailableError``.
        """
        return None

    @abstractmethod
    def enter(self, books: Books, app: str, epoch: int, loads: Sequence[Load], void: Sequence[str]) -> None:
        """Add the files of these loads in one entry of the target's log, which names them, and what is void. Driver.

        All or nothing, and only where the log has no entry of this app that these books do not know: else it raises
        ``ConflictError``. Raises ``UnavailableError`` where it cannot be told whether it was made.
        """

    def take_out(self, books: Books, app: str, epoch: int, loads: Sequence[Load]) -> bool:  # noqa: ARG002  for those that can
        """Take out in one entry the files of the newest epoch's loads, and name these as void; False if it cannot be.

        Raises as ``enter`` does. Driver.
        """
        return False

    @abstractmethod
    def see(self, books: Books, loads: Sequence[Load]) -> None:
        """See that the target, as it was when these books were read, takes these files. Driver; only looks.

        Raises ``ConfigurationError`` where it does not, ``UnavailableError``.
        """

    # --- what the family does -------------------------------------------------------------------------------

    def begin_transaction(self, context: WriteContext) -> Attempt:
        app, newest = app_of(context.query, context.sink), int(context.facts["newest"])
        behind.refuse_ahead(context, newest, to="this table")
        home = home_at(str(context.facts["home"]))
        return Attempt(home, app, context, self.layout(context.facts), options=self.options)

    def write(self, transaction: Attempt, batch: pa.RecordBatch) -> Sequence[Refused]:
        return transaction.write(batch)

    def pre_commit(self, transaction: Attempt) -> Handle:
        facts = transaction.context.facts
        return Load(
            name=transaction.name,
            folder=transaction.path,
            files=transaction.finish(),
            table=str(facts["table"]),
            columns=str(facts["columns"]),
            since=int(facts["since"]),
        ).handle()

    def discard(self, transaction: Attempt) -> None:
        transaction.discard()

    def rehearse(self, handles: Sequence[Handle], facts: Mapping[str, str | int]) -> None:
        loads = [Load.of(handle) for handle in handles]
        stood = behind.stood_by(facts)
        for load in loads[:1]:
            if load.app not in self._entered and stood > behind.NOTHING:
                behind.refuse_forgotten(f"the table of the sink {self.name}", stood, self.standing(load.app))
            self.see(self._read(load.app, load.epoch, since=load.since or None), loads)
            missing.refuse(self, missing.wanted(self, self._newest.get(load.app, ())))
        missing.require_whole(self.home, loads)

    def commit(self, handle: Handle) -> Outcome:
        return self.commit_many([handle])[0]

    def commit_many(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        loads = [Load.of(handle) for handle in handles]
        outcomes: dict[str, Outcome] = {}
        for app, epoch in dict.fromkeys((load.app, load.epoch) for load in loads):
            outcomes |= self._commit(
                app, epoch, [each for each in loads if (each.app, each.epoch) == (app, epoch)]
            )
        return [outcomes[load.name] for load in loads]

    def abort(self, handle: Handle) -> None:
        load, home = Load.of(handle), self.home
        if not self._is_committed(load):
            home.drop(load.folder)
        home.unmark(load.app, [load.name])

    @classmethod
    def parts(cls, handle: Handle, rows: int) -> Iterable[Part]:  # noqa: ARG003  its files say how many each has
        return Load.of(handle).parts()

    def look_up(self, handle: Handle) -> Standing:
        load = Load.of(handle)
        # The files before the log, as in a commit.
        is_whole = bool(self.home.whole([load]))
        books = self.books(load.app, load.epoch, since=load.since or None)
        stands, told = (
            Stands.GONE,
            f"the table's log does not name it, and {load.folder} is not whole any more",
        )
        if load.name in books.committed:
            stands, told = Stands.COMMITTED, f"the table's log names it: the files in {load.folder} are added"
        elif load.name in books.void:
            told = "the table's log has it as void"
        elif not books.is_whole:
            stands, told = (
                Stands.UNKNOWN,
                "the table's log does not name it, and older parts of that were removed",
            )
        elif (books.newest or 0) > load.epoch:
            stands = Stands.UNKNOWN
            told = f"the table's log does not name it, and has gone on to chk-{books.newest}"
        elif load.since <= books.withdrawn:
            told = "what was prepared before a savepoint was restored was taken back, or never entered"
        elif is_whole:
            stands, told = (
                Stands.OPEN,
                f"its files are whole in {load.folder}, and the table's log names none of them",
            )
        lives = "until its files are removed, as by a vacuum of young files: no time-out ends it"
        return Standing(
            stands=stands,
            told=told,
            blocks="nothing: files that no entry of the log names hold nobody up",
            until={Stands.OPEN: lives, Stands.UNKNOWN: ""}.get(stands, "it has ended"),
        )

    def held(self, handles: Sequence[Handle]) -> Held | None:
        seen = self.files_now()
        if seen is None:
            return None
        return auditing.held(self.home, seen, map(Load.of, handles))

    def read_back(self, context: QueryContext, handles: Sequence[Handle]) -> Held | None:
        counted = self.held(handles) if handles else None
        if counted is None or counted.wrong:
            return counted
        loads = [Load.of(handle) for handle in handles]
        return auditing.read_back(self.home, counted, loads, context.columns, self.layout)

    def newest_epoch(self, context: QueryContext) -> int | None:
        app = app_of(context.query, context.sink)
        standing, entered = self.standing(app), newest_with_rows(self.books(app, None))
        # What a person has taken back is entered still, and stands no more.
        return None if standing is None or entered == NONE_YET else min(standing, entered)

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:
        app = app_of(context.query, context.sink)
        return self.home.require_rights(app, user=user, who=f"the sink {context.sink}")

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        app = app_of(context.query, context.sink)
        # Listed before the books are read: what is committed in between is in one of them.
        names = self.home.marked(app)
        # Read also where nothing is listed: a target that is out of reach may list nothing.
        books = self.books(app, None)
        committed = None if books.newest is None else newest_with_rows(books)
        return [
            Leftover(
                transaction=name,
                data={"folder": folder_of(app, name)},
                epoch=epoch_of(name),
                is_open=name not in books.committed,
                committed=committed,
            )
            for name in names
        ]

    def hanging(self) -> Iterable[Hanging]:
        return hanging.hanging(self.home, lambda app: self.books(app, None).committed)

    def complete(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:  # noqa: ARG002  by handles
        """Make it durable that these attempts are open no more, as their commit has noted."""
        home = self.home
        for app in {Load.of(handle).app for handle in handles}:
            home.sync_marks(app)

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:  # noqa: ARG002  by handles
        if not handles:
            return
        if missing.stands(self, Load.of(handles[0]).app, epoch, "complete"):
            missing.refuse(self, missing.wanted(self, [Load.of(handle) for handle in handles]))

    def _is_committed(self, load: Load) -> bool:
        books = self.books(load.app, None, since=load.since or None)
        if books.newest is not None and load.epoch < books.newest:
            return load.name not in self.home.marked(load.app) or missing.is_named(self, load)
        return load.name in books.committed or (load.epoch == books.newest and not books.is_whole)

    def _read(self, app: str, epoch: int, *, since: int | None) -> Books:
        """Read the books, and see that the target has not gone back while this one is at work."""
        held = self._entered.get(app, NONE_YET)  # before the books: another thread may commit meanwhile
        books = self.books(app, epoch, since=since)
        newest = books.newest if held == NONE_YET or self.is_kept(app, books) else NONE_YET
        behind.refuse_forgotten(f"the table of the sink {self.name}", held, newest)
        return books

    def _commit(self, app: str, epoch: int, loads: Sequence[Load]) -> Mapping[str, Outcome]:
        """Enter what is not in the books, and say what became of each."""
        home = self.home
        names = {load.name for load in loads}
        since = min(load.since for load in loads) or None
        entered: set[str] = set()
        reason = ""
        for _ in range(TRIES_MAX):
            # The files before the books: what is committed between the two looks is in one of them.
            whole = home.whole(loads)
            books = self._read(app, epoch, since=since)
            late = {load.name for load in loads if load.since <= books.withdrawn}
            open_ = names - books.committed - books.void - late
            if names & books.committed:  # by another process, and what was taken back since is named still
                missing.stands(self, app, epoch, "decided, and was in the table")
            home.unmark(app, names & books.committed)
            is_over = not open_ or not books.is_whole or (books.newest or 0) > epoch
            waiting = [load for load in loads if load.name in open_ & whole]
            gone = sorted(open_ - whole)
            try:
                if is_over:
                    lost = missing.torn(self, books, app, epoch, loads)
                else:
                    self.see(books, waiting)
                    self.enter(books, app, epoch, waiting, gone)
                    lost = set(gone)
            except ConflictError as conflict:
                reason = str(conflict)
                continue
            for name in lost:
                home.drop(folder_of(app, name))
            if not is_over:
                home.unmark(app, open_)
                entered.update(load.name for load in waiting)
                self._entered[app], self._newest[app] = epoch, waiting
            if is_over or not missing.wanted(self, waiting):
                told = {name: self._outcome(name, books, epoch) for name in names}
                return told | dict.fromkeys(entered - lost, Committed()) | dict.fromkeys(lost, Lost(_LOST))
        return dict.fromkeys(names, RetryLater(f"others were quicker {TRIES_MAX} times: {reason}"))

    def _outcome(self, name: str, books: Books, epoch: int) -> Outcome:
        if name in books.committed:
            return AlreadyCommitted()
        if name in books.void:
            return Lost(_LOST)
        if not books.is_whole:
            return Unknown(f"{name} is not in the table's log, older parts of which were removed")
        if (books.newest or 0) <= epoch:
            return Unknown(f"{name} was prepared before a savepoint was restored, and is entered no more")
        return Unknown(
            f"{name} is not in the table's log, which has gone on from chk-{epoch} to chk-{books.newest}"
        )


def newest_with_rows(books: Books) -> int:
    """Return the newest epoch that has added anything, by the books of the newest; ``NONE_YET`` where there is none.

    Of the newest entry all may be void: then its epoch is run again. Where the log no longer tells, it is the newest.
    """
    if books.newest is None:
        return NONE_YET
    return books.newest if books.committed or not books.is_whole else books.newest - 1


_LOST = (
    "a data file was removed before it was committed, or just then; the table's log has its attempt as void"
)
