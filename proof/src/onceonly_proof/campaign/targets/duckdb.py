"""DuckDB: databases in a file that one process at a time may write, and that nobody reads meanwhile."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from onceonly_proof.auditor import DatabaseReader
from onceonly_proof.campaign.targets.port import Unserved

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.auditor import Reader

_WAIT_S, _POLL_S = 5.0, 0.002


class DuckDb(Unserved):
    """Tables of one file. A job lets go of it between two transactions, and a reader waits for that."""

    shuts_out = True

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._file = folder / "rows.db"

    def options(self, name: str) -> dict[str, str]:
        with closing(self._connect(reads=False)) as db:
            db.execute(f'CREATE TABLE "{name}" ("key" VARCHAR, "value" VARCHAR)')
        return {"url": f"duckdb:///{self._file}", "table": f'"{name}"'}

    def reader(self, sink: str, name: str) -> Reader:
        return DatabaseReader(sink, self._connect, f'SELECT "key", "value" FROM "{name}"')  # noqa: S608

    def _connect(self, *, reads: bool = True) -> Any:  # noqa: ANN401  the client's own
        import duckdb

        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                return duckdb.connect(str(self._file), read_only=reads)
            except duckdb.IOException:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)
