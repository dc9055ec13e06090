"""The database of one sink: asked and written in transactions. Driver; any thread, one transaction at a time."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from onceonly.durable.access import require_writable
from onceonly.errors import ConfigurationError, RecordRefusedError, UnavailableError
from onceonly.families import behind
from onceonly.ports import BATCH
from onceonly.ports.standing import Held
from onceonly.sinks.sql import keeping
from onceonly.sinks.sql.books import KEY, Books, remembered
from onceonly.sinks.sql.dialects import dialect_of
from onceonly.sinks.sql.reading import Sum, unread
from onceonly.sinks.sql.refusals import is_doubtful
from onceonly.sinks.sql.rights import lacking
from onceonly.sinks.sql.shape import nothing, refuse_twice, shaped, told_apart, twice
from onceonly.sinks.sql.types import Given, Match, Table, columns_of, match

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.errors import OnceonlyError
    from onceonly.families.staged import StagedRows
    from onceonly.ports.standing import Hanging
    from onceonly.sinks.sql.options import Meaning, SqlOptions


class Target:
    """The table, its books, and the one connection to both."""

    def __init__(self, options: SqlOptions) -> None:
        self.options = options
        self.sql = dialect_of(options)
        self._held: Any = None
        self._trusted: Table | None = None
        """What the table was like when the rows of the newest epoch were looked at."""
        self._claimed = False
        self._applied = behind.NOTHING
        """The newest epoch that was applied by this one."""

    def books(self, owner: tuple[str, str]) -> Books:
        """Return the books of a query's sink."""
        return Books(self.sql, *owner)

    def newest(self, books: Books) -> int | None:
        """Return the newest epoch in the books; None where there is none, or no books."""
        with self.transaction(keep=False) as db:
            return None if self.sql.describe(db, self.options.books) is None else books.newest(db)

    def remembered(self) -> list[Hanging]:
        """Tell of which queries the books have handles. Only looks."""
        with self.transaction(keep=False, reads=True) as db:
            if self.sql.describe(db, self.options.books) is None:
                return []
            owners = Books.owners(db, self.sql)
        return [remembered(owner, *counts, self.options) for owner, counts in owners.items()]

    def found(self) -> Table | None:
        """Return what the table is like now; None where it is not there."""
        return self._described(self.options.table)

    def require_rights(self, who: str, user: int | None) -> str:
        """See that the tables may be used as an epoch does; ``user`` is the job's on this machine.

        Return why that cannot be seen. Raises ``ConfigurationError``, ``UnavailableError``.
        """
        files = self.sql.files()
        if files:
            return require_writable(files, user=user, who=who)
        with self.transaction(keep=False, reads=True) as db:
            said, grants = lacking(db, self.sql)
        if said:
            raise ConfigurationError(
                f"{who}: its user in {self.options.url} lacks {', '.join(said)}",
                next_step=f"have somebody run who may: {'; '.join(grants)}",
            )
        return ""

    def is_empty(self) -> bool:
        """Say whether the table has no row; false where the user may not look."""
        try:
            with self.transaction(keep=False) as db:
                return not self.sql.run(db, f"SELECT 1 FROM {self.sql.path(self.options.table)} LIMIT 1")
        except ConfigurationError:  # whoever adds rows needs no right to read them
            return False

    def count(self) -> int:
        """Count the table's rows."""
        with self.transaction(keep=False) as db:
            return self._counted(db)

    def read_back(self, columns: Sequence[tuple[str, Given]]) -> Held:
        """Read all rows, as rows of a query with these columns, and add them up. Raises a typed error."""
        with self.transaction(keep=False, reads=True) as db:
            found = self.matched(columns, self._there(self.sql.describe(db, self.options.table)))
            names = [name for name, _ in columns]
            if why := unread(found, names):
                return Held(rows=self._counted(db), unread=why)
            total = Sum(found, names, signs_zero=self.sql.signs_zero)
            for rows, values in self.sql.read(db, found):
                total.add(rows, values)
        return Held(rows=total.rows, wrong=tuple(total.wrong), checksum=total.checksum, unread=total.unread)

    def _counted(self, db: Any) -> int:  # noqa: ANN401
        [(rows,)] = self.sql.run(db, f"SELECT COUNT(*) FROM {self.sql.path(self.options.table)}")
        return int(rows)

    # --- before the first record ----------------------------------------------------------------------------

    def prepare(self, columns: Sequence[tuple[str, Given]]) -> Table:
        """See that the tables are there, and make those that may be made. Raises a typed error. Idempotent."""
        makes = self.options.create and bool(columns)
        if makes:
            self._make_place()
        table = self._described(self.options.table)
        if table is None and makes:
            self._make_table(columns)
            table = self._described(self.options.table)
        if table is None:
            raise ConfigurationError(
                f"there is no table {self.sql.path(self.options.table)} in {self.options.url}",
                next_step="make it, correct the option table (capitals count), or set create=true",
            )
        books = self._described(self.options.books) or self._make_books()
        if books.wrong or not any(set(key) == set(KEY) for key in books.keys):
            raise ConfigurationError(
                f"{books.name}, which is to note what was committed, {books.wrong or 'is another table'}",
                next_step="name another one by the option books, or have it made anew: "
                + self.sql.books(self.sql.path(self.options.books)),
            )
        return table

    def try_out(self, found: Match, books: Books) -> list[str]:
        """See that all that an epoch does is allowed: do it without rows, and undo it.

        Return the other queries that have written to the table, where this one never has. Raises a typed error.
        """
        try:
            with self.transaction(keep=False) as db:
                newest = books.newest(db)
                is_new = newest is None and not books.query.startswith(BATCH)
                others = books.others(db, self._name) if is_new else []
                keeping.require_noted(db, books, (newest or 0) + 1)
                books.forget(db, -1)
        except ConfigurationError as error:
            raise self._granting(error) from error
        with self.transaction(keep=False) as db:
            self._load(db, [nothing(found)], found)
        return others

    def table(self) -> Table:
        """Return what the table is like now. Raises a typed error."""
        return self._there(self._described(self.options.table))

    def matched(
        self, columns: Iterable[tuple[str, Given]], table: Table, meaning: Meaning | None = None
    ) -> Match:
        """Match the columns of rows with a table's, by what they mean. Raises ``ConfigurationError``."""
        own = meaning or self.options.meaning
        return match(columns, table, key=own.key, op=own.op, sequence=own.sequence)

    # --- an epoch -------------------------------------------------------------------------------------------

    def rehearse(
        self,
        staged: Mapping[str, StagedRows],
        epochs: Mapping[str, int],
        books: Books,
        then: Table,
        *,
        tries: bool,
        meaning: Meaning | None = None,
        stood: int = behind.NOTHING,
    ) -> None:
        """See that an epoch will be taken: by the table as it is now, where rows were looked at for ``then``.

        ``stood`` is the newest epoch that the books had at the start.

        Only where the table could refuse rows that fit it, or with ``tries``, they are applied, and that is undone.
        Raises a typed error.
        """
        with self.transaction(keep=False) as db:
            newest, table = books.newest(db), self.sql.describe(db, self.options.table)
        keeping.refuse_older(newest, max(epochs.values()), books, self.options)
        if self._applied == behind.NOTHING:  # else the commit sees
            behind.refuse_forgotten(str(self.options.url), stood, newest)
        found, batches = self._now(_batches(staged), table, meaning)
        told, in_doubt = [], tries or found.table != then or bool(found.doubts)
        for batch in batches if found.key or found.indexed or found.lettered else ():
            in_doubt = in_doubt or is_doubtful(batch, found)
            told += [told_apart(batch, found)] if found.key else []
        refuse_twice(told, found)
        self._trusted = then
        if in_doubt:
            self.apply(staged, epochs, books, keep=False, meaning=meaning)

    def apply(
        self,
        staged: Mapping[str, StagedRows],
        epochs: Mapping[str, int],
        books: Books,
        *,
        keep: bool = True,
        meaning: Meaning | None = None,
    ) -> None:
        """Note the handles of an epoch and write its rows, in one transaction. Raises a typed error.

        ``meaning`` is that of the options by which they were staged; None for those of now.
        """
        with self.transaction(keep=keep) as db:
            behind.refuse_forgotten(str(self.options.url), self._applied, books.newest(db))
            books.note(db, epochs)
            books.forget(db, max(epochs.values()))
            if not self._claimed and not books.query.startswith(BATCH):
                books.claim(db, self._name)
            self.write_rows(db, _batches(staged), meaning, tries=not keep)
        if keep:
            self._claimed = True
            self._applied = max(self._applied, *epochs.values())

    def write_rows(
        self,
        db: Any,  # noqa: ANN401
        batches: Iterator[pa.RecordBatch],
        meaning: Meaning | None,
        *,
        tries: bool,
    ) -> None:
        """Write rows in a transaction, which with ``tries`` is undone. Raises a typed error, or one of the client's."""
        self.sql.hold(db)
        found, rows = self._now(batches, self.sql.describe(db, self.options.table), meaning)
        self._load(db, self._taken(rows, found), found, tries=tries)
        if tries:
            self.sql.settle(db)

    @contextmanager
    def transaction(self, *, keep: bool = True, reads: bool = False) -> Iterator[Any]:
        """Yield a connection in a transaction; in the end it is committed, or rolled back where nothing is to be kept.

        With ``reads``, it keeps nobody from writing where the database has a way.

        Raises the typed error that tells what an error of the client's means.
        """
        sql = self.sql
        with self.sql.lock:
            try:
                db = self._begun(sql.begin_reading if reads else sql.begin)
                try:
                    yield db
                    if keep:
                        sql.commit(db)
                    else:
                        sql.run(db, "ROLLBACK")
                except BaseException:  # an interrupt, too, leaves a transaction that nobody goes on with
                    self.close()
                    raise
                if not sql.holds_connection:
                    self.close()
            except sql.errors as error:
                raise sql.told(error) from error

    def close(self) -> None:
        """Close the connection; what is not committed is rolled back. Idempotent."""
        with self.sql.lock:
            held, self._held = self._held, None
            if held is not None:
                held.close()

    def _begun(self, begin: Callable[[Any], None]) -> Any:  # noqa: ANN401
        if self._held is not None:
            try:
                begin(self._held)
            except self.sql.errors:  # it has died since it was used, and nothing was asked of it yet
                self.close()
            else:
                return self._held
        self._held = self.sql.connect()
        begin(self._held)
        return self._held

    @property
    def _name(self) -> str:
        return ".".join(self.options.table)

    def _described(self, name: tuple[str, ...]) -> Table | None:
        with self.transaction(keep=False) as db:
            return self.sql.describe(db, name)

    def _make_place(self) -> None:
        try:
            self.sql.make()
        except self.sql.errors as error:
            raise self.sql.told(error) from error

    def _make_books(self) -> Table:
        statement = self.sql.books(self.sql.path(self.options.books))
        try:
            with self.transaction() as db:
                self.sql.run(db, statement)
        except (ConfigurationError, RecordRefusedError, UnavailableError) as error:
            made = self._described(self.options.books)  # by another driver, at the same time
            if made is not None:
                return made
            raise self._granting(error, f"{statement}; ") from error
        made = self._described(self.options.books)
        if made is None:
            raise UnavailableError(f"{self.options.books[-1]} was made and is gone", next_step="try again")
        return made

    def _granting(self, error: OnceonlyError, make: str = "") -> OnceonlyError:
        """Return an error about the books; where a right is missing, with the statements that give it."""
        cause = error.__cause__
        if not isinstance(cause, Exception) or not self.sql.is_forbidden(cause):
            return error
        with self.transaction(keep=False) as db:
            grant = self.sql.grant(db, self.options.books)
        return ConfigurationError(
            f"the table that notes what was committed cannot be {'made' if make else 'used'}: {error.what}",
            next_step=f"have somebody run who may{' (the GRANT alone, if it is there)' if make else ''}: {make}{grant}",
        )

    def _make_table(self, columns: Sequence[tuple[str, Given]]) -> None:
        options, parts = self.options, []
        for name, given in columns:
            if name == options.op:
                continue
            kind = self.sql.type_of(given, is_key=name in options.key)
            if not kind:
                raise ConfigurationError(
                    f"no column can be made for {name}, which is {given}",
                    next_step="cast it in the query, or make the table yourself",
                )
            parts.append(f"{self.sql.quote(name)} {kind}{' NOT NULL' if name in options.key else ''}")
        if options.key:
            parts.append(f"PRIMARY KEY ({self.sql.listed(options.key)})")
        with self.transaction() as db:
            self.sql.run(db, f"CREATE TABLE {self.sql.path(options.table)} ({', '.join(parts)})")

    def _now(
        self, batches: Iterator[pa.RecordBatch], table: Table | None, meaning: Meaning | None
    ) -> tuple[Match, Iterator[pa.RecordBatch]]:
        """Return how rows meet the table as it is now, and the rows."""
        first = next(batches)
        return self.matched(columns_of(first.schema), self._there(table), meaning), chain([first], batches)

    def _there(self, table: Table | None) -> Table:
        if table is None:
            raise ConfigurationError(
                f"the table {self.sql.path(self.options.table)} is gone", next_step="bring it back"
            )
        return table

    def _taken(self, batches: Iterable[pa.RecordBatch], found: Match) -> Iterator[pa.RecordBatch]:
        """Yield rows as the table takes them, looked at once more where it may have been changed."""
        for batch in batches:
            if found.table != self._trusted:
                keeping.require_taken(batch, found)
            yield shaped(batch, found)

    def _load(
        self,
        db: Any,  # noqa: ANN401
        batches: Iterable[pa.RecordBatch],
        found: Match,
        *,
        tries: bool = False,
    ) -> None:
        sql = self.sql
        waits = bool(found.key) or not found.table.streams
        into = sql.staging if waits else sql.path(self.options.table)
        if waits:
            sql.run(db, sql.stage(found))
        given = written = 0
        for batch in batches:
            given, written = given + batch.num_rows, written + sql.load(db, into, batch, found)
        if tries and found.key:
            for key in sql.run(db, sql.twice(found)):
                raise twice(
                    found, f"{', '.join(found.keys)} {', '.join(map(repr, key))}, as the table compares them"
                )
        if waits:
            if found.op:
                sql.run(db, sql.delete(found))
            written = sql.write(db, sql.insert(found))
            if found.key and found.table.passing and not self.options.trusts:
                keeping.require_kept(db, sql, found)
            if sql.unstage():
                sql.run(db, sql.unstage())
        if not found.key and not self.options.trusts:
            keeping.require_written(written, given, found)


def _batches(staged: Mapping[str, StagedRows]) -> Iterator[pa.RecordBatch]:
    return (batch for each in staged.values() for batch in each.batches())
