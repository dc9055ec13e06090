"""A double of the loaded family: parquet files in a folder, and an SQLite database that is the table's log."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.families import behind
from onceonly.families.loaded import DECLARED, Books, ConflictError, Layout, Load, LoadedSink
from onceonly.families.loaded.folders import FolderHome
from onceonly.families.loaded.load import app_of
from onceonly.families.loaded.sink import newest_with_rows
from onceonly.ports import Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onceonly.ports import QueryContext


class LoadedDouble(LoadedSink):
    """Rows of two columns, ``key`` and ``value``. The log has a row an attempt, and a row a file."""

    name: ClassVar[str] = "loaded"
    declared: ClassVar[tuple[Option, ...]] = (
        *DECLARED,
        Option(name="folder", doc="the table", required=True),
    )

    @property
    def home(self) -> FolderHome:
        return FolderHome(Path(self.options["folder"]))

    @property
    def log_folder(self) -> Path:
        return Path(self.options["folder"])

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        app = app_of(context.query, context.sink)
        return {
            "home": self.home.text,
            "table": "t",
            "columns": "key value",
            "since": 0,
            "newest": newest_with_rows(self.books(app, None)),
            **behind.stood(self.standing(app)),
        }

    def identity(self) -> Mapping[str, str | int]:
        return {"folder": self.options["folder"]}

    def layout(self, facts: Mapping[str, str | int]) -> Layout:
        import pyarrow as pa

        return Layout(pa.schema([(name, pa.string()) for name in str(facts["columns"]).split()]))

    def books(self, app: str, epoch: int | None, *, since: int | None = None) -> Books:
        with self._log() as log:
            rows = log.execute("SELECT name, epoch, void FROM attempts WHERE app = ?", [app]).fetchall()
        epoch = max((of for _, of, _ in rows), default=0) if epoch is None else epoch
        return Books(
            committed=frozenset(name for name, of, void in rows if of >= epoch and not void),
            void=frozenset(name for name, of, void in rows if of >= epoch and void),
            newest=max((of for _, of, _ in rows), default=None),
            at=len(rows),
        )

    def enter(self, books: Books, app: str, epoch: int, loads: Sequence[Load], void: Sequence[str]) -> None:
        with self._log() as log:
            log.execute("BEGIN IMMEDIATE")
            [(count,)] = log.execute("SELECT count(*) FROM attempts WHERE app = ?", [app]).fetchall()
            if count != books.at:
                raise ConflictError("another entry was made meanwhile")
            log.executemany("INSERT INTO attempts VALUES (?, ?, ?, 1)", [(app, name, epoch) for name in void])
            log.executemany(
                "INSERT INTO attempts VALUES (?, ?, ?, 0)", [(app, load.name, epoch) for load in loads]
            )
            log.executemany(
                "INSERT INTO files VALUES (?)",
                [(f"{load.folder}/{file.path}",) for load in loads for file in load.files],
            )

    def see(self, books: Books, loads: Sequence[Load]) -> None:
        if {load.columns for load in loads} - {"key value"}:
            raise ConfigurationError("the table has other columns", next_step="mend it")

    @contextmanager
    def _log(self) -> Iterator[sqlite3.Connection]:
        # Never made here: a log that is not there is out of reach, and not empty.
        try:
            with (
                closing(
                    sqlite3.connect(f"file:{self.log_folder / 'log.db'}?mode=rw", timeout=60, uri=True)
                ) as log,
                log,
            ):
                yield log
        except sqlite3.Error as error:
            raise UnavailableError(f"{error}", next_step="try again") from error


def make_table(folder: Path) -> dict[str, str]:
    """Make an empty table; give the options for it."""
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / "log.db")) as log, log:
        log.execute("CREATE TABLE attempts (app TEXT, name TEXT PRIMARY KEY, epoch INTEGER, void INTEGER)")
        log.execute("CREATE TABLE files (path TEXT PRIMARY KEY)")
    return {"folder": str(folder)}
