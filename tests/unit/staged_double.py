"""Doubles of the staged family, and their suite: an SQLite database with a table of rows and one of books."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import UnavailableError
from onceonly.families.staged import StagedSink
from onceonly.ports import Option
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

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


class StoredDouble(StagedDouble):
    """The same, told in each process how the store of its option ``staging`` is reached, as a job's Hadoop is."""

    name: ClassVar[str] = "stored"
    declared: ClassVar[tuple[Option, ...]] = (
        *StagedDouble.declared,
        Option(name="hadoop", doc="what the job gave to Hadoop, as JSON", required=True, secret=True),
    )

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        opened.tell(Hadoop(json.loads(self.options["hadoop"])))


class StagedSuite(SinkConformance):
    """What the suites of both have in common; where rows are staged, a suite says itself."""

    sink = StagedDouble

    def options(self, folder: Path) -> dict[str, str]:
        with closing(sqlite3.connect(folder / "results.db")) as db, db:
            db.execute("CREATE TABLE results (key TEXT, value TEXT)")
            db.execute("CREATE TABLE books (name TEXT PRIMARY KEY, void INTEGER)")
        return {"database": str(folder / "results.db")}

    def visible(self, options: Mapping[str, str]) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(options["database"], timeout=60)) as db:
            return db.execute("SELECT key, value FROM results").fetchall()

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        database = Path(options["database"])
        aside = database.rename(database.with_name("aside"))
        yield
        aside.rename(database)
