"""A double of the staged family: its target is an SQLite database, with a table of rows and one of books."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import UnavailableError
from onceonly.families.staged import StagedSink
from onceonly.ports import Option

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onceonly.families.staged import StagedRows


class StagedDouble(StagedSink):
    """Rows of two columns, ``key`` and ``value``."""

    name: ClassVar[str] = "staged"
    declared: ClassVar[tuple[Option, ...]] = (
        *StagedSink.declared,
        Option(name="database", doc="the file", required=True),
    )

    def identity(self) -> Mapping[str, str | int]:
        return {"database": self.options["database"]}

    def apply(self, staged: Mapping[str, StagedRows]) -> None:
        rows = [
            tuple(row.values())
            for each in staged.values()
            for batch in each.batches()
            for row in batch.to_pylist()
        ]
        try:
            with closing(self._connect()) as db, db:
                db.executemany("INSERT INTO books VALUES (?, 0)", [(name,) for name in staged])
                db.executemany("INSERT INTO results VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise UnavailableError(f"{error}", next_step="try again") from error

    def known(self, names: Collection[str]) -> Collection[str]:
        try:
            with closing(self._connect()) as db:
                return self._noted(db, names, void=0)
        except sqlite3.Error as error:
            raise UnavailableError(f"{error}", next_step="try again") from error

    def void(self, names: Collection[str]) -> Collection[str]:
        try:
            with closing(self._connect()) as db, db:
                db.executemany("INSERT OR IGNORE INTO books VALUES (?, 1)", [(name,) for name in names])
                return self._noted(db, names, void=1)
        except sqlite3.Error as error:
            raise UnavailableError(f"{error}", next_step="try again") from error

    def _noted(self, db: sqlite3.Connection, names: Collection[str], *, void: int) -> set[str]:
        marks = ", ".join("?" * len(names))
        found = db.execute(f"SELECT name FROM books WHERE void = {void} AND name IN ({marks})", tuple(names))  # noqa: S608
        return {name for (name,) in found}

    def _connect(self) -> sqlite3.Connection:
        # Never made here: a target that is not there is out of reach, and not empty.
        return sqlite3.connect(f"file:{self.options['database']}?mode=rw", timeout=60, uri=True)
