"""Connections that end around a commit, commits that are not over yet, and books that were emptied, on MariaDB."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from sql_proxy import MYSQL, CommitProxy
from tests.unit.certificates import certificate
from tests.unit.sql_bench import Bench, rows

from onceonly.errors import ConfigurationError, TargetBehindError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed
from onceonly_proof.embedded.mariadb import DATABASE, PASSWORD, EmbeddedMariaDb
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly.model import Handle

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDb]:
    with EmbeddedMariaDb(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


@pytest.fixture
def bench(server: EmbeddedMariaDb, tmp_path: Path) -> Iterator[Bench]:
    server.sql(f"DROP DATABASE {DATABASE}", f"CREATE DATABASE {DATABASE}", database=None)
    made = Bench(server.url, tmp_path, server.sql, options={"password": PASSWORD})
    made.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)")
    yield made
    made.close()


@pytest.fixture
def proxied(server: EmbeddedMariaDb, bench: Bench) -> Iterator[CommitProxy]:
    with CommitProxy(server.port, MYSQL) as proxy:
        bench.url = bench.url.replace(f":{server.port}", f":{proxy.port}")
        yield proxy


def prepared(bench: Bench) -> Handle:
    some = rows(id=[1], name=["a"])
    return bench.stage(some, bench.check(some))[0]


@pytest.mark.parametrize("key", ["", "id"])
def test_a_connection_cut_after_its_commit_was_sent_is_looked_up(
    bench: Bench, proxied: CommitProxy, key: str
) -> None:
    bench.options["key"] = key
    handle = prepared(bench)
    proxied.arm("after")
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert proxied.cuts == 1
    assert bench.run("SELECT * FROM t") == [(1, "a")]


def test_a_connection_cut_before_its_commit_arrived_is_tried_again(
    bench: Bench, proxied: CommitProxy
) -> None:
    handle = prepared(bench)
    driver = bench.sink()
    proxied.arm("before")
    with pytest.raises(UnavailableError):
        driver.commit(handle)
    assert bench.run("SELECT * FROM t") == []
    assert driver.commit(handle) == Committed()
    assert bench.run("SELECT * FROM t") == [(1, "a")]


def test_who_comes_upon_a_commit_that_is_not_over_waits_for_it(bench: Bench, server: EmbeddedMariaDb) -> None:
    handle = prepared(bench)
    found: list[object] = []
    with closing(server.connect()) as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t VALUES (1, 'a')")
        cursor.execute("INSERT INTO onceonly_commits VALUES ('q', 'sql', 0, %s, 0)", (handle.transaction,))
        waiting = threading.Thread(target=lambda: found.append(bench.sink().commit(handle)))
        waiting.start()
        until(lambda: bench.run("SELECT 1 FROM information_schema.INNODB_LOCK_WAITS"), 20)
        assert not found
        cursor.execute("COMMIT")
        waiting.join(20)
    assert found == [AlreadyCommitted()]
    assert bench.run("SELECT * FROM t") == [(1, "a")]


def test_books_that_were_emptied_stop_the_query_and_name_what_is_missing(bench: Bench) -> None:
    handle = prepared(bench)
    assert bench.sink().commit(handle) == Committed()
    context = bench.context([("id", "bigint"), ("name", "string")])
    bench.sink().look_back(context, 0, [handle])
    bench.run("DELETE FROM onceonly_commits")
    with pytest.raises(TargetBehindError, match="chk-0"):
        bench.sink().look_back(context, 0, [handle])


def test_a_server_that_may_lose_what_was_committed_is_told_of(
    bench: Bench, server: EmbeddedMariaDb, caplog: pytest.LogCaptureFixture
) -> None:
    some = rows(id=[1], name=["a"])
    bench.check(some)
    assert "may take epochs" not in caplog.text
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    try:
        bench.check(some)
    finally:
        server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    assert "innodb_flush_log_at_trx_commit = 2, and not 1: a crash or a power cut" in caplog.text


def test_a_binary_log_that_may_lose_epochs_or_takes_none_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a power cut, InnoDB takes back what it has prepared and that log does not have."""
    some = rows(id=[1], name=["a"])
    with EmbeddedMariaDb(tmp_path / "server", settings={"log-bin": "binlog", "server-id": "1"}) as server:
        bench = Bench(server.url, tmp_path, server.sql, options={"password": PASSWORD})
        bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)")
        for syncs, is_told in ((1, False), (0, True)):
            server.sql(f"SET GLOBAL sync_binlog = {syncs}")
            bench.check(some)
            assert ("sync_binlog = 0, and not 1: a crash or a power cut" in caplog.text) is is_told
        server.sql("SET GLOBAL binlog_format = 'STATEMENT'")
        with pytest.raises(ConfigurationError, match="BINLOG_FORMAT") as raised:
            bench.check(some)
        assert "MIXED or ROW" in raised.value.next_step
        bench.close()


def test_a_server_proves_who_it_is(tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    settings = {
        "ssl": "ON",
        "ssl-cert": str(made),
        "ssl-key": str(key),
        "require-secure-transport": "ON",
    }
    with EmbeddedMariaDb(tmp_path / "server", settings=settings) as server:
        server.sql("CREATE TABLE t (id BIGINT)")
        bench = Bench(server.url, tmp_path, server.sql, options={"password": PASSWORD})
        with pytest.raises(ConfigurationError, match="insecure transport"):
            bench.check(rows(id=[1]), url=f"{server.url}?ssl_disabled=true")
        # Of whoever has no authority that is known here, we take nothing.
        with pytest.raises(ConfigurationError, match="certificate"):
            bench.check(rows(id=[1]), url=f"{server.url}?ssl_disabled=false")
        bench.epoch(rows(id=[1]), url=f"{server.url}?ssl_ca={made}")
        assert bench.run("SELECT * FROM t") == [(1,)]
        bench.close()


def test_a_disk_that_is_full_leaves_the_epoch_pending_until_there_is_room(tmp_path: Path) -> None:
    # Data files that may not grow are full as a disk is, for this server and in its words.
    settings = {"innodb-file-per-table": "OFF", "innodb-data-file-path": "ibdata1:12M;ibdata2:20M"}
    with EmbeddedMariaDb(settings=settings) as server:
        server.sql("CREATE TABLE filler (b LONGBLOB)", "CREATE TABLE t (id BIGINT, name TEXT)")
        server.sql(*["INSERT INTO filler VALUES (REPEAT('x', 1000000))"] * 19)
        bench = Bench(server.url, tmp_path, server.sql, options={"password": PASSWORD})
        some = rows(id=list(range(3000)), name=["a" * 3000] * 3000)
        facts = bench.check(some)
        handle, _ = bench.stage(some, facts)
        driver = bench.sink()
        driver.rehearse([handle], facts)
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"the disk of .* is full: .*\(1114\)") as raised:
                driver.commit(handle)
            assert "make room" in raised.value.next_step
            assert (
                bench.run("SELECT * FROM t")
                == bench.run("SELECT * FROM onceonly_commits WHERE void = 0")
                == []
            )
        bench.run("DROP TABLE filler")

        def is_committed() -> bool:
            try:
                return driver.commit(handle) == Committed()
            except UnavailableError:
                return False  # the server gives the room back a while after

        assert until(is_committed, 60)
        assert driver.commit(handle) == AlreadyCommitted()
        assert bench.run("SELECT COUNT(DISTINCT id), COUNT(*) FROM t") == [(3000, 3000)]
        bench.close()
