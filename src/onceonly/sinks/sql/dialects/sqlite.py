"""SQLite. What a column takes follows from its affinity, which changes values silently: decimals, texts of digits."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onceonly.errors import ConfigurationError, OnceonlyError, RecordRefusedError, UnavailableError
from onceonly.sinks.sql.dialects.dialect import Dialect
from onceonly.sinks.sql.reading import ROWS
from onceonly.sinks.sql.texts import time_texts
from onceonly.sinks.sql.types import Column, Given, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from onceonly.sinks.sql.options import SqlOptions
    from onceonly.sinks.sql.types import Match

_TIMES = ("date", "instant", "local")
_ANY = ("bool", "int", "float", "text", "binary", "decimal", *_TIMES)
# By parts of a declared type, the first that is found in it: SQLite's own rules, and what it has no type for.
_TAKES = (
    ("INT", ("int", "bool")), ("CHAR", ("text", "decimal", *_TIMES)), ("CLOB", ("text", "decimal", *_TIMES)),
    ("TEXT", ("text", "decimal", *_TIMES)), ("BLOB", ("binary",)), ("REAL", ("float", "int")),
    ("FLOA", ("float", "int")), ("DOUB", ("float", "int")), ("BOOL", ("bool",)), ("TIME", ("instant", "local")),
    ("DATE", ("date",)), ("JSON", ("nested",)), ("NUM", ("int",)), ("DEC", ("int",)),
)  # fmt: skip
_TYPES = {
    "bool": "BOOLEAN", "int": "BIGINT", "float": "REAL", "decimal": "TEXT", "text": "TEXT", "binary": "BLOB",
    "date": "DATE", "instant": "TIMESTAMP", "local": "TIMESTAMP", "nested": "JSON",
}  # fmt: skip
_PASSING = {"BUSY", "LOCKED", "IOERR", "NOMEM", "INTERRUPT", "PROTOCOL", "SCHEMA"}
_REFUSED = {"CONSTRAINT", "MISMATCH", "TOOBIG"}
_TWICE = {"SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE"}

_LATE = "NO ACTION"
"""What a foreign key does that may be looked at late; RESTRICT looks at once, whatever else it says."""
_AT_COMMIT = "is only checked at COMMIT (INITIALLY DEFERRED), after the decision"


class Sqlite(Dialect):
    """A database in a file of the driver's machine."""

    signs_zero = False
    verb = "INSERT OR ABORT INTO"  # whatever a constraint of the table says that conflicts lead to

    def __init__(self, options: SqlOptions) -> None:
        super().__init__(options)
        self._require_file()

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error,)

    def told(self, error: Exception) -> OnceonlyError:
        name = str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_").partition("_")[0]
        what = f"{self.options.url}: {error}"
        if name in _REFUSED:
            return RecordRefusedError(what, next_step="mend the row, or what the table asks of it")
        if name == "FULL":
            return self.no_room(str(error))
        if name in _PASSING:
            return UnavailableError(
                what, next_step="see to the file and who else uses it, and start the query again"
            )
        if name == "CANTOPEN" and (refusal := self._no_folder()) is not None:
            return refusal
        make = (
            "; create=true makes a file that is missing"
            if name == "CANTOPEN" and not self.options.create
            else ""
        )
        return ConfigurationError(
            what,
            next_step=f"see that the file is there, and that the job's user may write it and its folder{make}",
        )

    def is_duplicate(self, error: Exception) -> bool:
        return getattr(error, "sqlite_errorname", "") in _TWICE

    def connect(self) -> Any:  # noqa: ANN401
        # Never made by looking: a file that is not there may be one that is not mounted.
        db = sqlite3.connect(
            f"file:{quote(self.options.url.path)}?mode=rw",
            timeout=self.options.connect_s, isolation_level=None, check_same_thread=False, uri=True,
        )  # fmt: skip
        db.execute("PRAGMA synchronous = EXTRA")
        db.execute("PRAGMA foreign_keys = ON")
        return db

    def files(self) -> Sequence[Path]:
        path = Path(self.options.url.path)
        beside = [path.with_name(path.name + end) for end in ("-journal", "-wal", "-shm")]
        return [path, path.parent, *(each for each in beside if each.exists())]

    def make(self) -> None:
        with closing(sqlite3.connect(self.options.url.path)) as db:
            db.execute("PRAGMA user_version").fetchall()

    def begin(self, db: Any) -> None:  # noqa: ANN401
        # Who begins to read and then writes may find that another one has written meanwhile.
        db.execute("BEGIN IMMEDIATE")

    def begin_reading(self, db: Any) -> None:  # noqa: ANN401
        db.execute("BEGIN")  # where the file has a log ahead (WAL), others write meanwhile

    def describe(self, db: Any, name: tuple[str, ...]) -> Table | None:  # noqa: ANN401
        table = name[-1]
        if name[:-1] not in {(), ("main",)}:
            return None
        found = self.run(
            db, "SELECT name, type, sql FROM main.sqlite_master WHERE type IN ('table', 'view') AND name = ? "
            "COLLATE NOCASE", (table,),
        )  # fmt: skip
        if not found:
            return None
        table, kind, sql = found[0]
        columns, primary = [], []
        for _, column, declared, notnull, default, pk, hidden in self.run(
            db, "SELECT * FROM pragma_table_xinfo(?)", (table,)
        ):
            primary += [(pk, column)] if pk else []
            is_row_id = bool(pk) and declared.upper() == "INTEGER"
            filled = default is not None or is_row_id
            columns.append(
                _column(column, declared, required=bool(notnull), filled=filled, computed=bool(hidden))
            )
        keys, doubts = self._keys(db, table)
        if len(primary) == 1 and not self.run(
            db, "SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk'", (table,)
        ):
            keys.add((primary[0][1],))  # the row's own number needs no index
        triggers = self._triggers(db, table)
        return Table(
            name=table,
            columns=tuple(columns),
            keys=tuple(sorted(keys)),
            doubts=(*doubts, *triggers, *self._doubts(db, table, sql or "", columns)),
            passing=tuple(triggers),
            wrong=_wrong(kind, sql or "") or self._forbidden_late(db, table),
        )

    def _keys(self, db: Any, table: str) -> tuple[set[tuple[str, ...]], list[str]]:  # noqa: ANN401
        keys: set[tuple[str, ...]] = set()
        doubts = []
        for _, index, unique, _, partial in self.run(db, "SELECT * FROM pragma_index_list(?)", (table,)):
            parts = self.run(db, 'SELECT name, coll FROM pragma_index_xinfo(?) WHERE "key" = 1', (index,))
            # What waits for its key's newest row is compared by bytes.
            is_plain = all(column is not None and by == "BINARY" for column, by in parts)
            if partial or (unique and not is_plain) or any(column is None for column, _ in parts):
                doubts.append(f"the index {index}")
            elif unique:
                keys.add(tuple(column for column, _ in parts))
        return keys, doubts

    def _triggers(self, db: Any, table: str) -> list[str]:  # noqa: ANN401
        # It has the table's name as whoever made it wrote that.
        of_it = "SELECT name FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE"
        return [f"the trigger {name}" for (name,) in self.run(db, of_it, (table,))]

    def _doubts(self, db: Any, table: str, sql: str, columns: list[Column]) -> list[str]:  # noqa: ANN401
        found = ["a CHECK"] if re.search(r"\bCHECK\b", sql, re.IGNORECASE) else []
        found += ["a generated column"] if any(column.computed for column in columns) else []
        refers = 'SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)'
        found += [f"a foreign key to {other}" for (other,) in self.run(db, refers, (table,))]
        if self.options.op:
            referred = (
                "SELECT DISTINCT m.name FROM main.sqlite_master m, pragma_foreign_key_list(m.name) f "
                "WHERE m.type = 'table' AND f.\"table\" = ? COLLATE NOCASE"
            )
            found += [f"a foreign key of {other}" for (other,) in self.run(db, referred, (table,))]
        return found

    def _forbidden_late(self, db: Any, table: str) -> str:  # noqa: ANN401
        """Say by which table's foreign key a change may be refused at the commit alone; empty where by none."""
        given, key = self.options, {each.lower() for each in self.options.key}
        for child, column, on_delete, on_update in self.run(
            db, 'SELECT m.name, f."to", f.on_delete, f.on_update FROM main.sqlite_master m, '
            "pragma_foreign_key_list(m.name) f WHERE m.type = 'table' AND f.\"table\" = ? COLLATE NOCASE "
            "AND m.sql LIKE '%INITIALLY%DEFERRED%' ORDER BY m.name", (table,),
        ):  # fmt: skip
            is_changed = bool(key) and column is not None and column.lower() not in key
            if (given.op and on_delete == _LATE) or (is_changed and on_update == _LATE):
                return f"has a foreign key of {child} to it that {_AT_COMMIT}"
        return ""

    def type_of(self, given: Given, *, is_key: bool) -> str:  # noqa: ARG002  as other dialects
        return _TYPES.get(given.kind, "")

    def load(self, db: Any, into: str, batch: pa.RecordBatch, match: Match) -> int:  # noqa: ANN401, ARG002
        marks = ", ".join("?" * batch.num_columns)
        sql = f"{self.verb} {into} ({self.listed(batch.schema.names)}) VALUES ({marks})"
        cursor = db.executemany(sql, zip(*map(_values, batch.columns), strict=True))
        return max(int(cursor.rowcount), 0)  # of none it says -1

    def read(self, db: Any, match: Match) -> Iterator[tuple[int, Sequence[Any]]]:  # noqa: ANN401
        cursor = db.execute(f"SELECT {self.listed(match.columns)} FROM {self.path(self.options.table)}")
        while rows := cursor.fetchmany(ROWS):
            yield len(rows), list(zip(*rows, strict=True))


def _column(name: str, declared: str, *, required: bool, filled: bool, computed: bool) -> Column:
    takes = next((takes for part, takes in _TAKES if part in declared.upper()), () if declared else _ANY)
    return Column(
        name=name,
        declared=declared or "of any type",
        takes=takes,
        mantissa=53 if "float" in takes and "int" in takes and takes != _ANY else None,
        no_nan="float" in takes,  # it becomes null
        required=required,
        filled=filled,
        computed=computed,
    )


def _wrong(kind: str, sql: str) -> str:
    if kind == "view":
        return "is a view"
    if re.match(r"\s*CREATE\s+VIRTUAL\b", sql, re.IGNORECASE):
        return "is a virtual table"
    if re.search(r"\bINITIALLY\s+DEFERRED\b", sql, re.IGNORECASE):
        return f"has a foreign key that {_AT_COMMIT}"
    return ""


def _values(array: pa.Array) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_timestamp(array.type) or pa.types.is_date32(array.type):
        array = time_texts(array)
    if pa.types.is_decimal(array.type):
        return [None if value is None else format(value, "f") for value in array.to_pylist()]
    return list(array.to_pylist())
