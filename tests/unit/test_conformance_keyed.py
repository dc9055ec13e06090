"""The conformance suite for a double of the keyed family, decided and early."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.unit.keyed_double import TABLES, KeyedDouble
from tests.unit.keyed_suite import TEXTS, KeyedSuite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class TestDecided(KeyedSuite):
    sink = KeyedDouble

    def options(self, folder: Path) -> dict[str, str]:
        with closing(sqlite3.connect(folder / "results.db")) as db:
            db.executescript(TABLES)
        return {"database": str(folder / "results.db"), "staging": str(folder / "staging"), "key": "key"}

    def samples(self) -> Mapping[str, pa.RecordBatch]:
        texts = [" ", "0", "Ünïcödé ☃ 𝄞", "a\nb\t\"c\" 'd',\\", "x" * 10_000]
        return {"texts": pa.RecordBatch.from_pydict({"key": texts, "value": texts}, schema=TEXTS)}

    def refusable(self) -> pa.RecordBatch:
        rows = {"key": [None, "", "k"], "value": ["no key", "no key", "unfit"]}
        return pa.RecordBatch.from_pydict(rows, schema=TEXTS)

    def visible(self, options: Mapping[str, str]) -> list[list[str]]:
        with closing(sqlite3.connect(options["database"], timeout=60)) as db:
            return [
                json.loads(row) for (row,) in db.execute("SELECT row FROM rows WHERE NOT deleted").fetchall()
            ]

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        database = Path(options["database"])
        aside = database.rename(database.with_name("aside"))
        yield
        aside.rename(database)


class TestEarly(TestDecided):
    early = True
    every_pass = False  # that of the other one will do

    def refusable(self) -> pa.RecordBatch:
        rows = {"key": [None, "k"], "value": ["no key", "poison"]}
        return pa.RecordBatch.from_pydict(rows, schema=TEXTS)
