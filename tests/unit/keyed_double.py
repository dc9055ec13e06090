"""A double of the keyed family: its target is an SQLite table by key, in which each row is written by itself."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import UnavailableError
from onceonly.families.keyed import KeyedSink, Newer
from onceonly.ports import Option, Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from onceonly.families.keyed import KeyedRows, Origin

TABLES = """
CREATE TABLE rows (key TEXT PRIMARY KEY, version INTEGER, deleted INTEGER, row TEXT);
CREATE TABLE books (name TEXT PRIMARY KEY, is_void INTEGER);
CREATE TABLE generations (number INTEGER PRIMARY KEY, who TEXT UNIQUE, newest INTEGER);
"""


class KeyedDouble(KeyedSink):
    """Rows of any columns; ``poison`` in one is refused by the target, and ``unfit`` before it is asked."""

    name: ClassVar[str] = "keyed"
    declared: ClassVar[tuple[Option, ...]] = (
        *KeyedSink.declared,
        Option(name="database", doc="the file", required=True),
    )

    def identity(self) -> Mapping[str, str | int]:
        return {"database": self.options["database"]}

    def unfit(self, rows: KeyedRows) -> Iterator[Refused]:
        for place, row in enumerate(rows.rows.to_pylist()):
            if "unfit" in map(str, row.values()):
                yield Refused(row=place, code="UNFIT", why="it is unfit")

    def put(self, rows: KeyedRows, version: int) -> tuple[Sequence[Refused], Newer | None]:
        refused = []
        newer = self.examine(rows, version)
        with self._database() as db:
            places = enumerate(zip(rows.keys, rows.deleted, rows.rows.to_pylist(), strict=True))
            for place, (key, deleted, row) in places:
                if "poison" in map(str, row.values()):
                    refused.append(Refused(row=place, code="POISON", why="it is poison"))
                    continue
                text = json.dumps(list(row.values()), default=str)
                with db:  # a row by itself
                    db.execute(
                        "INSERT INTO rows VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE "
                        "SET version = excluded.version, deleted = excluded.deleted, row = excluded.row "
                        "WHERE version <= excluded.version",
                        (key, version, deleted, text),
                    )
        return refused, newer

    def examine(self, rows: KeyedRows, version: int) -> Newer | None:
        with self._database() as db:
            for key in rows.keys:
                [held] = db.execute("SELECT version FROM rows WHERE key = ?", (key,)).fetchone() or (0,)
                if held > version:
                    return Newer(key, held)
        return None

    def versions(self) -> Mapping[int, int]:
        with self._database() as db:
            found = db.execute("SELECT version, count(*) FROM rows WHERE NOT deleted GROUP BY version")
            return dict(found.fetchall())

    def note(self, origin: Origin, names: Collection[str], *, since: int) -> int | None:
        newest = self.newest(origin.query, origin.sink)
        if (-1 if newest is None else newest) < since:
            return newest
        if self._noted_as(names, is_void=1):
            raise UnavailableError("given up meanwhile", next_step="try again")
        with self._database() as db, db:
            db.executemany("INSERT OR IGNORE INTO books VALUES (?, 0)", [(name,) for name in names])
            db.execute(
                "UPDATE generations SET newest = max(coalesce(newest, -1), ?) WHERE who = ?",
                (origin.epoch, f"{origin.query}/{origin.sink}"),
            )
        return None

    def known(self, names: Collection[str]) -> Collection[str]:
        return self._noted_as(names, is_void=0)

    def void(self, names: Collection[str]) -> Collection[str]:
        with self._database() as db, db:
            db.executemany("INSERT OR IGNORE INTO books VALUES (?, 1)", [(name,) for name in names])
        return self._noted_as(names, is_void=1)

    def newest(self, query: str, sink: str) -> int | None:
        with self._database() as db:
            found = db.execute(
                "SELECT newest FROM generations WHERE who = ?", (f"{query}/{sink}",)
            ).fetchone()
        return None if found is None else found[0]

    def generation(self, query: str, sink: str, *, above: int = 0) -> int:
        who = f"{query}/{sink}"
        with self._database() as db, db:
            db.execute("INSERT OR IGNORE INTO generations (who) VALUES (?)", (who,))
            db.execute(
                "UPDATE generations SET number = (SELECT max(max(number), ?) FROM generations) + 1 "
                "WHERE who = ? AND number <= ?",
                (above, who, above),
            )
            [number] = db.execute("SELECT number FROM generations WHERE who = ?", (who,)).fetchone()
        return int(number)

    def generations(self) -> int:
        with self._database() as db:
            [number] = db.execute("SELECT coalesce(max(number), 0) FROM generations").fetchone()
        return int(number)

    def _noted_as(self, names: Collection[str], *, is_void: int) -> set[str]:
        with self._database() as db:
            found = db.execute("SELECT name FROM books WHERE is_void = ?", (is_void,)).fetchall()
        return {name for (name,) in found} & set(names)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        # Never made here: a target that is not there is out of reach, and not empty.
        try:
            with closing(
                sqlite3.connect(f"file:{self.options['database']}?mode=rw", timeout=60, uri=True)
            ) as db:
                yield db
        except sqlite3.Error as error:
            raise UnavailableError(f"{error}", next_step="try again") from error
