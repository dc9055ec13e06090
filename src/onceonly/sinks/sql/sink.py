"""The SQL sinks: rows wait in staged files; the driver writes those of an epoch in one transaction of the database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import ConfigurationError, RecordRefusedError, UnavailableError
from onceonly.families import behind
from onceonly.families.staged import StagedSink
from onceonly.families.staged.names import epoch_of
from onceonly.families.staged.sink import newest_of
from onceonly.model import differing
from onceonly.ports.standing import NO_COLUMNS, Held, Untold
from onceonly.sinks.sql import past
from onceonly.sinks.sql.options import DECLARED, OF_FILES, OF_JDBC, Meaning, SqlOptions
from onceonly.sinks.sql.refusals import is_large, refused
from onceonly.sinks.sql.refusing import refusals
from onceonly.sinks.sql.target import Target
from onceonly.sinks.sql.types import Given, Match, Table, columns_of, of_spark

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from onceonly.families.staged import StagedRows
    from onceonly.families.staged.area import StagedAttempt
    from onceonly.model import Capabilities, Handle, Outcome
    from onceonly.ports import Leftover, Option, QueryContext, Refused, WriteContext
    from onceonly.ports.standing import Hanging, Standing
    from onceonly.sinks.sql.books import Books

_DIVERT = (
    "or, where it was decided with onceonly.refused=deadletter, make dead letters of them with the job down: onceonly "
    "transactions divert TRANSACTION CHECKPOINT"
)
_TABLE = "table"
"""The fact that says what the table is like."""
_MEANING = "meaning"
"""What in a handle's data says by which of its columns rows are replaced, deleted, or newer."""
_NO_EPOCHS = "a table does not say which epoch has written a row"
_REPLACED = (
    f"later rows have replaced others of their keys, or somebody has removed some; {_NO_EPOCHS}, so that neither that "
    "nor a changed value is found"
)
_LARGE = "large"
"""What in a handle's data says that it has rows that the server may refuse for their size."""


