"""Connections and servers that end around a commit, commits that are not over yet, and a backup that was restored."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from postgres_databases import ask, database
from sql_proxy import CommitProxy
from tests.unit.sql_bench import Bench, rows

from onceonly.errors import ConfigurationError, RecordRefusedError, TargetBehindError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.postgres import EmbeddedPostgres
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.model import Handle
    from onceonly.sinks.sql import SqlSink


pytestmark = pytest.mark.integration


@pytest.fixture
def bench(postgres: EmbeddedPostgres, tmp_path: Path) -> Iterator[Bench]:
    url = database(postgres)
    made = Bench(url, tmp_path, lambda sql: ask(url, sql))
    yield made
    made.close()


@pytest.fixture
def proxied(postgres: EmbeddedPostgres, bench: Bench) -> Iterator[CommitProxy]:
    with CommitProxy(postgres.port) as proxy:
        bench.url = bench.url.replace(f":{postgres.port}", f":{proxy.port}")
        yield proxy


@pytest.mark.parametrize("key", ["", "id"])
def test_a_connection_cut_after_its_commit_was_sent_is_looked_up(
    bench: Bench, proxied: CommitProxy, key: str
) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    bench.options["key"] = key
    some = rows(id=[1], name=["a"])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    driver = bench.sink()
    driver.rehearse([handle], facts)
    proxied.arm("after")
    assert driver.commit(handle) == AlreadyCommitted()
    assert proxied.cuts == 1
    assert bench.run("SELECT * FROM t") == [(1, "a")]


def test_a_connection_cut_before_its_commit_arrived_is_tried_again(
    bench: Bench, proxied: CommitProxy
) -> None:
    bench.run("CREATE TABLE t (id bigint, name text)")
    some = rows(id=[1], name=["a"])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    driver = bench.sink()
    proxied.arm("before")
    with pytest.raises(UnavailableError):
        driver.commit(handle)
    assert bench.run("SELECT * FROM t") == []
    assert driver.commit(handle) == Committed()
    assert bench.run("SELECT * FROM t") == [(1, "a")]


def test_who_comes_upon_a_commit_that_is_not_over_waits_for_it(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint)")
    some = rows(id=[1])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    found: list[object] = []
    with closing(psycopg.connect(bench.url)) as other:
        other.execute("INSERT INTO t VALUES (1)")
        other.execute("INSERT INTO onceonly_commits VALUES ('q', 'sql', 0, %s, 0)", (handle.transaction,))
        waiting = threading.Thread(target=lambda: found.append(bench.sink().commit(handle)))
        waiting.start()
        until(lambda: bench.run("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 20)
        assert not found
        other.commit()
        waiting.join(20)
    assert found == [AlreadyCommitted()]
    assert bench.run("SELECT * FROM t") == [(1,)]


def test_a_connection_that_died_while_it_was_not_used_is_made_anew(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint)")
    some = rows(id=[1])
    facts = bench.check(some)
    driver = bench.sink()
    for number in range(2):
        handle, _ = bench.stage(some, facts, epoch=number)
        driver.rehearse([handle], facts)
        bench.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'onceonly'"
        )
        assert driver.commit(handle) == Committed()
    assert bench.run("SELECT count(*) FROM t") == [(2,)]


def test_a_driver_holds_one_connection(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY)")
    some = rows(id=[1])
    facts = bench.check(some, key="id")
    driver = bench.sink(key="id")
    name = bench.url.rpartition("/")[2]
    for made in bench.made[:-1]:
        made.close()
    for number in range(3):
        handle, _ = bench.stage(some, facts, epoch=number, key="id")
        driver.rehearse([handle], facts)
        assert driver.commit(handle) == Committed()
        mine = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND application_name = 'onceonly'"  # noqa: S608
        assert bench.run(mine) == [(1,)]
    driver.close()


def test_a_statement_that_takes_too_long_may_pass(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint)")
    facts = bench.check(rows(id=[1]))
    handle, _ = bench.stage(rows(id=[1]), facts)
    driver = bench.sink(**{"statement.timeout": "100ms"})
    with closing(psycopg.connect(bench.url)) as other:
        other.execute("LOCK TABLE t")
        with pytest.raises(UnavailableError, match=r"statement\.timeout gives a statement 0\.1 s"):
            driver.commit(handle)
    assert driver.commit(handle) == Committed()


def test_a_commit_is_durable_where_the_server_would_not_wait_for_its_disk(bench: Bench) -> None:
    name = bench.url.rpartition("/")[2]
    bench.run(f"ALTER DATABASE {name} SET synchronous_commit = off")
    with bench.sink(table="t")._target.transaction(keep=False) as db:
        assert db.execute("SHOW synchronous_commit").fetchone() == ("on",)
        assert db.execute("SHOW transaction_isolation").fetchone() == ("read committed",)


def test_a_server_that_may_lose_what_was_committed_is_told_of(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run("CREATE TABLE t (id bigint)")
    bench.check(rows(id=[1]))  # of a server whose tests need no power cut
    assert (
        "fsync = off and full_page_writes = off: a crash or a power cut of the server may take" in caplog.text
    )


@pytest.mark.long
def test_behind_a_pooler_that_gives_each_transaction_another_connection(
    postgres: EmbeddedPostgres, bench: Bench
) -> None:
    if shutil.which("pgbouncer") is None:
        pytest.fail(
            "pgbouncer is needed and was not found; install it (Debian, Ubuntu: apt install pgbouncer)"
        )
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name text CHECK (name <> ''))")
    [port] = free_ports(1)
    folder = postgres.directory / "pooler"
    folder.mkdir()
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "settings").write_text(
        f"[databases]\n* = host=127.0.0.1 port={postgres.port}\n[pgbouncer]\nlisten_addr=127.0.0.1\n"
        f"listen_port={port}\nauth_type=trust\nauth_file={folder}/users\npool_mode=transaction\n"
        f"default_pool_size=2\nunix_socket_dir=\nlogfile={folder}/log\n"
    )
    postgres.own(folder)
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    command = ["pgbouncer", *user, str(folder / "settings")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as pooler:
        try:
            url = bench.url.replace(f":{postgres.port}", f":{port}")
            assert until(lambda: answers(url), 20)
            bench.url = url
            for number in range(3):
                bench.epoch(rows(id=[1, 2 + number], name=["a", "b"]), number=number, key="id")
            assert ask(url, "SHOW statement_timeout") == [("0",)]
        finally:
            pooler.kill()
    assert bench.run("SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,)]


def answers(url: str) -> bool:
    try:
        return bool(ask(url, "SELECT 1"))
    except psycopg.OperationalError:
        return False


def test_a_reader_sees_whole_epochs_at_every_moment(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, epoch bigint)")
    seen: set[tuple[int, ...]] = set()
    ended = threading.Event()

    def look() -> None:
        with closing(psycopg.connect(bench.url, autocommit=True)) as db:
            while not ended.is_set():
                found = db.execute("SELECT count(*), min(epoch), max(epoch) FROM t").fetchone()
                seen.add(tuple(found or ()))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(10):
            slots = [rows(id=range(first, first + 100), epoch=[number] * 100) for first in (0, 100, 200)]
            bench.epoch(*slots, number=number, key="id")
    finally:
        ended.set()
        reader.join()
    assert len(seen) > 1
    assert all(count in {0, 300} and first == last for count, first, last in seen)


def test_a_disk_that_is_full_leaves_the_epoch_pending_until_there_is_room(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint)")
    facts = bench.check(rows(id=[1, 2]))
    handle, _ = bench.stage(rows(id=[1, 2]), facts)
    driver = bench.sink()
    driver.rehearse([handle], facts)
    # What it says where a file cannot grow, at the second row: a disk of its own is nothing that everybody may make.
    bench.run(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 2 THEN "
        "RAISE 'could not extend file \"base/5/16384\": No space left on device' USING ERRCODE = 'disk_full'; "
        "END IF; RETURN NEW; END $$"
    )
    bench.run("CREATE TRIGGER full_disk BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION full_disk()")
    for _ in range(2):
        with pytest.raises(
            UnavailableError, match=r"the disk of .* is full: could not extend file"
        ) as raised:
            driver.commit(handle)
        assert "make room" in raised.value.next_step
        assert (
            bench.run("SELECT * FROM t") == bench.run("SELECT * FROM onceonly_commits WHERE epoch = 0") == []
        )
    bench.run("DROP TRIGGER full_disk ON t")
    assert driver.commit(handle) == Committed()
    assert driver.commit(handle) == AlreadyCommitted()
    assert bench.run("SELECT id FROM t ORDER BY id") == [(1,), (2,)]


def test_a_table_that_was_made_anew_is_another_one_and_stops_the_query(bench: Bench) -> None:
    make = "CREATE TABLE t (id bigint)"
    bench.run(make)
    some = rows(id=[1])
    driver, context = bench.sink(), bench.context([("id", "bigint")])
    facts = dict(driver.check(context))
    handle, _ = bench.stage(some, facts)
    assert driver.commit(handle) == Committed()
    for harmless in ("VACUUM FULL t", "ALTER TABLE t ADD COLUMN more text"):
        bench.run(harmless)
        facts = dict(driver.refresh(facts))
        bench.sink().look_back(context, 0, [handle])
    bench.run("DROP TABLE t")
    bench.run(make)
    bench.run("INSERT INTO t VALUES (1)")
    with pytest.raises(TargetBehindError, match="another table than it was at chk-0"):
        bench.sink().look_back(context, 0, [handle])
    with pytest.raises(TargetBehindError, match="another table than it was at the epoch before"):
        driver.refresh(facts)
    goes_on = {"onceonly.target.behind": "go-on"}
    bench.sink(**goes_on).look_back(context, 0, [handle])
    # From its next epoch on, the query knows the new one.
    handle, _ = bench.stage(some, dict(bench.sink().check(context)), epoch=1)
    assert driver.commit(handle) == Committed()
    bench.sink().look_back(context, 1, [handle])


def test_a_table_that_was_emptied_is_told_and_who_may_not_read_it_is_not_stopped(
    bench: Bench, postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run("CREATE TABLE t (id bigint)")
    handle, _ = bench.stage(rows(id=[1]), bench.check(rows(id=[1])))
    assert bench.sink().commit(handle) == Committed()
    bench.run("TRUNCATE t")
    context = bench.context([])
    bench.sink().look_back(context, 0, [handle])
    assert "is empty, and chk-0 has written 1 rows" in caplog.text
    caplog.clear()
    user = f"u{bench.url.rpartition('/')[2]}"
    for statement in (
        f"CREATE ROLE {user} LOGIN PASSWORD 'p'", f"GRANT INSERT ON t TO {user}",
        f"GRANT SELECT, INSERT, DELETE ON onceonly_commits TO {user}",
    ):  # fmt: skip
        bench.run(statement)
    url = postgres.url(user, bench.url.rpartition("/")[2])
    bench.sink(url=url, password="p").look_back(context, 0, [handle])  # noqa: S106
    assert caplog.text == ""


# ---------------------------------------------------------------------------------------- servers that end
@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[EmbeddedPostgres, Bench]]:
    """A server of its own, with the table, and a bench on it."""
    with EmbeddedPostgres() as postgres:
        bench = Bench(postgres.url(), tmp_path, lambda sql: ask(postgres.url(), sql))
        bench.run("CREATE TABLE t (id bigint)")
        yield postgres, bench
        bench.close()


def test_a_server_that_is_killed_loses_and_doubles_nothing(own: tuple[EmbeddedPostgres, Bench]) -> None:
    server, bench = own
    facts = bench.check(rows(id=[1]))
    with CommitProxy(server.port) as proxy:
        driver = bench.sink(url=bench.url.replace(f":{server.port}", f":{proxy.port}"))
        for number, when in enumerate(("before", "after", "")):
            handle, _ = bench.stage(rows(id=[number]), facts, epoch=number)
            driver.rehearse([handle], facts)
            proxy.arm(when, server.kill)
            if not when:
                server.kill()
            with pytest.raises(UnavailableError):
                driver.commit(handle)
            server.start()
            assert driver.commit(handle) == (AlreadyCommitted() if when == "after" else Committed())
    assert bench.run("SELECT id FROM t ORDER BY id") == [(0,), (1,), (2,)]


def test_a_backup_that_was_restored_stops_the_query_and_names_what_is_missing(
    own: tuple[EmbeddedPostgres, Bench],
) -> None:
    server, bench = own
    bench.epoch(rows(id=[0]))
    bench.close()
    server.kill()
    backup = server.directory / "backup"
    shutil.copytree(server.data, backup)
    server.start()
    for number in (1, 2):
        bench.epoch(rows(id=[number]), number=number)
    bench.close()
    server.kill()
    shutil.rmtree(server.data)
    backup.rename(server.data)
    server.own(server.data)
    server.data.chmod(0o700)
    server.start()
    handle, _ = bench.stage(rows(id=[2]), bench.check(rows(id=[2])), epoch=2)
    with pytest.raises(TargetBehindError, match="chk-1 to chk-2 are not there"):
        bench.sink().look_back(bench.context([("id", "bigint")]), 2, [handle])


# --- partitions that take no rows -------------------------------------------------------------------------------

PARTS = (
    "CREATE TABLE t (id bigint, name text) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
)
HIGH = "PARTITION OF t FOR VALUES FROM (10) TO (20)"
FOREIGN = ("CREATE EXTENSION postgres_fdw", "CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw")
FILE = ("CREATE EXTENSION file_fdw", "CREATE SERVER far FOREIGN DATA WRAPPER file_fdw")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ([f"CREATE UNLOGGED TABLE high {HIGH}"], "has the partition high, which is unlogged"),
        (
            [*FOREIGN, f"CREATE FOREIGN TABLE high {HIGH} SERVER far"],
            "has the partition high, which is a foreign table, whose rows no transaction holds",
        ),
    ],
)
def test_a_partition_that_would_lose_rows_is_refused_before_the_first_record(
    bench: Bench, part: list[str], said: str
) -> None:
    for statement in (*PARTS, *part):
        bench.run(statement)
    with pytest.raises(ConfigurationError, match=said):
        bench.check(rows(id=[1], name=["a"]))
    bench.run("DROP FOREIGN TABLE high" if "FOREIGN" in part[-1] else "ALTER TABLE high SET LOGGED")
    bench.epoch(rows(id=[1], name=["a"]))


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ([*FOREIGN, f"CREATE FOREIGN TABLE high {HIGH} SERVER far OPTIONS (updatable 'false')"], "not allow inserts"),
        ([*FILE, f"CREATE FOREIGN TABLE high {HIGH} SERVER far OPTIONS (filename '/none')"], "cannot insert into"),
        ([], "no partition of relation"),
    ],
)  # fmt: skip
def test_rows_of_a_partition_that_takes_none_are_found_before_the_decision_and_the_others_go_on(
    bench: Bench, part: list[str], said: str
) -> None:
    for statement in (*PARTS, *part):
        bench.run(statement)
    some = rows(id=[1, 11], name=["a", "b"])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    with pytest.raises(RecordRefusedError, match=said) as raised:
        bench.sink().rehearse([handle], facts)
    assert raised.value.next_step
    found = bench.sink().sift([handle], 9)
    assert [each.row for each in found[handle.transaction]] == [1]
    bench.epoch(rows(id=[2], name=["c"]), number=1)
    assert bench.run("SELECT * FROM t WHERE id < 10") == [(2, "c")]


def decided_for_two_partitions(bench: Bench) -> tuple[SqlSink, Handle, dict[str, str | int]]:
    """Stage a row for each of two partitions, and rehearse both; return the driver's sink, their handle, and facts."""
    for statement in (*PARTS, f"CREATE TABLE high {HIGH}"):
        bench.run(statement)
    some = rows(id=[1, 11], name=["a", "b"])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    driver = bench.sink()
    driver.rehearse([handle], facts)
    return driver, handle, facts


