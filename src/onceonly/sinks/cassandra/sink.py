"""The Cassandra sink: rows of a table by its primary key, each write with a timestamp that its plan has fixed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.families import columns
from onceonly.families.keyed import BookedSink, Newer
from onceonly.families.keyed.reading_back import Sum, by_version
from onceonly.families.keyed.rows import larger
from onceonly.model import Guarantee
from onceonly.ports import Refused
from onceonly.sinks.cassandra import types
from onceonly.sinks.cassandra.books import Books
from onceonly.sinks.cassandra.options import DECLARED, CassandraOptions
from onceonly.sinks.cassandra.target import Target, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from onceonly.families.keyed import KeyedRows
    from onceonly.families.keyed.attempt import KeyedAttempt
    from onceonly.families.staged.area import Names
    from onceonly.options import Option
    from onceonly.ports import QueryContext, WriteContext
    from onceonly.ports.standing import Held
    from onceonly.sinks.cassandra.target import Table

log = logging.getLogger("onceonly")

FIRST = 1 << 62
"""What every timestamp begins with, in microseconds: behind all that clocks give, so that no row which somebody has
written by the clock hides one of ours. A version has less than 62 bits, as generations have ``GENERATION_BITS``.

Versions alone are behind a clock of microseconds, too, as generations lie above the day's number (see the books); but
only where the driver's clock was right as one was given, and not behind somebody's clock of nanoseconds."""
TOGETHER = 20
"""How many keys are asked for at once: one node gathers their answers from the others."""
ROW_BYTES_MAX = 8 * 1024**2
"""A mutation has at most half a segment of the commit log, 16 MiB by default; a row takes more there than here. It is
also what a frame of the protocol has room for, however large a mutation may be."""
_ROW_MAX = "row_max"
"""The fact how many bytes a row may have."""


class CassandraSink(BookedSink):
    """Rows into a table of Cassandra, exactly once by key."""

    name: ClassVar[str] = "cassandra"
    declared: ClassVar[tuple[Option, ...]] = DECLARED
    books: Books

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._given = CassandraOptions.of(self.options)
        self._target = Target(self._given)
        self.books = Books(self._target)
        self._looks_after = False
        self._row_max = ROW_BYTES_MAX

    def identity(self) -> Mapping[str, str | int]:
        given = self._given
        return {"cluster": given.cluster, "keyspace": given.keyspace, "table": given.table}

    # --- the table ------------------------------------------------------------------------------------------

    @property
    def shown(self) -> str:
        return f"the table {self._given.where}"

    def id_now(self) -> str:
        return self._target.id()

    def look(self, context: QueryContext) -> Mapping[str, str | int]:
        table, given = self._target.table(), self._given
        self.looked_at = self.id_now()
        if set(self.columns.key) != set(table.key):
            raise ConfigurationError(
                f"The option key of the sink cassandra is {', '.join(self.columns.key)}, and the primary key of "
                f"{given.where} is {', '.join(table.key)}.",
                next_step="name all columns of the primary key, as they are spelled there",
            )
        for name, kind in context.columns:
            if name != self.columns.op:
                self._fits(name, kind, table)
        forgets = self.columns.op is not None or not given.keeps_nulls
        if forgets and table.gc_grace_s < given.tombstones_s:
            raise ConfigurationError(
                f"{given.where} forgets what was removed after {table.gc_grace_s} s (gc_grace_seconds), and who wakes "
                f"up after it brings that back; the option tombstones asks for {given.tombstones_s:.0f} s.",
                next_step=f"ALTER TABLE {self._target.name} WITH gc_grace_seconds = {given.tombstones_s:.0f}, or set "
                "tombstones to what no task or driver can stand still for",
            )
        if table.lives_s:
            log.warning(
                "%s removes rows %d s after they were written (default_time_to_live): what was committed goes then. To "
                "keep it: ALTER TABLE %s WITH default_time_to_live = 0.", given.where, table.lives_s, self._target.name,
            )  # fmt: skip
        # Where no column can have a condition, it removes what is older than all rows.
        where = self._some(table)
        old = f"DELETE FROM {self._target.name} USING TIMESTAMP 1 WHERE {where}"  # noqa: S608  names are quoted
        self._target.try_permission(self._never(table) or old)
        self._target.open_books()
        return {_ROW_MAX: min(ROW_BYTES_MAX, self._target.mutation_max() // 2)}

    def _fits(self, name: str, kind: str, table: Table) -> None:
        """See that the table takes a column. Raises ``ConfigurationError``."""
        where, cql = self._given.where, table.types.get(name)
        if cql is None:
            raise ConfigurationError(
                f"{where} has no column {name}: it has {', '.join(table.types)}.",
                next_step=f"ALTER TABLE {self._target.name} ADD {quoted(name)} …, or rename the column in the query",
            )
        if name in table.statics:
            raise ConfigurationError(
                f"The column {name} of {where} is static: all rows of a partition have it together, and no key names "
                "whose it is.",
                next_step="leave it out of the query, and write it to a table of its own",
            )
        why = types.against(columns.parse(kind), cql)
        if why:
            raise ConfigurationError(
                f"The column {name} is {kind}, and {cql} in {where}: {why}.",
                next_step="cast it in the query, or give the table a column of another type (see the sink's page)",
            )

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:  # noqa: ARG002  the cluster's users
        """Ask for changes whose conditions never hold: the cluster looks at permissions before."""
        never, given = self._never(self._target.table()), self._given
        unseen = [
            place
            for place, is_told in (
                (given.where, never is not None and self._target.try_permission(never)),
                (f"{given.keyspace}.{given.books}", self._target.try_books()),
            )
            if not is_told
        ]
        return f"what may be done with {' and '.join(unseen)} shows only in doing it" if unseen else ""

    def _never(self, table: Table) -> str | None:
        """Return a statement that needs all permissions on rows, and whose condition never holds.

        None where no column can have one.
        """
        others = (each for each in table.types.items() if each[0] not in {*table.key, *table.statics})
        regular = next((quoted(name) for name, cql in others if types.has_own_time(cql)), None)
        if regular is None:
            return None
        return f"UPDATE {self._target.name} SET {regular} = null WHERE {self._some(table)} IF {regular} IN ()"  # noqa: S608

    def _some(self, table: Table) -> str:
        """Return what names the row of some key."""
        return " AND ".join(f"{quoted(name)} = {types.some(table.types[name])}" for name in table.key)

    # --- rows -----------------------------------------------------------------------------------------------

    def begin_transaction(self, context: WriteContext) -> KeyedAttempt:
        is_early = context.early or context.guarantee is not Guarantee.EXACTLY_ONCE
        if is_early and self.columns.sequence is not None:
            raise ConfigurationError(
                "The sink cassandra has a sequence, and writes rows before it knows all of an epoch: of two writes of "
                "one time, Cassandra keeps the greater value of each column, and not the later row.",
                next_step="leave out onceonly.visible=early and onceonly.guarantee; or leave out sequence, and let an "
                "epoch have one row of a key",
            )
        self._looks_after = context.early
        self._row_max = int(context.facts.get(_ROW_MAX, ROW_BYTES_MAX))
        return super().begin_transaction(context)

    def put(self, rows: KeyedRows, version: int) -> tuple[Sequence[Refused], Newer | None]:
        self._require_once_here(rows)
        names = rows.rows.schema.names
        held = dict(zip(names, self._values(rows, names), strict=True))
        keys = [held[name] for name in self.columns.key]
        insert, delete = self._insert(names), self._delete()
        calls = [
            (delete, (FIRST + version, *(column[row] for column in keys)))
            if is_deleted
            else (insert, (*(column[row] for column in held.values()), FIRST + version))
            for row, is_deleted in enumerate(rows.deleted)
        ]
        self._target.run(calls)
        return (), self._overtaking(rows, version) if self._looks_after else None

    def unfit(self, rows: KeyedRows) -> Iterable[Refused]:
        found: dict[int, Refused] = {}
        for each in (*self._gaps(rows), *self._too_long(rows)):
            found.setdefault(each.row, each)
        return found.values()

    def _gaps(self, rows: KeyedRows) -> Iterator[Refused]:
        table = self._target.table()
        for name, column in zip(rows.rows.schema.names, rows.rows.columns, strict=True):
            yield from types.gaps(name, column, self._type_of(name, table))
        if len(table.partition) == 1:
            [alone] = table.partition
            for row, value in enumerate(rows.rows.column(alone).to_pylist()):
                if value == "":
                    yield Refused(
                        row=row, code="NO_KEY", why=f"its {alone} is empty, and is a partition's whole key"
                    )

    def _too_long(self, rows: KeyedRows) -> Iterator[Refused]:
        yield from rows.too_long(types.KEY_BYTES_MAX, "a key")
        for row, size in larger(rows.rows, self._row_max):
            why = f"its {size} bytes are more than the {self._row_max} that a write may have"
            yield Refused(row=row, code="TOO_LARGE", why=why)

    def examine(self, rows: KeyedRows, version: int) -> Newer | None:
        times = self._times(rows)
        return next(
            (
                Newer(key, at - FIRST)
                for key, at in zip(rows.keys, times, strict=True)
                if at > FIRST + version
            ),
            None,
        )

    def versions(self) -> Mapping[int, int] | None:
        found = self._by_version((), "")
        return None if found is None else {version: each.held().rows for version, each in found.items()}

    def read_by_version(self, columns: Sequence[tuple[str, str]]) -> Mapping[int, Held] | None:
        own = self._target.table().types
        gone = next(
            (f"the table has no column {name} any more" for name, _ in columns if name not in own), ""
        )
        keeps = "a null leaves what a row had before (nulls=keep)" if self._given.keeps_nulls else ""
        found = self._by_version(() if gone else columns, gone or keeps)
        return None if found is None else {version: each.held() for version, each in found.items()}

    def _by_version(self, columns: Sequence[tuple[str, str]], unread: str) -> Mapping[int, Sum] | None:
        """Add up the rows by their versions; None where nobody knows when one was written, as it has no values."""
        table = self._target.table()
        witnesses = [n for n, cql in table.types.items() if n not in table.key and types.has_own_time(cql)]
        if not witnesses:
            return None
        times = [f"writetime({quoted(name)})" for name in witnesses]
        asked = ", ".join((*times, *(quoted(name) for name, _ in columns)))
        sums: dict[int, Sum] = {}

        def made() -> Sum:
            return Sum(columns, types.back, kept=lambda name, _: types.kept(table.types[name]), unread=unread)

        for some in self._target.read(f"SELECT {asked} FROM {self._target.name}"):  # noqa: S608  quoted
            rows = []
            for row in some:
                at = max((each for each in row[: len(times)] if each is not None), default=None)
                if at is None:
                    return None
                rows.append((at - FIRST, row[len(times) :]))
            by_version(rows, sums, made)
        return sums

    def _overtaking(self, rows: KeyedRows, version: int) -> Newer | None:
        """Return a key that has a greater version after its row was written; of one deleted, that is not known."""
        if self._stand(rows, version):
            return None
        times = self._times(rows)
        for row, (key, at) in enumerate(zip(rows.keys, times, strict=True)):
            if at > FIRST + version:
                return Newer(key, at - FIRST)
            if at == 0 and not rows.deleted[row] and self._shows(rows, row):
                return Newer(key, version + 1)
        return None

    def _stand(self, rows: KeyedRows, version: int) -> bool:
        """Say whether all rows are there, and nothing newer: of many keys at a time, so not which one is not."""
        witnesses = self._witnesses(rows)
        if len(self.columns.key) > 1 or not witnesses:
            return False
        [keys] = self._values(rows, self.columns.key)
        text = self._select(witnesses, f"{quoted(self.columns.key[0])} IN ?")
        groups = [keys[first : first + TOGETHER] for first in range(0, len(keys), TOGETHER)]
        found = self._target.run([(text, (group,)) for group in groups])
        newest = [max((at or 0 for at in row), default=0) for each in found for row in each]
        return len(newest) == len(keys) - sum(rows.deleted) and all(
            0 < at <= FIRST + version for at in newest
        )

    def _times(self, rows: KeyedRows) -> list[int]:
        """Return the newest time of the values that each key has; 0 where it has none."""
        witnesses = self._witnesses(rows)
        if not witnesses:
            return [0] * len(rows.keys)
        text = self._select(witnesses, self._is_key())
        keys = self._values(rows, self.columns.key)
        found = self._target.run([(text, values) for values in zip(*keys, strict=True)])
        return [max((at or 0 for row in each for at in row), default=0) for each in found]

    def _select(self, witnesses: Sequence[str], where: str) -> str:
        times = ", ".join(f"writetime({quoted(name)})" for name in witnesses)
        return f"SELECT {times} FROM {self._target.name} WHERE {where}"  # noqa: S608  names are quoted

    def _witnesses(self, rows: KeyedRows) -> list[str]:
        """Return the columns whose time of writing can be asked for."""
        table = self._target.table()
        return [
            name
            for name in rows.rows.schema.names
            if name not in table.key and types.has_own_time(self._type_of(name, table))
        ]

    def _shows(self, rows: KeyedRows, row: int) -> bool:
        return any(rows.rows.column(name)[row].is_valid for name in self._witnesses(rows))

    def _values(self, rows: KeyedRows, names: Sequence[str]) -> list[list[Any]]:
        """Return the values of these columns as the driver takes them."""
        table = self._target.table()
        found = [types.values(rows.rows.column(name), self._type_of(name, table)) for name in names]
        if not self._given.keeps_nulls:
            return found
        from cassandra.query import UNSET_VALUE

        return [[UNSET_VALUE if value is None else value for value in column] for column in found]

    def _type_of(self, name: str, table: Table) -> str:
        """Return the type of a column that was there at the start. Raises ``ConfigurationError`` where it has gone."""
        if name not in table.types:
            raise ConfigurationError(
                f"{self._given.where} has no column {name} any more, and rows are to be written that have it: it has "
                f"{', '.join(table.types)}.",
                next_step=f"ALTER TABLE {self._target.name} ADD {quoted(name)} …, of the type that it had, and start "
                "the query again: what is decided goes in as it was written",
            )
        return table.types[name]

    def _require_once_here(self, rows: KeyedRows) -> None:
        """See that no key is twice among these. Raises ``RecordRefusedError``."""
        if len(set(rows.keys)) < len(rows.keys):
            key = next(key for key in rows.keys if rows.keys.count(key) > 1)
            raise RecordRefusedError(
                f"the key {key} of the sink cassandra is twice in an epoch, and nothing says which row stays",
                next_step="name the column whose greatest value is the newest in the option sequence",
            )

    def _insert(self, names: Sequence[str]) -> str:
        marks = ", ".join("?" * len(names))
        listed = ", ".join(map(quoted, names))
        return f"INSERT INTO {self._target.name} ({listed}) VALUES ({marks}) USING TIMESTAMP ?"  # noqa: S608

    def _delete(self) -> str:
        return f"DELETE FROM {self._target.name} USING TIMESTAMP ? WHERE {self._is_key()}"  # noqa: S608

    def _is_key(self) -> str:
        return " AND ".join(f"{quoted(name)} = ?" for name in self.columns.key)

    # --- books ----------------------------------------------------------------------------------------------

    def void(self, names: Names) -> Collection[str]:
        self._target.open_books()
        return self.books.void(names)

    def close(self) -> None:
        self._target.close()