class SqlSink(StagedSink):
    """Rows to a table of a database: added, replaced by key, or deleted; each epoch in one instant."""

    name: ClassVar[str] = "sql"
    schemes: ClassVar[tuple[str, ...]] = ()
    """The schemes of the url that a short name stands for; empty for all."""
    capabilities: ClassVar[Capabilities] = replace(StagedSink.capabilities, gives_back=True)
    declared: ClassVar[tuple[Option, ...]] = (*DECLARED, *StagedSink.declared)
    instead: ClassVar[Mapping[str, str]] = OF_JDBC

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._options = SqlOptions.of(self.options, who=f"the sink {self.name}")
        scheme = self._options.url.scheme
        if self.schemes and scheme not in self.schemes:
            begins = f"begins with {scheme}://" if scheme else "has no scheme"
            first = self.schemes[0]
            form = f"write it as {first}:////data/r.db" if first in OF_FILES else f"begin it with {first}://"
            raise ConfigurationError(
                f"The option url of the sink {self.name} {begins}.",
                next_step=f"{form}, or take the format onceonly.sql",
            )
        self._target = Target(self._options)
        self._columns: list[tuple[str, Given]] = []
        self._table: Table | None = None
        self._match: Match | None = None
        self._is_large = False
        self._has_applied = False
        self._owner = ("", "")
        self._meaning: Meaning | None = None

    # --- driver ---------------------------------------------------------------------------------------------

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        """See that the table takes the query's columns, and that all is allowed that an epoch does."""
        self._owner = (context.query, context.sink)
        self._columns = columns = [(name, of_spark(kind)) for name, kind in context.columns]
        table = self._target.prepare(columns)
        past.tell_of_losses(self._target, self._books, context)
        if columns:
            others = self._target.try_out(self._target.matched(columns, table), self._books)
            past.tell_of_others(others, self._options, context)
        stood = behind.stood(self._target.newest(self._books))
        return {**super().check(context), **stood, _TABLE: table.dumps()}

    def refresh(self, facts: Mapping[str, str | int]) -> Mapping[str, str | int]:
        """Look the table up anew: what it takes by now, the next epoch may have."""
        table = self._target.table()
        past.refuse_another(
            table, {Table.loads(str(facts[_TABLE])).id}, self._options, self._owner, "the epoch before"
        )
        if self._columns:
            self._target.matched(self._columns, table)
        return {**facts, _TABLE: table.dumps()}

    def identity(self) -> Mapping[str, str | int]:
        """Name the target: server, database and table, whoever writes to it."""
        options = self._options
        return {"url": str(options.url), "table": ".".join(options.table), "books": ".".join(options.books)}

    def overlaps(self, identity: Mapping[str, str | int]) -> bool:
        """Say whether it is the same table, whatever notes what was committed."""
        return not differing({each: identity.get(each, "") for each in ("url", "table")}, self.identity())

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        """Compare the books with the newest epoch that is complete by the log: a backup may be restored."""
        if handles:
            self._owner = (context.query, context.sink)
            past.look_back(self._target, self._books, context, epoch, handles)

    def rehearse(self, handles: Sequence[Handle], facts: Mapping[str, str | int]) -> None:
        """See that the table will take the epoch, as it is now."""
        self._owner = _owner(handles)
        staged = self.staged(handles)
        gone = [handle.transaction for handle in handles if handle.transaction not in staged]
        if gone:
            raise UnavailableError(
                f"what was staged as {gone[0]} was removed or cut before its epoch was decided",
                next_step="nothing: the epoch is run again",
            )
        tries = any(_LARGE in handle.data for handle in handles)
        table = Table.loads(str(facts[_TABLE]))
        self._target.rehearse(
            staged, _epochs(staged), self._books, table, tries=tries, meaning=_meaning(handles),
            stood=behind.stood_by(facts),
        )  # fmt: skip

    def commit_many(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """Apply an epoch, or look up who has."""
        self._owner, self._meaning = _owner(handles), _meaning(handles)
        return super().commit_many(handles)

    def look_up(self, handle: Handle) -> Standing:
        """Ask the books and the staging area."""
        self._owner = _owner([handle])
        return super().look_up(handle)

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:
        """Ask the server what this user may do with the tables, or the file system who may write the database."""
        return self._target.require_rights(f"the sink {context.sink}", user)

    def held_by_epoch(self, context: QueryContext, links: Mapping[int, int]) -> Untold:  # noqa: ARG002  as it says
        """Say why it cannot."""
        return Untold(_NO_EPOCHS)

    def held_in_all(self, context: QueryContext) -> Held | Untold:  # noqa: ARG002  a table does not say who added what
        """Count the table's rows, where the query deletes none."""
        if self._options.op:
            return Untold(f"rows were deleted by {self._options.op}, and {_NO_EPOCHS}")
        return Held(rows=self._target.count(), replaced=_REPLACED if self._options.key else "")

    def newest_epoch(self, context: QueryContext) -> int | None:
        """Ask the books."""
        self._owner = (context.query, context.sink)
        return self._target.newest(self._books)

    def read_back(self, context: QueryContext, handles: Sequence[Handle]) -> Held | None:
        """Read all rows of the table; None of an epoch, which it does not tell apart, and where rows were deleted."""
        if handles or self._options.op:
            return None
        if not context.columns:
            return Held(rows=self._target.count(), unread=NO_COLUMNS)
        return self._target.read_back([(name, of_spark(kind)) for name, kind in context.columns])

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        """List what is staged; the books say what of it has ended, and how far they have come."""
        self._owner = (context.query, context.sink)
        found = list(super().recover(context))
        # Who has applied an epoch itself knows that the target is not ahead of the checkpoint.
        newest = None if self._has_applied else self._target.newest(self._books)
        return found if newest is None else [*found, newest_of(context, newest)]

    def hanging(self) -> Iterable[Hanging]:
        """List what is staged, of whichever query, and of which queries the books have handles."""
        return [*super().hanging(), *self._target.remembered()]

    def apply(self, staged: Mapping[str, StagedRows]) -> None:
        """Write the rows, and note their names, in one transaction."""
        try:
            self._target.apply(staged, _epochs(staged), self._books, meaning=self._meaning)
            self._has_applied = True
        except RecordRefusedError as error:
            raise RecordRefusedError(error.what, next_step=f"{error.next_step}; {_DIVERT}") from error

    def known(self, names: Collection[str]) -> Collection[str]:
        """Ask the books."""
        with self._target.transaction(keep=False) as db:
            return self._books.known(db, _epochs(names))

    def voided(self, names: Collection[str]) -> Collection[str]:
        """Ask the books."""
        with self._target.transaction(keep=False) as db:
            return self._books.known(db, _epochs(names), void=True)

    def void(self, names: Collection[str]) -> Collection[str]:
        """Note in the books what is not there."""
        with self._target.transaction() as db:
            return self._books.void(db, _epochs(names))

    def refusals(self, handle: Handle, beside: Sequence[Handle]) -> Sequence[Refused]:
        """Try which rows of a decided handle the table refuses."""
        self._owner = _owner([handle])
        staged = self.staged([*beside, handle])
        known = set(self.known(staged))
        waiting = {name: rows for name, rows in staged.items() if name not in known}
        return refusals(self._target, waiting, _meaning([handle])).get(handle.transaction, [])

    def sift(self, handles: Sequence[Handle], most: int) -> Mapping[str, Sequence[Refused]]:
        """Try which rows the table refuses. Of several with one key none is the wrong one: each is taken alone."""
        return refusals(self._target, self.staged(handles), _meaning(handles), most=most)

    def stage_again(self, context: WriteContext, rows: pa.RecordBatch, of: Handle) -> Handle:
        """Let the new handle say what the former one did of its columns and its table."""
        handle = self._meant(super().stage_again(context, rows, of), _meaning([of]) or self._options.meaning)
        kept = {name: of.data[name] for name in (past.TABLE_ID, _LARGE) if name in of.data}
        return replace(handle, data={**handle.data, **kept})

    def close(self) -> None:
        """Close the connection."""
        self._target.close()

    # --- executor -------------------------------------------------------------------------------------------

    def begin_transaction(self, context: WriteContext) -> StagedAttempt:
        """Begin to stage; the database is not asked."""
        self._table, self._match = Table.loads(str(context.facts[_TABLE])), None
        self._is_large = False
        return super().begin_transaction(context)

    def write(self, transaction: StagedAttempt, batch: pa.RecordBatch) -> Sequence[Refused]:
        """Stage rows; give back those that the table will never take."""
        if self._match is None and self._table is not None:
            self._match = self._target.matched(columns_of(batch.schema), self._table)
        found = refused(batch, self._match) if self._match is not None else []
        if found:
            import numpy as np
            import pyarrow as pa

            places = np.setdiff1d(np.arange(batch.num_rows), [each.row for each in found])
            batch = batch.take(pa.array(places))
        if batch.num_rows:
            if self._match is not None:
                self._is_large = self._is_large or is_large(batch, self._match)
            super().write(transaction, batch)
        return found

    def pre_commit(self, transaction: StagedAttempt) -> Handle:
        """Vote, with the id of the table by which the rows were looked at, and what their columns mean."""
        handle = super().pre_commit(transaction)
        own = self._table.id if self._table is not None else ""
        more: dict[str, str | int] = {past.TABLE_ID: own} if own else {}
        more |= {_LARGE: 1} if self._is_large else {}
        return self._meant(replace(handle, data={**handle.data, **more}), self._options.meaning)

    def _meant(self, handle: Handle, meaning: Meaning) -> Handle:
        return replace(handle, data={**handle.data, _MEANING: meaning.dumps()})

    @property
    def _books(self) -> Books:
        return self._target.books(self._owner)


class DuckdbSink(SqlSink):
    """``onceonly.sql`` for DuckDB."""

    name: ClassVar[str] = "duckdb"
    schemes: ClassVar[tuple[str, ...]] = ("duckdb",)


class PostgresSink(SqlSink):
    """``onceonly.sql`` for PostgreSQL."""

    name: ClassVar[str] = "postgres"
    schemes: ClassVar[tuple[str, ...]] = ("postgresql", "postgres")


class MySqlSink(SqlSink):
    """``onceonly.sql`` for MySQL and MariaDB."""

    name: ClassVar[str] = "mysql"
    schemes: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")


class SqliteSink(SqlSink):
    """``onceonly.sql`` for SQLite."""

    name: ClassVar[str] = "sqlite"
    schemes: ClassVar[tuple[str, ...]] = ("sqlite",)


def _meaning(handles: Sequence[Handle]) -> Meaning | None:
    """Return what the columns of an epoch's rows mean; None where an older version has staged them.

    Of the last handle: those before it may be of a try that is committed.
    """
    told = handles[-1].data.get(_MEANING)
    return None if told is None else Meaning.loads(str(told))


def _owner(handles: Sequence[Handle]) -> tuple[str, str]:
    """Return the query and the sink that have staged something: the folder in which it lies."""
    query, _, sink = str(handles[0].data["folder"]).rpartition("/")
    return query, sink


def _epochs(names: Iterable[str]) -> dict[str, int]:
    return {name: epoch_of(name) or 0 for name in names}
