"""What executors do for contenders that write there. Each function is made on the driver, and pickled.

Rows are loaded as ours loads them, so that what differs is the way, and not the loading.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from onceonly.sinks.sql.dialects.dialect import Dialect
    from onceonly.sinks.sql.types import Match

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

NAME = "name string"
"""The schema of what a task tells the driver: what it has made."""
_PIPELINED, _BULK, _CONCURRENT = 500, 1_000, 100


def dialect(options: Mapping[str, str]) -> Dialect:
    """Return what speaks to the database of a sink with these options."""
    from onceonly.options import read_options
    from onceonly.sinks.sql.dialects import dialect_of
    from onceonly.sinks.sql.options import DECLARED, SqlOptions

    who = "the benchmark"
    return dialect_of(SqlOptions.of(read_options(DECLARED, options, who=who), who=who))


def prepared(options: Mapping[str, str], columns: str) -> Task:
    """Load rows into the table, and leave the transaction prepared."""
    match = _matched(options, columns)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sql, name = dialect(options), uuid.uuid4().hex
        db = sql.connect()
        sql.begin(db)
        _load(sql, db, options["table"], batches, match)
        sql.run(db, f"PREPARE TRANSACTION '{name}'")
        db.close()
        yield _told(name)

    return write


def tables(options: Mapping[str, str], columns: str, make: str) -> Task:
    """Load rows into a table of the task's own, made by a statement with a place for its name."""
    match = _matched(options, columns)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sql, name = dialect(options), f"s_{uuid.uuid4().hex}"
        db = sql.connect()
        sql.run(db, make.format(name))
        sql.begin(db)
        _load(sql, db, name, batches, match)
        sql.commit(db)
        db.close()
        yield _told(name)

    return write


def hashes(url: str, prefix: str) -> Task:
    """Set hashes of Redis, many in one call."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import redis

        client = redis.Redis.from_url(url)
        for rows in _rows(batches):
            for first in range(0, len(rows), _PIPELINED):
                calls: Any = client.pipeline(transaction=False)
                for row in rows[first : first + _PIPELINED]:
                    calls.hset(f"{prefix}{row['key']}", mapping=row)
                calls.execute()
        client.close()
        yield from ()

    return write


def documents(url: str, index: str) -> Task:
    """Index documents of OpenSearch, many in one call."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from opensearchpy import OpenSearch, helpers

        client = OpenSearch(url)
        actions = (
            {"_index": index, "_id": row["key"], "_source": row} for rows in _rows(batches) for row in rows
        )
        helpers.bulk(client, actions, chunk_size=_BULK)
        client.close()
        yield from ()

    return write


def cells(port: int, keyspace: str, table: str) -> Task:
    """Insert rows of Cassandra, many at a time."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.concurrent import execute_concurrent_with_args
        from cassandra.policies import RoundRobinPolicy

        profile = ExecutionProfile(RoundRobinPolicy())
        cluster = Cluster(
            [("127.0.0.1", port)],
            port=port,
            protocol_version=4,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        session = cluster.connect(keyspace)
        insert = session.prepare(f"INSERT INTO {table} (id, key, value) VALUES (?, ?, ?)")  # noqa: S608  of our own
        for rows in _rows(batches):
            values = [(row["id"], row["key"], row["value"]) for row in rows]
            execute_concurrent_with_args(session, insert, values, concurrency=_CONCURRENT)
        cluster.shutdown()
        yield from ()

    return write


def _load(
    sql: Dialect,
    db: Any,  # noqa: ANN401
    into: str,
    batches: Iterator[pa.RecordBatch],
    match: Match,
) -> None:
    from onceonly.executor.slot import in_larger

    for batch in in_larger(batches):
        sql.load(db, into, batch, match)


def _matched(options: Mapping[str, str], columns: str) -> Match:
    """Return how rows, by the columns of their schema in SQL, meet the table of a sink with these options."""
    from onceonly.sinks.sql.target import Target
    from onceonly.sinks.sql.types import of_spark

    target = Target(dialect(options).options)
    try:
        pairs = [each.split() for each in columns.split(", ")]
        return target.matched([(name, of_spark(kind)) for name, kind in pairs], target.table())
    finally:
        target.close()


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
    from onceonly.executor.slot import in_larger

    for batch in in_larger(batches):
        yield batch.to_pylist()


def _told(name: str) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"name": [name]})
