"""The conformance suite for the SQL sinks on embedded databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from onceonly.sinks.sql import SqlSink
from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class TestSqlite(SinkConformance):
    sink = SqlSink

    def options(self, folder: Path) -> dict[str, str]:
        database = folder / "results.db"
        with closing(sqlite3.connect(database)) as db, db:
            db.execute("CREATE TABLE results (key TEXT NOT NULL, value TEXT)")
        return {"url": f"sqlite:///{database}", "table": "results", "staging": str(folder / "staging")}

    def visible(self, options: Mapping[str, str]) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(database_of(options), timeout=60)) as db:
            return db.execute("SELECT key, value FROM results").fetchall()

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [str(path) for path in Path(options["staging"]).rglob("*") if path.is_file()]

    def refusable(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": [None, None], "value": ["without", "a key"]})

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        database = database_of(options)
        aside = database.rename(database.with_name("aside"))
        yield
        aside.rename(database)


def database_of(options: Mapping[str, str]) -> Path:
    return Path(options["url"].removeprefix("sqlite:///"))
