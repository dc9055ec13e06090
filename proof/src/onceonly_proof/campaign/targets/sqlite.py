"""SQLite: databases in a file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from onceonly_proof.auditor import DatabaseReader
from onceonly_proof.campaign.targets.port import Unserved

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.auditor import Reader


class Sqlite(Unserved):
    """Tables of one file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._file = folder / "rows.db"

    def options(self, name: str) -> dict[str, str]:
        with closing(sqlite3.connect(self._file)) as db, db:
            db.execute(f'CREATE TABLE "{name}" ("key" TEXT, "value" TEXT)')
        return {"url": f"sqlite:///{self._file}", "table": f'"{name}"'}

    def reader(self, sink: str, name: str) -> Reader:
        return DatabaseReader(
            sink,
            lambda: sqlite3.connect(self._file, timeout=60),
            f'SELECT "key", "value" FROM "{name}"',  # noqa: S608
        )