@pytest.mark.parametrize(
    ("freeze", "said", "thaw"),
    [
        ("ALTER TABLE t DETACH PARTITION low", "no partition of relation",
         "ALTER TABLE t ATTACH PARTITION low FOR VALUES FROM (0) TO (10)"),
        ("ALTER TABLE low ADD CONSTRAINT frozen CHECK (false) NOT VALID", "frozen",
         "ALTER TABLE low DROP CONSTRAINT frozen"),
    ],
)  # fmt: skip
def test_a_partition_that_is_frozen_after_the_decision_leaves_the_epoch_pending(
    bench: Bench, freeze: str, said: str, thaw: str
) -> None:
    driver, handle, _ = decided_for_two_partitions(bench)
    bench.run(freeze)
    for _ in range(2):
        with pytest.raises(RecordRefusedError, match=said):
            driver.commit(handle)
        assert (
            bench.run("SELECT * FROM t") == bench.run("SELECT * FROM onceonly_commits WHERE void = 0") == []
        )
    bench.run(thaw)
    assert driver.commit(handle) == Committed()
    assert driver.commit(handle) == AlreadyCommitted()
    assert bench.run("SELECT * FROM t ORDER BY id") == [(1, "a"), (11, "b")]


def test_an_epoch_that_the_server_gives_too_little_time_is_tried_again_and_told(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint, name text)")
    some = rows(id=[1], name=["a"])
    handle, _ = bench.stage(some, bench.check(some))
    driver = bench.sink(url=f"{bench.url}?options=-ctransaction_timeout%3D300")
    with closing(psycopg.connect(bench.url)) as other:
        other.execute("LOCK TABLE t")
        with pytest.raises(UnavailableError, match="transaction timeout") as raised:
            driver.commit(handle)
        assert "transaction_timeout" in raised.value.next_step
    assert driver.commit(handle) == Committed()


def test_a_partition_on_a_disk_that_the_server_may_not_write_is_waited_for(bench: Bench) -> None:
    driver, handle, facts = decided_for_two_partitions(bench)
    driver.close()  # its backend has the files open
    [(place,)] = bench.run("SELECT current_setting('data_directory') || '/' || pg_relation_filepath('high')")
    file = Path(place)
    file.chmod(0o400)
    for call in (lambda: driver.commit(handle), lambda: driver.rehearse([handle], facts)):
        with pytest.raises(UnavailableError, match="may not write a file of its own") as raised:
            call()
        assert "mounted read-only" in raised.value.next_step
        driver.close()
    assert bench.run("SELECT * FROM low") == bench.run("SELECT * FROM onceonly_commits WHERE void = 0") == []
    file.chmod(0o600)
    assert driver.commit(handle) == Committed()
    assert driver.commit(handle) == AlreadyCommitted()
    assert bench.run("SELECT * FROM t ORDER BY id") == [(1, "a"), (11, "b")]
