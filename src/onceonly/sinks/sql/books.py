"""The books: the table of the target that notes what was committed, in the transaction that commits it. Driver.

A row is a handle of one query's sink. Its unique key makes an epoch's commit happen once: whoever notes a handle that
is there already, applied or void, fails with all that it brought.

A further row of a stream tells to which table it writes, so that a query which has lost its checkpoint is known again.

The newest epochs stay. Older rows may go, as a driver that was paused for so long and still tries to apply one of
theirs is refused as soon as it has noted it: then newer epochs are in the books. It looks only after it has noted, so
whoever forgets at the same time is waited for, or seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import InDoubtError, UnavailableError
from onceonly.ports import BATCH
from onceonly.ports.standing import Hanging
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from onceonly.sinks.sql.dialects.dialect import Dialect
    from onceonly.sinks.sql.options import SqlOptions

EPOCHS_KEPT = 100
KEY = ("query", "sink", "epoch", "name")
_COLUMNS = "query, sink, epoch, name, void"
_AT_ONCE = 200  # no server's limit of values in a statement is near
_EVER = 2**63 - 1
"""Where an epoch stands in other rows: what is of no epoch is never too old."""
_NAME_MAX = 100


@dataclass(frozen=True, slots=True)
class Books:
    """The rows of one query's sink. Each method is a part of a transaction of the caller's."""

    dialect: Dialect
    query: str
    sink: str

    @staticmethod
    def owners(db: Any, dialect: Dialect) -> dict[tuple[str, str], tuple[int, int | None]]:  # noqa: ANN401
        """Return how many handles are noted of each query's sink, and their newest epoch that is applied.

        Without those of batches.
        """
        table, mark = dialect.path(dialect.options.books), dialect.mark
        found = dialect.run(
            db,
            "SELECT query, sink, COUNT(*), MAX(CASE WHEN void = 0 THEN epoch END) "
            f"FROM {table} WHERE epoch < {mark} AND query NOT LIKE {mark} GROUP BY query, sink ORDER BY query, sink",
            (_EVER, f"{BATCH}%"),
        )
        return {
            (_text(query), _text(sink)): (int(handles), None if newest is None else int(newest))
            for query, sink, handles, newest in found
        }

    def note(self, db: Any, epochs: Mapping[str, int]) -> None:  # noqa: ANN401
        """Note handles as applied, of which the epochs are given by name.

        Raises ``UnavailableError`` where one is noted already, ``InDoubtError`` where newer epochs are.
        """
        try:
            self._add(db, f"INSERT INTO {self._table} ({_COLUMNS}) VALUES {{}}", epochs, void=0)
        except self.dialect.errors as error:
            if not self.dialect.is_duplicate(error):
                raise
            raise UnavailableError(
                f"{self._table} has a handle of this epoch already", next_step="nothing: it is looked up"
            ) from error
        newest, ours = self.newest(db), max(epochs.values())
        if newest is not None and newest > ours:
            raise InDoubtError(
                f"{self._table} has chk-{newest} of query {self.query}, and nothing any more of chk-{ours}, which a "
                "driver still tries to apply: it was paused, or an older checkpoint was restored",
                next_step="nothing was written; see which driver is the one that should run, and stop the other",
            )

    def claim(self, db: Any, table: str) -> None:  # noqa: ANN401
        """Note that this query writes to a table. Idempotent."""
        self._add(db, self.dialect.insert_new(self._table, _COLUMNS, "{}"), {_claim(table): _EVER}, void=1)

    def others(self, db: Any, table: str) -> list[str]:  # noqa: ANN401
        """Return the other queries that are noted as writing to a table."""
        mark = self.dialect.mark
        found = self.dialect.run(
            db,
            f"SELECT DISTINCT query FROM {self._table} WHERE epoch = {mark} AND name = {mark} AND query <> {mark}",
            (_EVER, _claim(table), self.query),
        )
        return sorted(_text(query) for (query,) in found)

    def forget(self, db: Any, epoch: int) -> None:  # noqa: ANN401
        """Remove rows that are so old that nobody asks for them, where an epoch is applied."""
        mark = self.dialect.mark
        self.dialect.run(
            db,
            f"DELETE FROM {self._table} WHERE query = {mark} AND sink = {mark} AND epoch < {mark}",
            (self.query, self.sink, epoch - EPOCHS_KEPT),
        )

    def known(self, db: Any, epochs: Mapping[str, int], *, void: bool = False) -> set[str]:  # noqa: ANN401
        """Return those of the handles that are noted: as applied, or as void."""
        return {name for name, is_void in self._noted(db, epochs) if bool(is_void) is void}

    def void(self, db: Any, epochs: Mapping[str, int]) -> set[str]:  # noqa: ANN401
        """Note as void what is not noted, and return what is void.

        Raises ``InDoubtError`` where one may have been applied so long ago that it is forgotten.
        """
        oldest = min(epochs.values())
        newest = self.newest(db)
        if newest is not None and newest - EPOCHS_KEPT > oldest:
            raise InDoubtError(
                f"{self._table} no longer knows chk-{oldest} of query {self.query}, as it has come to chk-{newest}",
                next_step=f"look what the log says of that epoch: onceonly checkpoints show chk-{oldest} CHECKPOINT",
            )
        self._add(db, self.dialect.insert_new(self._table, _COLUMNS, "{}"), epochs, void=1)
        return self.known(db, epochs, void=True)

    def newest(self, db: Any) -> int | None:  # noqa: ANN401
        """Return the newest epoch of which something is noted as applied; None where nothing is."""
        mark = self.dialect.mark
        [(found,)] = self.dialect.run(
            db,
            f"SELECT MAX(epoch) FROM {self._table} WHERE query = {mark} AND sink = {mark} AND void = 0",
            (self.query, self.sink),
        )
        return None if found is None else int(found)

    @property
    def _table(self) -> str:
        return self.dialect.path(self.dialect.options.books)

    def _noted(self, db: Any, epochs: Mapping[str, int]) -> Iterable[tuple[str, int]]:  # noqa: ANN401
        mark = self.dialect.mark
        for some in _parts(epochs):
            names, numbers = [name for name, _ in some], sorted({epoch for _, epoch in some})
            found = self.dialect.run(
                db,
                f"SELECT name, void FROM {self._table} WHERE query = {mark} AND sink = {mark} "
                f"AND epoch IN ({_marks(mark, numbers)}) AND name IN ({_marks(mark, names)})",
                (self.query, self.sink, *numbers, *names),
            )
            yield from ((_text(name), void) for name, void in found)

    def _add(self, db: Any, sql: str, epochs: Mapping[str, int], *, void: int) -> None:  # noqa: ANN401
        row = f"({_marks(self.dialect.mark, _COLUMNS.split(','))})"
        for some in _parts(epochs):
            values = [value for name, epoch in some for value in (self.query, self.sink, epoch, name, void)]
            self.dialect.run(db, sql.format(", ".join([row] * len(some))), values)


def _text(told: str | bytes) -> str:
    """Return a name of ours; a database in SQL_ASCII gives it as bytes."""
    return told.decode() if isinstance(told, bytes) else told


def _claim(table: str) -> str:
    return f"writes to {table}"[:_NAME_MAX]


def _marks(mark: str, values: Collection[object]) -> str:
    return ", ".join([mark] * len(values))


def _parts(epochs: Mapping[str, int]) -> Iterator[list[tuple[str, int]]]:
    pairs = sorted(epochs.items())
    for first in range(0, len(pairs), _AT_ONCE):
        yield pairs[first : first + _AT_ONCE]


def remembered(owner: tuple[str, str], handles: int, newest: int | None, options: SqlOptions) -> Hanging:
    """Tell what the books have of a query's sink, as ``Books.owners`` counts it, and how they forget it. Pure."""
    (query, sink), books = owner, ".".join(options.books)
    last = "none of them applied" if newest is None else f"the newest that is applied of chk-{newest}"
    return Hanging(
        query=query, sink=sink, is_open=False,
        told=f"{books} in {options.url} has {n(handles, 'handle')} of the sink {sink}, {last}: nothing of it is open",
        if_lost=f"DELETE FROM {books} WHERE query = '{query}' AND sink = '{sink}' makes the books forget it; nobody is "
        "warned then who reads its rows again",
    )  # fmt: skip
