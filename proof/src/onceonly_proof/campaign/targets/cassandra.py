"""Cassandra: one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.auditor import CassandraReader
from onceonly_proof.campaign.targets.keyed import KEYED, SEQUENCE
from onceonly_proof.campaign.targets.port import Served
from onceonly_proof.embedded.cassandra import EmbeddedCassandra

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.auditor import Reader


class Cassandra(Served[EmbeddedCassandra]):
    """Tables of a keyspace. It keeps through a SIGKILL what it has answered."""

    replaces = True
    shows_whole_epochs = False

    def __init__(self, folder: Path) -> None:
        # It commits by changing the books.
        super().__init__(EmbeddedCassandra(folder), commit=b"IF revision")
        replicated = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        self._server.cql(f"CREATE KEYSPACE rows WITH replication = {replicated}")

    def options(self, name: str) -> dict[str, str]:
        table = _table(name)
        self._server.cql(f"CREATE TABLE rows.{table} (key text PRIMARY KEY, value text, {SEQUENCE} bigint)")
        hosts = self.through_the_proxy(self._server.hosts)
        return {"hosts": hosts, "keyspace": "rows", "table": table, **KEYED}

    def reader(self, sink: str, name: str) -> Reader:
        return CassandraReader(sink, self._server.port, f"SELECT key, value FROM rows.{_table(name)}")  # noqa: S608


def _table(name: str) -> str:
    """Return a name that a table can have: letters, digits and underscores."""
    return name.replace("-", "_")
