"""Which right a user lacks on a real server is told without doing anything there: databases, Redis, HDFS."""

from __future__ import annotations

import uuid
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import redis
from postgres_databases import BOOKS, ask, database

from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee
from onceonly.ports import QueryContext
from onceonly.sinks.files import FilesSink
from onceonly.sinks.redis import RedisSink
from onceonly.sinks.sql import SqlSink
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.webhdfs import WebHdfs
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
from onceonly_proof.embedded.mariadb import DATABASE, PASSWORD, EmbeddedMariaDb
from onceonly_proof.embedded.redis import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from onceonly.ports import Sink
    from onceonly_proof.embedded.postgres import EmbeddedPostgres

pytestmark = pytest.mark.integration
CONTEXT = QueryContext(query="q", sink="sql", guarantee=Guarantee.EXACTLY_ONCE)
KEYED = {"key": "id", "op": "op"}


def refusal(sink: Sink) -> ConfigurationError:
    with closing(sink), pytest.raises(ConfigurationError) as raised:
        sink.require_rights(CONTEXT)
    return raised.value


def lacks_nothing(sink: Sink) -> None:
    with closing(sink):
        assert sink.require_rights(CONTEXT) == ""


def test_postgres(postgres: EmbeddedPostgres) -> None:
    url = database(postgres)
    user, name = f"u{uuid.uuid4().hex[:12]}", url.rpartition("/")[2]
    for statement in (
        f"CREATE ROLE {user} LOGIN PASSWORD 'geheim'",
        "CREATE TABLE t (id bigint PRIMARY KEY, name text)",
        BOOKS.format("onceonly_commits"),
        f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC",
        f"GRANT INSERT (id, name) ON t TO {user}",
        f"GRANT SELECT, INSERT, DELETE ON onceonly_commits TO {user}",
    ):
        ask(url, statement)

    def sink(**more: str) -> SqlSink:
        return SqlSink({"url": postgres.url(user, name), "table": "t", "password": "geheim", **more})

    lacks_nothing(sink())
    error = refusal(sink(**KEYED))
    assert "lacks SELECT, UPDATE, DELETE on t, temporary tables in the database" in error.what
    grant(error, partial(ask, url))
    lacks_nothing(sink(**KEYED))
    for right, table in (("INSERT", "t"), ("DELETE", "onceonly_commits"), ("INSERT", "onceonly_commits")):
        ask(url, f"REVOKE {right} ON {table} FROM {user}")
        error = refusal(sink(**KEYED))
        assert error.what.endswith(f"lacks {right} on {table}")
        grant(error, partial(ask, url))
    lacks_nothing(sink(**KEYED))


def grant(error: ConfigurationError, run: Callable[[str], object]) -> None:
    """Type what is told."""
    for statement in error.next_step.partition(": ")[2].split("; "):
        assert statement.startswith("GRANT ")
        run(statement)


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDb]:
    with EmbeddedMariaDb(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


def test_mariadb(mariadb: EmbeddedMariaDb) -> None:
    mariadb.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(200) NOT NULL)")
    mariadb.sql(BOOKS.format("onceonly_commits"))

    def user(*grants: str) -> str:
        name = f"u{uuid.uuid4().hex[:12]}"
        mariadb.sql(f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        for grant in grants:
            mariadb.sql(f"GRANT {grant} TO {name}@'127.0.0.1'")
        return mariadb.url.replace("onceonly@", f"{name}@")

    def sink(url: str, **more: str) -> SqlSink:
        return SqlSink({"url": url, "table": "t", "password": PASSWORD, **more})

    books = f"SELECT, INSERT, DELETE ON {DATABASE}.onceonly_commits"
    lacks_nothing(sink(user("ALL ON *.*"), **KEYED))
    lacks_nothing(sink(user(f"SELECT (id), INSERT (id) ON {DATABASE}.t", books)))
    own = user(f"SELECT, INSERT ON {DATABASE}.t", books)
    error = refusal(sink(own, **KEYED))
    assert "lacks UPDATE, DELETE on t, temporary tables in the database" in error.what
    grant(error, mariadb.sql)
    lacks_nothing(sink(own, **KEYED))
    error = refusal(sink(user(f"SELECT ON {DATABASE}.t", f"SELECT, INSERT ON {DATABASE}.onceonly_commits")))
    assert error.what.endswith("lacks INSERT on t, DELETE on onceonly_commits")
    assert mariadb.sql("SELECT COUNT(*) FROM t") == [(0,)]


def test_redis(tmp_path: Path) -> None:
    with EmbeddedRedis() as server, closing(redis.Redis.from_url(server.url)) as raw:
        rights = ("on", ">pw", "~p:*", "+@read", "+@write", "+@scripting", "+info", "+ping")
        _do(raw, ("ACL", "SETUSER", "writer", *rights))
        given = {"url": server.url, "key": "key", "prefix": "p:", "staging": str(tmp_path)}

        def sink() -> RedisSink:
            return RedisSink({**given, "user": "writer", "password": "pw"})

        lacks_nothing(sink())
        for lacking in ("del", "exists", "hset", "hincrby", "hget", "pexpire", "evalsha", "info"):
            _do(raw, ("ACL", "SETUSER", "writer", f"-{lacking}"))
            error = refusal(sink())
            assert "does not permit the user writer" in error.what
            _do(raw, error.next_step.removeprefix("grant it: ").split())
            lacks_nothing(sink())
        _do(raw, ("ACL", "SETUSER", "writer", "resetkeys", "~other:*"))
        assert "ACL SETUSER writer" in refusal(sink()).next_step
        assert raw.keys("*") == []


def test_hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedHdfs(tmp_path / "hdfs", settings={"dfs.permissions.enabled": "true"}) as server:
        monkeypatch.setattr(opened, "_told", Hadoop(server.hadoop()))
        root = WebHdfs.of(parse(server.url), opened.told())
        root.ask("PUT", "MKDIRS", "/out", permission="777")
        context = QueryContext(query="q", sink="files", guarantee=Guarantee.EXACTLY_ONCE)

        def told() -> str:
            return FilesSink({"path": f"{server.url}/out"}).require_rights(context)

        monkeypatch.setenv("HADOOP_USER_NAME", "writer")
        FilesSink({"path": f"{server.url}/out"}).check(context)
        assert told() == ""
        for place in ("/out", "/out/_onceonly/epochs/q/files", "/out/_onceonly/staging/q/files"):
            mode = root.ask("GET", "GETFILESTATUS", place)["FileStatus"]["permission"]
            root.ask("PUT", "SETPERMISSION", place, permission="555")
            with pytest.raises(ConfigurationError, match="user=writer, access=WRITE"):
                told()
            root.ask("PUT", "SETPERMISSION", place, permission=mode)
        assert told() == ""
        monkeypatch.delenv("HADOOP_USER_NAME")
        assert "and the job's writer: ask as that one" in told()


def _do(raw: Any, words: Iterable[str]) -> None:  # noqa: ANN401
    raw.execute_command(*words)
