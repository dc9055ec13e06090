"""A PostgreSQL for tests of the SQL sinks: new databases on one server, asked without the sink."""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from onceonly_proof.embedded.postgres import EmbeddedPostgres

BOOKS = (
    "CREATE TABLE {} (query varchar(100), sink varchar(100), epoch bigint, name varchar(100), void smallint NOT NULL, "
    "PRIMARY KEY (query, sink, epoch, name))"
)


def ask(url: str, sql: str) -> list[Any]:
    """Ask the server itself."""
    with closing(psycopg.connect(url, autocommit=True)) as db:
        cursor = db.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


def database(server: EmbeddedPostgres) -> str:
    """Make a new database, and return its address."""
    name = f"t{uuid.uuid4().hex[:12]}"
    ask(server.url(), f"CREATE DATABASE {name} STRATEGY wal_log")
    return server.url(database=name)
