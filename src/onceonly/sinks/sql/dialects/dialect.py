"""What a dialect says of its system. Driver only."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.sinks.sql.shape import DELETED, SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from onceonly.errors import OnceonlyError
    from onceonly.sinks.sql.options import SqlOptions
    from onceonly.sinks.sql.types import Fit, Given, Match, Table


_PART = "onceonly_part"
BOOKS = "SELECT, INSERT, DELETE"
"""The rights that the books need."""
GOES_ON = "nothing is lost until then, and the query goes on by itself, or at its next start"


class Dialect(ABC):
    """One system, as one sink uses it. Statements are given to one connection after the other, in one transaction.

    What is written here is SQL that SQLite, DuckDB and PostgreSQL understand alike.
    """

    holds_connection: ClassVar[bool] = False
    """Whether a connection is kept from one transaction to the next."""
    mark: ClassVar[str] = "?"
    """Where a value goes in a statement."""
    verb: ClassVar[str] = "INSERT INTO"
    signs_zero: ClassVar[bool] = True
    """Whether minus zero stays what it is."""
    staging: ClassVar[str] = "temp.onceonly_rows"
    """The temporary table in which rows of an epoch wait for each other."""
    undoes_parts: ClassVar[bool] = True
    """Whether a part of a transaction can be undone."""

    def __init__(self, options: SqlOptions) -> None:
        """Take the options; imports no client yet. Raises ``ConfigurationError`` for an address that it cannot have."""
        self.options = options
        self.lock: threading.RLock = threading.RLock()

    def _require_file(self) -> None:
        """See that the address names a file, which has no users. Raises ``ConfigurationError``."""
        url = self.options.url
        if url.hosts or url.user or url.query or not url.path.startswith("/"):
            raise ConfigurationError(
                f"The option url names no file by its whole path: {url}.",
                next_step=f"write {url.scheme}:// and the path, as in {url.scheme}:////data/r.db",
            )
        if self.options.password.is_given:
            raise ConfigurationError(
                f"{url.scheme} has no passwords.", next_step="leave out the option password"
            )

    def _no_folder(self) -> ConfigurationError | None:
        """Return what to say where the file's folder is missing; None where it is there, or nobody can tell."""
        folder = Path(self.options.url.path).parent
        try:
            folder.stat()
        except FileNotFoundError:
            return ConfigurationError(
                f"{self.options.url} cannot be opened: there is no folder {folder}",
                next_step="make it, mount it, or correct the url",
            )
        except OSError:
            pass
        return None

    # --- what differs ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def errors(self) -> tuple[type[Exception], ...]:
        """What its client raises."""

    @abstractmethod
    def told(self, error: Exception) -> OnceonlyError:
        """Return what an error of the client's means: it may pass, a row is refused, somebody has to act."""

    def no_room(self, said: str) -> UnavailableError:
        """Return what it means that a disk is full."""
        return UnavailableError(
            f"the disk of {self.options.url} is full: {said}", next_step=f"make room there; {GOES_ON}"
        )

    def too_late(self, what: str) -> UnavailableError:
        """Return what it means that a statement was broken off after the time that the option gives it."""
        return UnavailableError(
            f"{what}; the option statement.timeout gives a statement {self.options.statement_s:g} s",
            next_step="see what it waits for, or set statement.timeout to more, and start the query again",
        )

    @abstractmethod
    def is_duplicate(self, error: Exception) -> bool:
        """Say whether an error means that a unique row is there already."""

    @abstractmethod
    def connect(self) -> Any:  # noqa: ANN401  each client has connections of its own
        """Open a connection, outside any transaction."""

    @abstractmethod
    def describe(self, db: Any, name: tuple[str, ...]) -> Table | None:  # noqa: ANN401
        """Look a table up; None where it is not there. In a transaction."""

    @abstractmethod
    def type_of(self, given: Given, *, is_key: bool) -> str:
        """Return the type of a new table's column; empty where there is none for it."""

    @abstractmethod
    def load(self, db: Any, into: str, batch: pa.RecordBatch, match: Match) -> int:  # noqa: ANN401
        """Add rows to a table, given by its name in SQL; they have its columns, and perhaps those beside them.

        Return how many rows it has taken.
        """

    @abstractmethod
    def read(self, db: Any, match: Match) -> Iterator[tuple[int, Sequence[Any]]]:  # noqa: ANN401
        """Read the table by the columns of a match, a part at a time: how many rows, and the values of each column.

        As values of Python's, or as an array of Arrow's; nothing is rounded.
        """

    # --- what most do alike ---------------------------------------------------------------------------------

    def is_forbidden(self, error: Exception) -> bool:  # noqa: ARG002  files have no users
        """Say whether an error means that the user lacks a right."""
        return False

    def grant(self, db: Any, name: tuple[str, ...], rights: str = BOOKS) -> str:  # noqa: ANN401, ARG002  as above
        """Return the statement that gives the user of a connection rights on a table; empty where there are no users.

        Without others, those on the books.
        """
        return ""

    def lacks(self, db: Any, name: tuple[str, ...], right: str, columns: Sequence[str]) -> bool:  # noqa: ANN401, ARG002
        """Say whether the user lacks a right on a table, or on each of its columns. In a transaction; only looks."""
        return False

    def lacks_temporary(self, db: Any) -> str:  # noqa: ANN401, ARG002  as above
        """Return the statement that lets the user make temporary tables; empty where it may, or nothing tells."""
        return ""

    def lossy(self, db: Any) -> str:  # noqa: ANN401, ARG002  files are synced by the process that writes them
        """Say which of the server's settings lets a crash take what was committed; empty where none does."""
        return ""

    def files(self) -> Sequence[Path]:
        """Return what has to be written where the database is a file of this machine, and its folder."""
        return ()

    def make(self) -> None:  # noqa: B027  servers have theirs
        """Make the database, where it is a file that is not there."""

    def begin(self, db: Any) -> None:  # noqa: ANN401
        """Begin a transaction in which each statement sees what is committed by then, and whose commit is durable."""
        db.execute("BEGIN")

    def begin_reading(self, db: Any) -> None:  # noqa: ANN401
        """Begin a transaction that only reads."""
        self.begin(db)

    def commit(self, db: Any) -> None:  # noqa: ANN401
        """Commit. What it raises says nothing on what became of the transaction."""
        db.execute("COMMIT")

    def run(self, db: Any, sql: str, values: Sequence[object] = ()) -> list[Any]:  # noqa: ANN401
        """Run one statement, and return its rows."""
        return list(db.execute(sql, tuple(values)).fetchall())

    def write(self, db: Any, sql: str) -> int:  # noqa: ANN401
        """Run one statement that writes, and return how many rows it has written, -1 where that is not told."""
        return int(db.execute(sql).rowcount)

    def hold(self, db: Any) -> None:  # noqa: ANN401, B027  most have nothing to do
        """Keep others from changing the table's columns until the transaction ends, where they could."""

    def settle(self, db: Any) -> None:  # noqa: ANN401, B027  as above
        """Have checked now what would be checked at the commit."""

    def begin_part(self, db: Any) -> None:  # noqa: ANN401
        """Begin a part of a transaction."""
        self.run(db, f"SAVEPOINT {_PART}")

    def undo_part(self, db: Any) -> None:  # noqa: ANN401
        """Undo a part of a transaction, in which something has failed."""
        self.run(db, f"ROLLBACK TO SAVEPOINT {_PART}")
        self.run(db, f"RELEASE SAVEPOINT {_PART}")

    def keep_part(self, db: Any) -> None:  # noqa: ANN401
        """End a part of a transaction."""
        if not self.unstage():
            self.run(db, f"DROP TABLE IF EXISTS {self.staging}")
        self.run(db, f"RELEASE SAVEPOINT {_PART}")

    def quote(self, name: str) -> str:
        """Return a name as SQL takes it, as it is."""
        return '"' + name.replace('"', '""') + '"'

    def path(self, name: tuple[str, ...]) -> str:
        """Return the name of a table as SQL takes it."""
        return ".".join(map(self.quote, name))

    def listed(self, names: Sequence[str], before: str = "") -> str:
        """Return names as a list in SQL."""
        return ", ".join(before + self.quote(name) for name in names)

    def books(self, name: str) -> str:
        """Return the statement that makes the table of what was committed."""
        return (
            f"CREATE TABLE {name} (query VARCHAR(100) NOT NULL, sink VARCHAR(100) NOT NULL, epoch BIGINT NOT NULL, "
            "name VARCHAR(100) NOT NULL, void SMALLINT NOT NULL, PRIMARY KEY (query, sink, epoch, name))"
        )

    def insert_new(self, table: str, columns: str, values: str) -> str:
        """Return the statement that adds rows but those that are there."""
        return f"INSERT INTO {table} ({columns}) VALUES {values} ON CONFLICT DO NOTHING"

    # --- an epoch's rows, waiting in the staging table ------------------------------------------------------

    def stage(self, match: Match) -> str:
        """Return the statement that makes the staging table, its columns of the target's types."""
        beside = [f"CAST(0 AS SMALLINT) AS {DELETED}"] if match.op else []
        beside += [f"CAST(0 AS BIGINT) AS {SEQUENCE}"] if match.sequence else []
        return (
            f"CREATE TEMPORARY TABLE {self.staging.rpartition('.')[2]} AS SELECT "
            f"{', '.join([*map(self.waits_as, match.fits), *beside])} FROM {self.path(self.options.table)} WHERE 1 = 0"
        )

    def waits_as(self, fit: Fit) -> str:
        """Return a column of the target as the staging table has it: it takes null, as a deletion is its key alone."""
        return self.quote(fit.column.name)

    def unstage(self) -> str:
        """Return the statement that drops the staging table; empty where the end of the transaction does."""
        return f"DROP TABLE {self.staging}"

    def twice(self, match: Match) -> str:
        """Return the statement that finds a key that waits twice with one sequence, by the table's own equality."""
        listed = self.listed(match.keys)
        alike = f"{listed}, {SEQUENCE}" if match.sequence else listed
        return f"SELECT {listed} FROM {self.staging} GROUP BY {alike} HAVING COUNT(*) > 1 LIMIT 1"

    def newest(self, match: Match, columns: Sequence[str]) -> str:
        """Return the newest row of each key that waits, as a table in SQL."""
        if not match.sequence:
            return self.staging
        beside = f", {DELETED}" if match.op else ""
        return (
            f"(SELECT {self.listed(columns)}{beside} FROM (SELECT {self.listed(columns)}{beside}, ROW_NUMBER() OVER ("
            f"PARTITION BY {self.listed(match.keys)} ORDER BY {SEQUENCE} DESC) AS onceonly_place FROM {self.staging}) "
            "AS onceonly_ranked WHERE onceonly_place = 1)"
        )

    def delete(self, match: Match) -> str:
        """Return the statement that removes the rows whose newest word is a deletion."""
        return (
            f"DELETE FROM {self.path(self.options.table)} WHERE EXISTS (SELECT 1 FROM "
            f"{self.newest(match, match.keys)} AS onceonly_newest WHERE {DELETED} = 1 AND {self._same(match)})"
        )

    def misplaced(self, match: Match) -> str:
        """Return the statement that finds a key that was written and that the table has not, or has more than once."""
        target, listed = self.path(self.options.table), self.listed(match.keys, "onceonly_newest.")
        written = f" WHERE {DELETED} = 0" if match.op else ""
        return (
            f"SELECT {listed} FROM {self.newest(match, match.keys)} AS onceonly_newest LEFT JOIN {target} ON "
            f"{self._same(match)}{written} GROUP BY {listed} "
            f"HAVING COUNT({target}.{self.quote(match.keys[0])}) <> 1 LIMIT 1"
        )

    def left(self, match: Match) -> str:
        """Return the statement that finds a key that was deleted and that the table has."""
        return (
            f"SELECT {self.listed(match.keys, 'onceonly_newest.')} FROM {self.newest(match, match.keys)} AS "
            f"onceonly_newest JOIN {self.path(self.options.table)} ON {self._same(match)} WHERE {DELETED} = 1 LIMIT 1"
        )

    def _same(self, match: Match) -> str:
        target = self.path(self.options.table)
        return " AND ".join(
            f"onceonly_newest.{self.quote(key)} = {target}.{self.quote(key)}" for key in match.keys
        )

    def insert(self, match: Match) -> str:
        """Return the statement that writes what waits to the target; in the order of its keys, against deadlocks."""
        listed = self.listed(match.columns)
        written = f"{DELETED} = 0" if match.op else "1 = 1"  # SQLite needs a condition before ON CONFLICT
        head = f"{self.verb} {self.path(self.options.table)} ({listed}) SELECT {listed} FROM "
        if not match.key:
            return f"{head}{self.staging}"
        return (
            f"{head}{self.newest(match, match.columns)} AS onceonly_newest WHERE {written} "
            f"ORDER BY {self.listed(match.keys)} {self.replace(match)}"
        )

    def replace(self, match: Match) -> str:
        """Return what an insert says of rows whose key is there: they get the other values."""
        others = [name for name in match.columns if name not in match.keys]
        if not others:
            return f"ON CONFLICT ({self.listed(match.keys)}) DO NOTHING"
        sets = ", ".join(f"{self.quote(name)} = excluded.{self.quote(name)}" for name in others)
        return f"ON CONFLICT ({self.listed(match.keys)}) DO UPDATE SET {sets}"
