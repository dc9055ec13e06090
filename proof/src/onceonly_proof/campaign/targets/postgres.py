"""PostgreSQL."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from onceonly_proof.auditor import DatabaseReader
from onceonly_proof.campaign.targets.port import Served
from onceonly_proof.embedded.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.auditor import Reader


class Postgres(Served[EmbeddedPostgres]):
    """Tables of one server."""

    def __init__(self, folder: Path) -> None:  # noqa: ARG002  it chooses one that its user can reach
        super().__init__(EmbeddedPostgres(), commit=b"COMMIT\0")

    def options(self, name: str) -> dict[str, str]:
        with closing(self._connect()) as db:
            db.execute(f'CREATE TABLE "{name}" ("key" TEXT, "value" TEXT)')
            db.commit()
        return {"url": self.through_the_proxy(self._server.url()), "table": f'"{name}"'}

    def reader(self, sink: str, name: str) -> Reader:
        return DatabaseReader(sink, self._connect, f'SELECT "key", "value" FROM "{name}"')  # noqa: S608

    def _connect(self) -> Any:  # noqa: ANN401  the client's own
        import psycopg

        return psycopg.connect(self._server.url(), connect_timeout=5)
