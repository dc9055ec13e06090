"""The conformance suite for the SQL sinks on a real PostgreSQL."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from postgres_databases import BOOKS, ask, database
from tests.unit.sql_bench import rows

from onceonly.sinks.sql import PostgresSink
from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from onceonly_proof.embedded.postgres import EmbeddedPostgres

pytestmark = pytest.mark.integration


class TestPostgres(SinkConformance):
    """By a user who may do nothing but what the sink needs, with a password."""

    sink = PostgresSink
    every_pass = False

    @pytest.fixture(autouse=True)
    def with_server(self, postgres: EmbeddedPostgres) -> None:
        self.server = postgres

    def options(self, folder: Path) -> dict[str, str]:
        url = database(self.server)
        user, name = f"u{uuid.uuid4().hex[:12]}", url.rpartition("/")[2]
        ask(url, f"CREATE ROLE {user} LOGIN PASSWORD 'geheim-{user}'")
        ask(url, "CREATE TABLE results (key text NOT NULL, value text)")
        ask(url, BOOKS.format("onceonly_commits"))
        ask(url, f"GRANT INSERT ON results TO {user}")
        ask(url, f"GRANT SELECT, INSERT, DELETE ON onceonly_commits TO {user}")
        ask(url, f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
        return {
            "url": self.server.url(user, name), "table": "results", "password": f"geheim-{user}",
            "staging": str(folder / "staging"),
        }  # fmt: skip

    def admin(self, options: Mapping[str, str]) -> str:
        return self.server.url(database=options["url"].rpartition("/")[2])

    def visible(self, options: Mapping[str, str]) -> list[tuple[str, str]]:
        return ask(self.admin(options), "SELECT key, value FROM results")

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        left = [str(path) for path in Path(options["staging"]).rglob("*") if path.is_file()]
        return left + [name for (name,) in ask(self.admin(options), "SELECT gid FROM pg_prepared_xacts")]

    def refusable(self) -> pa.RecordBatch:
        return rows(key=["nul", "none"], value=["a\0b", "x"]).slice(0, 1)

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        name = options["url"].rpartition("/")[2]
        ask(self.server.url(), f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        ask(
            self.server.url(),
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",  # noqa: S608
        )
        yield
        ask(self.server.url(), f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
