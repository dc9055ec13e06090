"""The conformance suite for the Cassandra sink, decided and early, on one server for all tests."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.unit.keyed_suite import TEXTS, KeyedSuite

from onceonly.sinks.cassandra import CassandraSink
from onceonly_proof.embedded.cassandra import EmbeddedCassandra

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.long]
KEYSPACE = "CREATE KEYSPACE rows WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedCassandra]:
    with EmbeddedCassandra() as server:
        server.cql(KEYSPACE)
        yield server


class TestDecided(KeyedSuite):
    sink = CassandraSink
    every_pass = False

    @pytest.fixture(autouse=True)
    def a_server(self, server: EmbeddedCassandra) -> None:
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        table = f"t{uuid.uuid4().hex}"
        self.server.cql(f"CREATE TABLE rows.{table} (key text PRIMARY KEY, value text)")
        return {
            "hosts": self.server.hosts,
            "keyspace": "rows",
            "table": table,
            "key": "key",
            "staging": str(folder / "staging"),
            # Nobody asks for this password: the server has no users.
            "user": "me",
            "password": "5ecret-of-the-cluster",
        }

    def refusable(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": [None, "", "x" * 65_536], "value": ["x"] * 3}, schema=TEXTS)

    def visible(self, options: Mapping[str, str]) -> list[tuple[str | None, ...]]:
        with self.server.session() as session:
            found = session.execute(f"SELECT key, value FROM rows.{options['table']}")  # noqa: S608
            return [tuple(row) for row in found]

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        self.server.kill()
        yield
        self.server.start()


class TestEarly(TestDecided):
    early = True
