"""The servers, one for each group, and how each of its contenders begins a query. Harness.

Servers of tests spare the disk; these do not: each commit waits for it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import onceonly
from benchmarks.sinks import tasks
from benchmarks.sinks.values import OURS
from onceonly_proof.auditor.search import ask
from onceonly_proof.embedded.cassandra import EmbeddedCassandra
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
from onceonly_proof.embedded.mariadb import DATABASE, PASSWORD, EmbeddedMariaDb
from onceonly_proof.embedded.opensearch import EmbeddedOpenSearch
from onceonly_proof.embedded.postgres import USER, EmbeddedPostgres
from onceonly_proof.embedded.redis import EmbeddedRedis
from onceonly_proof.embedded.s3 import EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = "id bigint, key string, value string"
KEYSPACE = "bench"
_BATCH = "10000"
_BUCKET = "bench"


class World(Protocol):
    """A server. Targets are called by names that are never used again."""

    def start(self, contender: str, rows: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
        """Make a target, and begin a query that writes all rows to it."""
        ...

    def count(self, name: str) -> int:
        """Return how many rows a target has."""
        ...


class Sql:
    """A database. ``make`` is the statement for a table of a task, ``jdbc`` what Spark's writer is told."""

    def __init__(self, scheme: str, options: Mapping[str, str], jdbc: Mapping[str, str], make: str) -> None:
        self._scheme = scheme
        self._options = options
        self._jdbc = jdbc
        self._make = make

    def start(self, contender: str, rows: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
        options = {**self._options, "table": name}
        self._ask(name, f"CREATE TABLE {name} (id BIGINT, `key` VARCHAR(20), value VARCHAR(200))")
        match contender:
            case "onceonly":
                return begun(rows, f"onceonly.{self._scheme}", options, checkpoint)
            case "jdbc":
                return each(rows, lambda some, _: self._by_jdbc(some, name), checkpoint)
            case "prepared":
                task = tasks.prepared(options, COLUMNS)
                return each(rows, lambda some, _: self._commit_prepared(some, task, name), checkpoint)
        task = tasks.tables(options, COLUMNS, self._make.replace("{table}", name))
        return each(rows, lambda some, _: self._take_over(some, task, name), checkpoint)

    def count(self, name: str) -> int:
        [(found,)] = self._ask(name, f"SELECT count(DISTINCT id) FROM {name}")  # noqa: S608  of our own
        [(every,)] = self._ask(name, f"SELECT count(*) FROM {name}")  # noqa: S608  as above
        self._ask(name, f"DROP TABLE {name}")
        return int(found) if found == every else -1

    def _by_jdbc(self, rows: DataFrame, name: str) -> None:
        rows.write.format("jdbc").mode("append").options(**self._jdbc, dbtable=name, batchsize=_BATCH).save()

    def _commit_prepared(self, rows: DataFrame, task: tasks.Task, name: str) -> None:
        made = [row["name"] for row in rows.mapInArrow(task, tasks.NAME).collect()]
        for each_one in made:
            self._ask(name, f"COMMIT PREPARED '{each_one}'")

    def _take_over(self, rows: DataFrame, task: tasks.Task, name: str) -> None:
        made = [row["name"] for row in rows.mapInArrow(task, tasks.NAME).collect()]
        inserts = [f"INSERT INTO {name} SELECT * FROM {each_one}" for each_one in made]  # noqa: S608  as above
        self._ask(name, "BEGIN", *inserts, "COMMIT", *(f"DROP TABLE {each_one}" for each_one in made))

    def _ask(self, name: str, *statements: str) -> list[Any]:
        sql = tasks.dialect({**self._options, "table": name})
        db = sql.connect()
        try:
            quoted = [
                each_one.replace("`", '"') if self._scheme == "postgres" else each_one
                for each_one in statements
            ]
            return [sql.run(db, each_one) for each_one in quoted][-1]
        finally:
            db.close()


class Redis:
    """Hashes of a Redis, by keys that begin with the target's name."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self._server = server

    def start(self, contender: str, rows: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
        prefix = f"{name}:"
        if contender == OURS:
            options = {"url": self._server.url, "prefix": prefix, "key": "key", "onceonly.visible": "early"}
            return begun(rows, "onceonly.redis", options, checkpoint)
        return each(rows, _by(tasks.hashes(self._server.url, prefix)), checkpoint)

    def count(self, name: str) -> int:
        import redis

        client = redis.Redis.from_url(self._server.url)
        found = sum(1 for _ in client.scan_iter(f"{name}:[0-9]*", count=10_000))  # without our books
        client.flushall()
        client.close()
        return found


class Search:
    """Indexes of an OpenSearch."""

    def __init__(self, server: EmbeddedOpenSearch) -> None:
        self._server = server

    def start(self, contender: str, rows: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
        ask(
            self._server.url,
            "PUT",
            f"/{name}",
            {"settings": {"number_of_shards": 2, "number_of_replicas": 0}},
        )
        if contender == OURS:
            options = {"url": self._server.url, "index": name, "key": "key", "onceonly.visible": "early"}
            return begun(rows, "onceonly.opensearch", options, checkpoint)
        return each(rows, _by(tasks.documents(self._server.url, name)), checkpoint)

    def count(self, name: str) -> int:
        url = self._server.url
        ask(url, "POST", f"/{name}/_refresh")
        found = int(ask(url, "GET", f"/{name}/_count")["count"])
        ask(url, "DELETE", f"/{name}")
        return found


class Cassandra:
    """Tables of a Cassandra of one node."""

    def __init__(self, server: EmbeddedCassandra) -> None:
        self._server = server

    def start(self, contender: str, rows: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
        self._server.cql(f"CREATE TABLE {KEYSPACE}.{name} (id bigint, key text PRIMARY KEY, value text)")
        if contender == OURS:
            options = {
                "hosts": self._server.hosts, "keyspace": KEYSPACE, "table": name, "key": "key",
                "onceonly.visible": "early",
            }  # fmt: skip
            return begun(rows, "onceonly.cassandra", options, checkpoint)
        return each(rows, _by(tasks.cells(self._server.port, KEYSPACE, name)), checkpoint)

    def count(self, name: str) -> int:
        with self._server.session() as session:
            found = sum(1 for _ in session.execute(f"SELECT key FROM {KEYSPACE}.{name}"))  # noqa: S608  of our own
            session.execute(f"DROP TABLE {KEYSPACE}.{name}")
        return found


class Files:
    """Folders of Parquet files below an address, which Spark reads as users' jobs do."""

    def __init__(self, root: str, hadoop: Mapping[str, str]) -> None:
        self._root = root
        self._hadoop = hadoop

    def start(self, contender: str, rows: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
        self._spark = rows.sparkSession
        for setting, value in self._hadoop.items():
            self._spark.conf.set(setting, value)  # known only once the server is up
        onceonly.register(self._spark)  # takes them over
        path = f"{self._root}/{name}"
        if contender == OURS:
            return begun(rows, "onceonly.files", {"path": path, "format": "parquet"}, checkpoint)
        return begun(rows, "parquet", {"path": path}, checkpoint)

    def count(self, name: str) -> int:
        rows = self._spark.read.parquet(f"{self._root}/{name}")
        every = rows.count()
        return every if rows.select("id").distinct().count() == every else -1


class Delta:
    """Delta tables in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, contender: str, rows: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
        path = str(self._folder / name)
        if contender == OURS:
            return begun(rows, "onceonly.delta", {"path": path, "create": "true"}, checkpoint)
        return begun(rows, "delta", {"path": path}, checkpoint)

    def count(self, name: str) -> int:
        from deltalake import DeltaTable

        return int(DeltaTable(str(self._folder / name)).count())


def begun(rows: DataFrame, form: str, options: Mapping[str, str], checkpoint: Path) -> StreamingQuery:
    """Begin a query by a format."""
    writer = rows.writeStream.format(form).options(**options).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def each(rows: DataFrame, write: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    """Begin a query by what writes an epoch."""
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def _by(task: tasks.Task) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, _epoch: int) -> None:
        rows.mapInArrow(task, tasks.NAME).collect()

    return write


@contextmanager
def _postgres(folder: Path) -> Iterator[World]:
    settings = {
        "fsync": "on", "full_page_writes": "on", "shared_buffers": "256MB", "max_wal_size": "4GB",
        "max_prepared_transactions": "8",
    }  # fmt: skip
    with EmbeddedPostgres(folder, settings=settings) as server:
        jdbc = {
            "url": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?reWriteBatchedInserts=true",
            "user": USER, "driver": "org.postgresql.Driver",
        }  # fmt: skip
        yield Sql("postgres", {"url": server.url()}, jdbc, 'CREATE UNLOGGED TABLE "{}" (LIKE "{table}")')


@contextmanager
def _mysql(folder: Path) -> Iterator[World]:
    settings = {
        "innodb-buffer-pool-size": "256M", "innodb-log-file-size": "512M", "innodb-flush-method": "fsync",
    }  # fmt: skip
    with EmbeddedMariaDb(folder, settings=settings) as server:
        jdbc = {
            # By this name Spark writes MySQL's own SQL; the driver sends batches in bulk.
            "url": f"jdbc:mysql://127.0.0.1:{server.port}/{DATABASE}?permitMysqlScheme&useBulkStmts=true",
            "user": "onceonly", "password": PASSWORD, "driver": "org.mariadb.jdbc.Driver",
        }  # fmt: skip
        yield Sql(
            "mysql", {"url": server.url, "password": PASSWORD}, jdbc, "CREATE TABLE `{}` LIKE `{table}`"
        )


@contextmanager
def _redis(folder: Path) -> Iterator[World]:
    with EmbeddedRedis(folder) as server:
        yield Redis(server)


@contextmanager
def _opensearch(folder: Path) -> Iterator[World]:
    with EmbeddedOpenSearch(folder, heap_mib=1024) as server:
        yield Search(server)


@contextmanager
def _cassandra(folder: Path) -> Iterator[World]:
    with EmbeddedCassandra(folder) as server:
        server.cql(
            f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        yield Cassandra(server)


@contextmanager
def _delta(folder: Path) -> Iterator[World]:
    yield Delta(folder)


@contextmanager
def _files(folder: Path) -> Iterator[World]:
    folder.mkdir()
    yield Files(str(folder), {})


@contextmanager
def _files_on_s3(folder: Path) -> Iterator[World]:
    with EmbeddedS3(folder, volumes=100) as server:
        server.make_bucket(_BUCKET)
        # Of a file system without checksums, which the session has for its checkpoints, S3A takes no buffers on disk.
        yield Files(f"s3a://{_BUCKET}", {**server.hadoop(), "fs.s3a.fast.upload.buffer": "bytebuffer"})


@contextmanager
def _files_on_hdfs(folder: Path) -> Iterator[World]:
    with EmbeddedHdfs(folder) as server:
        yield Files(server.url, server.hadoop())


WORLDS: Mapping[str, Callable[[Path], AbstractContextManager[World]]] = {
    "postgres": _postgres, "mysql": _mysql, "redis": _redis, "opensearch": _opensearch,
    "cassandra": _cassandra, "delta": _delta, "files": _files, "files-s3": _files_on_s3, "files-hdfs": _files_on_hdfs,
}  # fmt: skip
JARS: Mapping[str, str] = {
    "postgres": "jdbc-postgres", "mysql": "jdbc-mariadb", "delta": "delta-4.2", "files-s3": "store-s3a",
}  # fmt: skip
"""By group, the user of its jars in the lock list."""
