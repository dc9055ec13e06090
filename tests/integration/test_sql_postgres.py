"""The SQL sinks on a real PostgreSQL: the conformance suite, types, rights, rehearsals, cut connections, backups."""

from __future__ import annotations

import decimal
import socket
import uuid
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from postgres_databases import BOOKS, ask, database
from tests.unit.sql_bench import (
    Bench,
    require_refers_to_later_rows,
    require_sifted,
    require_told_of_staged_and_remembered,
    rows,
)

from onceonly.errors import (
    ConfigurationError,
    OnceonlyError,
    RecordRefusedError,
    UnavailableError,
)
from onceonly.model import Committed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly_proof.embedded.postgres import EmbeddedPostgres


pytestmark = pytest.mark.integration


@pytest.fixture
def bench(postgres: EmbeddedPostgres, tmp_path: Path) -> Iterator[Bench]:
    url = database(postgres)
    made = Bench(url, tmp_path, lambda sql: ask(url, sql))
    yield made
    made.close()


def test_the_identity_names_the_table_and_no_user(bench: Bench) -> None:
    sink = bench.sink(url="postgresql+psycopg://anna@db.example:5433/shop?sslmode=require", table="s.t")
    assert sink.identity() == {
        "url": "postgresql://db.example:5433/shop",
        "table": "s.t",
        "books": "s.onceonly_commits",
    }


def test_the_identity_has_a_host_that_stands_behind_the_question_mark(bench: Bench) -> None:
    found = {
        bench.sink(url=f"postgresql:///shop?host={host}&sslmode=require").identity()["url"]
        for host in ("a", "b")
    }
    assert found == {"postgresql:///shop?host=a", "postgresql:///shop?host=b"}


# ---------------------------------------------------------------------------------------- rows
def test_rows_are_added_replaced_and_deleted(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    bench.epoch(rows(id=[1, 2], name=["a", "b"]), rows(id=[3], name=["c"]))
    bench.epoch(
        rows(op=["U", "d", "c", "d", "-U"], n=[1, 2, 3, 4, 5], id=[1, 2, 4, 4, 3], name=["A", None, "d", None, "x"]),
        number=1, key="id", op="op", sequence="n",
    )  # fmt: skip
    assert bench.run("SELECT * FROM t ORDER BY id") == [(1, "A"), (3, "c")]
    bench.epoch(rows(id=[3, 5], name=["C", "e"]), number=2, key="id")
    assert bench.run("SELECT * FROM t ORDER BY id") == [(1, "A"), (3, "C"), (5, "e")]


def test_what_is_staged_by_whom_and_whom_the_books_remember_is_told(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    require_told_of_staged_and_remembered(bench)


# ---------------------------------------------------------------------------------------- rehearsals
def rehearsed(bench: Bench, *slots: pa.RecordBatch, number: int = 0, **options: str) -> OnceonlyError | None:
    """Stage an epoch and rehearse it: return what that raises, and see that nothing is changed."""
    bench.options.update(options)
    facts = bench.check(slots[0])
    before = bench.run("SELECT * FROM t"), bench.run("SELECT * FROM onceonly_commits")
    handles = [bench.stage(each, facts, epoch=number, slot=slot)[0] for slot, each in enumerate(slots)]
    try:
        bench.sink().rehearse(handles, facts)
    except OnceonlyError as error:
        return error
    finally:
        assert (bench.run("SELECT * FROM t"), bench.run("SELECT * FROM onceonly_commits")) == before
    return None


_BODY = "BEGIN IF NEW.id = 2 THEN RETURN NULL; END IF; RETURN NEW; END"
PASSES_OVER = (
    f"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $${_BODY}$$",
    "CREATE TRIGGER tr BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION f()",
)


@pytest.mark.parametrize("key", ["", "id"])
def test_a_row_that_a_trigger_passes_over_is_found_before_the_decision(bench: Bench, key: str) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    for statement in PASSES_OVER:
        bench.run(statement.format("t"))
    some = rows(id=[1, 2, 3], name=["a", "b", "c"])
    error = rehearsed(bench, some, key=key)
    assert isinstance(error, RecordRefusedError)
    assert "calls that no error; the table has the trigger tr" in error.what
    bench.epoch(some, key=key, triggers="trusted")
    assert bench.run("SELECT * FROM t") == [(1, "a"), (3, "c")]


def test_a_trigger_or_a_child_that_loses_no_row_is_no_matter(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    bench.run("CREATE TABLE child (PRIMARY KEY (id)) INHERITS (t)")
    bench.run(
        "CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    )
    for number in range(2):
        bench.epoch(rows(id=[1, 2], name=["a", "b"]), number=number, key="id")
    assert bench.run("SELECT * FROM t ORDER BY id") == [(1, "a"), (2, "b")]


def test_a_deletion_that_a_rule_swallows_is_found_before_the_decision(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    bench.run("CREATE RULE r AS ON DELETE TO t DO INSTEAD NOTHING")
    bench.epoch(rows(op=["c"], id=[1], name=["a"]), key="id", op="op")
    error = rehearsed(bench, rows(op=["d"], id=[1], name=["a"]), number=1, key="id", op="op")
    assert isinstance(error, RecordRefusedError)
    assert "id 1 was deleted, and is there" in error.what


def test_a_key_that_a_child_table_has_is_found_before_the_decision(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    bench.run("CREATE TABLE child () INHERITS (t)")
    bench.run("INSERT INTO child VALUES (1, 'theirs')")
    error = rehearsed(bench, rows(id=[1], name=["a"]), key="id")
    assert isinstance(error, RecordRefusedError)
    assert "id 1 was written, and is not there once" in error.what
    assert "the child table child" in error.what


def test_books_with_a_trigger_that_passes_rows_over_are_refused_at_the_start(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint)")
    bench.check(rows(id=[1]))
    bench.run("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    bench.run(PASSES_OVER[1].format("onceonly_commits"))
    with pytest.raises(ConfigurationError, match="Epochs would be written twice"):
        bench.check(rows(id=[1]))


def test_enumerations_domains_and_json_texts_are_rehearsed(bench: Bench) -> None:
    bench.run("CREATE TYPE mood AS ENUM ('good', 'bad')")
    bench.run("CREATE DOMAIN small AS integer CHECK (VALUE < 10)")
    bench.run("CREATE TABLE t (m mood, s small, j jsonb)")
    good = rows(m=["good"], s=pa.array([9], pa.int32()), j=['{"a": 1}'])
    bench.epoch(good)
    for name, wrong in (
        ("m", pa.array(["worse"])),
        ("s", pa.array([10], pa.int32())),
        ("j", pa.array(["{"])),
    ):
        place = good.schema.get_field_index(name)
        assert isinstance(rehearsed(bench, good.set_column(place, name, wrong), number=1), RecordRefusedError)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (["CREATE TABLE t (id bigint CHECK (id > 1), name text)"], "check constraint"),
        (["CREATE TABLE t (id bigint UNIQUE, name text)"], "already exists"),
        (["CREATE TABLE t (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, name text)"], "already exists"),
        (
            ["CREATE TABLE o (id bigint PRIMARY KEY)", "CREATE TABLE t (id bigint REFERENCES o, name text)"],
            "is not present",
        ),
        (
            ["CREATE TABLE o (id bigint PRIMARY KEY)",
             "CREATE TABLE t (id bigint REFERENCES o DEFERRABLE INITIALLY DEFERRED, name text)"],
            "is not present",
        ),
        (["CREATE TABLE t (id bigint, name text) PARTITION BY RANGE (id)"], "no partition"),
        (
            ["CREATE TABLE t (id bigint, name text, x bigint GENERATED ALWAYS AS (1 / (id - 1)) STORED)"],
            "division by zero",
        ),
        (["CREATE TABLE t (id bigint, name text)", "CREATE INDEX i ON t ((1 / (id - 1)))"], "division by zero"),
        (
            ["CREATE TABLE t (id bigint, name text)",
             "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not on Fridays''; END'",
             "CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no()"],
            "not on Fridays",
        ),
        (["CREATE TABLE t (id bigint, name text, EXCLUDE USING btree (id WITH =))"], "exclusion"),
    ],
)  # fmt: skip
def test_what_the_server_refuses_is_found_before_the_decision(
    bench: Bench, tables: list[str], said: str
) -> None:
    for statement in tables:
        bench.run(statement)
    error = rehearsed(bench, rows(id=[1], name=["a"]), rows(id=[1], name=["b"]))
    assert isinstance(error, RecordRefusedError)
    assert said in error.what


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("53100", UnavailableError),  # disk full
        ("53200", UnavailableError),
        ("57P01", UnavailableError),
        ("40001", UnavailableError),
        ("40P01", UnavailableError),
        ("55P03", UnavailableError),
        ("58030", UnavailableError),
        ("XX000", UnavailableError),
        ("22003", RecordRefusedError),
        ("23514", RecordRefusedError),
        ("54000", RecordRefusedError),
        ("P0001", RecordRefusedError),
        ("42501", ConfigurationError),
        ("25006", ConfigurationError),
        ("0A000", ConfigurationError),
    ],
)
def test_what_the_server_answers_may_pass_or_is_a_row_s_or_somebody_s(
    bench: Bench, code: str, kind: type[OnceonlyError]
) -> None:
    bench.run("CREATE TABLE t (id bigint)")
    bench.run(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE 'it says no' USING ERRCODE = '{code}'; END $$"
    )
    bench.run("CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no()")
    error = rehearsed(bench, rows(id=[1]))
    assert type(error) is kind
    assert f"it says no [{code}]" in error.what
    assert error.next_step


def test_a_server_that_is_too_old_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceonly.sinks.sql.dialects.postgres._OLDEST", 990_000)
    with pytest.raises(ConfigurationError, match="is a PostgreSQL 18") as raised:
        bench.check(rows(id=[1]))
    assert "12 or newer" in raised.value.next_step


def test_a_server_that_has_used_up_its_numbers_makes_no_row_a_wrong_one(bench: Bench) -> None:
    class Told(Exception):  # noqa: N818  as the client tells it
        sqlstate = "54000"
        diag = SimpleNamespace(
            source_file="varsup.c", source_function="GetNewTransactionId", message_detail=None,
            message_primary="database is not accepting commands that assign new transaction IDs to avoid wraparound",
        )  # fmt: skip

    told = bench.sink()._target.sql.told(Told())
    assert isinstance(told, UnavailableError)
    assert "vacuum" in told.next_step


@pytest.mark.parametrize("code", ["U0001", "A1234"])
def test_what_a_trigger_refuses_by_a_code_of_its_own_is_a_row(bench: Bench, code: str) -> None:
    bench.run("CREATE TABLE t (id bigint, name text)")
    body = f"BEGIN RAISE EXCEPTION 'not on Fridays' USING ERRCODE = '{code}'; END"
    bench.run(f"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
    bench.run("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()")
    error = rehearsed(bench, rows(id=[1], name=["a"]))
    assert isinstance(error, RecordRefusedError), error
    assert "not on Fridays" in error.what


def test_a_published_table_that_others_could_not_follow_is_refused_before_the_first_record(
    bench: Bench,
) -> None:
    bench.run("CREATE TABLE t (id bigint NOT NULL UNIQUE, name text)")
    bench.run("CREATE PUBLICATION p FOR TABLE t")
    some = rows(op=["c"], id=[1], name=["a"])
    with pytest.raises(ConfigurationError, match="replica identity") as raised:
        bench.check(some, key="id", op="op")
    assert "REPLICA IDENTITY" in raised.value.next_step
    bench.run("ALTER TABLE t REPLICA IDENTITY FULL")
    bench.epoch(some, key="id", op="op")


def test_a_uuid_in_two_spellings_is_found_before_the_decision(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id uuid PRIMARY KEY, n bigint)")
    bench.options["key"] = "id"
    some = rows(id=[f"6f1b8e0e-30d6-4f43-a1ab-0c4eae4ac2{end}" for end in ("c9", "C9")], n=[1, 2])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    with pytest.raises(RecordRefusedError, match="as the table compares them"):
        bench.sink().rehearse([handle], facts)


def test_a_value_too_long_for_an_index_is_found_before_the_decision(bench: Bench) -> None:
    bench.run("CREATE TABLE t (name text PRIMARY KEY)")
    noise = "".join(uuid.uuid4().hex for _ in range(400))
    error = rehearsed(bench, rows(name=[noise]), key="name")
    assert isinstance(error, RecordRefusedError)
    assert "index row" in error.what


def test_values_that_are_together_too_long_for_an_index_are_found_before_the_decision(bench: Bench) -> None:
    bench.run("CREATE TABLE t (a text, b text, c text, d text, PRIMARY KEY (a, b, c, d))")
    noise = {name: ["".join(uuid.uuid4().hex for _ in range(22))] for name in "abcd"}
    error = rehearsed(bench, rows(**noise), key="a,b,c,d")
    assert isinstance(error, RecordRefusedError)
    assert "index row" in error.what


def test_a_table_with_nothing_to_refuse_by_is_not_rehearsed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name text NOT NULL)")
    applied: list[object] = []
    bench.options["key"] = "id"
    some = rows(id=[1], name=["a"])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    driver = bench.sink()
    monkeypatch.setattr(driver._target, "apply", lambda *_, **__: applied.append(1))
    driver.rehearse([handle], facts)
    assert not applied


def test_the_next_value_of_a_wider_column_is_taken_after_the_table_has_changed(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id integer, name varchar(3))")
    some = rows(id=pa.array([2**40], pa.int64()), name=["longer"])
    facts = bench.check(some)
    assert [each.code for each in bench.stage(some.slice(0), facts)[1]] == ["OUT_OF_RANGE"]
    bench.run("ALTER TABLE t ALTER id TYPE bigint, ALTER name TYPE varchar(10), ADD more text DEFAULT 'x'")
    bench.epoch(some, number=1)
    assert bench.run("SELECT * FROM t") == [(2**40, "longer", "x")]


def test_a_column_that_gets_wider_while_the_job_runs_is_taken_at_the_next_epoch(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id integer)")
    some = rows(id=pa.array([2**40], pa.int64()))
    planner = bench.sink()
    facts = planner.check(bench.context([("id", "bigint")]))
    bench.run("ALTER TABLE t ALTER id TYPE bigint")
    again = dict(planner.refresh(facts))
    assert not bench.stage(some, again, epoch=1)[1]
    bench.run("ALTER TABLE t ADD must bigint NOT NULL")
    with pytest.raises(ConfigurationError, match="no row without must"):
        planner.refresh(again)


def test_a_narrower_column_stops_before_the_decision(bench: Bench) -> None:
    bench.run("CREATE TABLE t (a numeric(10,4))")
    some = rows(a=pa.array([decimal.Decimal("1.2345")], pa.decimal128(8, 4)))
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    bench.run("ALTER TABLE t ALTER a TYPE numeric(10,2)")
    with pytest.raises(ConfigurationError, match="keeps 2 digits"):
        bench.sink().rehearse([handle], facts)


def test_a_column_that_gets_narrower_after_the_decision_keeps_no_other_value(bench: Bench) -> None:
    bench.run("CREATE TABLE t (a timestamp)")
    some = rows(a=pa.array([1], pa.timestamp("us")))
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    driver = bench.sink()
    driver.rehearse([handle], facts)
    bench.run("ALTER TABLE t ALTER a TYPE timestamp(0)")
    with pytest.raises(RecordRefusedError, match="keeps 0 digits of a second"):
        driver.commit(handle)
    bench.run("ALTER TABLE t ALTER a TYPE timestamp")
    assert driver.commit(handle) == Committed()


def test_a_column_that_is_narrow_again_before_the_decision_keeps_no_other_value(bench: Bench) -> None:
    bench.run("CREATE TABLE t (a timestamp(0))")
    driver = bench.sink()
    facts = dict(driver.check(bench.context([("a", "timestamp_ntz")])))
    handle, _ = bench.stage(rows(a=pa.array([1_000_000], pa.timestamp("us"))), facts)
    driver.rehearse([handle], facts)
    assert driver.commit(handle) == Committed()
    bench.run("ALTER TABLE t ALTER a TYPE timestamp")
    facts = dict(driver.refresh(facts))
    handle, refused = bench.stage(rows(a=pa.array([1], pa.timestamp("us"))), facts, epoch=1)
    assert not refused
    bench.run("ALTER TABLE t ALTER a TYPE timestamp(0)")
    with pytest.raises(RecordRefusedError, match="keeps 0 digits of a second"):
        driver.rehearse([handle], facts)


# ---------------------------------------------------------------------------------------- before the first record
@pytest.mark.parametrize(
    ("tables", "options", "said"),
    [
        ([], {}, "no table"),
        (["CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, name text)"], {}, "computes it"),
        (["CREATE TABLE t (id bigint, name text, more text NOT NULL)"], {}, "no row without more"),
        (["CREATE UNLOGGED TABLE t (id bigint, name text)"], {}, "unlogged"),
        (["CREATE VIEW t AS SELECT 1::bigint AS id, ''::text AS name"], {}, "is a view"),
        (
            ["CREATE TABLE t (id bigint, name text)", "CREATE UNIQUE INDEX ON t (id) WHERE id > 0"], {"key": "id"},
            "no primary key",
        ),
        (["CREATE TABLE t (id bigint UNIQUE DEFERRABLE, name text)"], {"key": "id"}, "no primary key"),
        (["CREATE TABLE t (id bigint, name text)"], {"books": "t"}, "is another table"),
        (["CREATE TABLE t (id bigint, name text)"], {"table": "T"}, "capitals"),
        (
            ["CREATE TABLE t (id bigint, name text)"], {"url": "postgresql://postgres@127.0.0.1:{port}/none"},
            "does not exist",
        ),
        (["CREATE TABLE t (id bigint, name text)"], {"url": "postgresql://anna@127.0.0.1:{port}/postgres"}, "password"),
        (
            ["CREATE TABLE t (id bigint, name text)"],
            {"url": "postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=verify-full"}, "sslmode=require",
        ),
        (["CREATE TABLE t (id bigint, name text)"], {"url": "postgresql://127.0.0.1:{port}/d?no_such=1"}, "no_such"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(
    postgres: EmbeddedPostgres, bench: Bench, tables: list[str], options: dict[str, str], said: str
) -> None:
    for statement in tables:
        bench.run(statement)
    options = {name: text.format(port=postgres.port) for name, text in options.items()}
    with pytest.raises(ConfigurationError, match=said) as raised:
        bench.check(rows(id=[1], name=["a"]), **options)
    assert raised.value.next_step


def test_a_server_that_is_not_there_may_come_back(bench: Bench) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnavailableError):
        bench.check(rows(id=[1]), url=f"postgresql://postgres@127.0.0.1:{port}/postgres")


def test_a_server_that_only_reads_is_named(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id bigint)")
    bench.run(BOOKS.format("onceonly_commits"))
    name = bench.url.rpartition("/")[2]
    bench.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(ConfigurationError, match="read-only") as raised:
        bench.check(rows(id=[1]))
    assert "replica" in raised.value.next_step


def test_who_may_not_make_the_books_is_given_the_statement(
    postgres: EmbeddedPostgres, bench: Bench, tmp_path: Path
) -> None:
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    user, name = f"u{uuid.uuid4().hex[:12]}", bench.url.rpartition("/")[2]
    bench.run(f"CREATE ROLE {user} LOGIN PASSWORD 'from a file'")
    secret = tmp_path / "password"
    secret.write_text("from a file\n")
    bench.options |= {"url": postgres.url(user, name), "password.file": str(secret), "key": "id"}
    some = rows(id=[1], name=["a"])
    with pytest.raises(ConfigurationError, match=r"cannot be made.*permission denied") as raised:
        bench.check(some)
    make, _, grant = raised.value.next_step.partition(": ")[2].partition("; ")
    assert make.startswith("CREATE TABLE")
    bench.run(make)
    with pytest.raises(ConfigurationError, match="permission denied for table onceonly_commits") as raised:
        bench.check(some)
    assert raised.value.next_step.endswith(f": {grant}")
    bench.run(grant)
    with pytest.raises(ConfigurationError, match="permission denied for table t") as raised:
        bench.check(some)
    assert "TEMPORARY" in raised.value.next_step
    bench.run(f"GRANT SELECT, INSERT, UPDATE ON t TO {user}")
    bench.epoch(some)
    assert bench.run("SELECT * FROM t") == [(1, "a")]


def test_a_wrong_password_is_refused_and_shown_nowhere(postgres: EmbeddedPostgres, bench: Bench) -> None:
    user = f"u{uuid.uuid4().hex[:12]}"
    bench.run(f"CREATE ROLE {user} LOGIN PASSWORD 'right'")
    with pytest.raises(ConfigurationError, match="authentication failed") as raised:
        bench.check(rows(id=[1]), url=postgres.url(user), password="wr0ng")  # noqa: S106
    assert "wr0ng" not in str(raised.value)


def test_the_password_of_the_environment_is_the_clients_own(
    postgres: EmbeddedPostgres, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"u{uuid.uuid4().hex[:12]}"
    bench.run(f"CREATE ROLE {user} LOGIN SUPERUSER PASSWORD 'right'")
    bench.run("CREATE TABLE t (id bigint)")
    monkeypatch.setenv("PGPASSWORD", "right")
    bench.check(rows(id=[1]), url=postgres.url(user, bench.url.rpartition("/")[2]))


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql://u@db.example/d", "verify-full"),
        ("postgresql://u@10.0.0.1:5432/d", "verify-full"),
        ("postgresql://u@localhost,db.example/d", "verify-full"),
        ("postgresql://u@db.example/d?sslmode=require", "require"),
        ("postgresql://u@localhost:5432/d", None),
        ("postgresql://u@127.0.0.1/d", None),
        ("postgresql://u@[::1]:5432/d", None),
        ("postgresql:///d", None),
        ("postgresql:///d?host=/run/postgresql", None),
        ("postgresql:///d?host=db.example", "verify-full"),
        ("postgresql:///d?hostaddr=10.0.0.1", "verify-full"),
        ("postgresql://u@localhost/d?hostaddr=10.0.0.1", "verify-full"),
        ("postgresql://u@db.example/d?hostaddr=127.0.0.1", None),
    ],
)
def test_tls_is_verified_where_the_server_is_on_another_machine(
    bench: Bench, url: str, mode: str | None
) -> None:
    settings = bench.sink(url=url)._target.sql._settings()  # type: ignore[attr-defined]
    assert settings.get("sslmode") == mode
    assert ("sslrootcert" in settings) is (mode == "verify-full")


def test_a_column_that_two_of_the_tables_could_be_goes_into_neither(bench: Bench) -> None:
    bench.run('CREATE TABLE t ("Id" bigint, "id" bigint)')
    with pytest.raises(ConfigurationError, match="no column ID"):
        bench.check(rows(ID=[1]))
    bench.epoch(rows(Id=[1], id=[2]))
    assert bench.run('SELECT "Id", "id" FROM t') == [(1, 2)]


def test_tls_is_verified_where_the_environment_names_another_machine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, mode in (("PGHOST", None), ("PGHOSTADDR", "verify-full")):
        monkeypatch.setenv(name, "10.0.0.1")
        settings = bench.sink(url="postgresql://u@localhost/d")._target.sql._settings()  # type: ignore[attr-defined]
        assert settings.get("sslmode") == mode, name


def test_hosts_and_ports_are_read_as_the_client_wants_them(bench: Bench) -> None:
    settings = bench.sink(url="postgresql://u%40x@a:1,[::1]:2,c/d")._target.sql._settings()  # type: ignore[attr-defined]
    assert (settings["user"], settings["host"], settings["port"]) == ("u@x", "a,::1,c", "1,2,")


def test_a_table_is_made_where_the_option_says_so(bench: Bench) -> None:
    some = rows(
        id=[1], name=["a"], x=pa.array([1.5], pa.float32()), d=pa.array([decimal.Decimal("1.5")], pa.decimal128(5, 2)),
        at=pa.array([0], pa.timestamp("us", "UTC")), j=pa.array([[1]], pa.list_(pa.int64())),
    )  # fmt: skip
    bench.epoch(some, create="true", key="id")
    assert bench.run("SELECT id, name, x, d::text, at::date::text, j FROM t") == [
        (1, "a", 1.5, "1.50", "1970-01-01", [1])
    ]


def test_rows_of_a_table_with_policies_go_by_its_policies(postgres: EmbeddedPostgres, bench: Bench) -> None:
    user, name = f"u{uuid.uuid4().hex[:12]}", bench.url.rpartition("/")[2]
    for statement in (
        "CREATE TABLE t (id bigint, name text)", BOOKS.format("onceonly_commits"),
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON t USING (true) WITH CHECK (id > 0)", f"CREATE ROLE {user} LOGIN PASSWORD 'p'",
        f"GRANT SELECT, INSERT, DELETE ON t, onceonly_commits TO {user}",
    ):  # fmt: skip
        bench.run(statement)
    bench.options |= {"url": postgres.url(user, name), "password": "p"}
    bench.epoch(rows(id=[1], name=["a"]))
    assert bench.run("SELECT * FROM t") == [(1, "a")]
    error = rehearsed(bench, rows(id=[0], name=["a"]), number=1)
    assert isinstance(error, RecordRefusedError), "no right is missing, and none would help"
    assert "row-level security" in error.what
    some = rows(id=[2, 3], name=["a", "b"])
    handle, _ = bench.stage(some, bench.check(some), epoch=1)
    bench.run("ALTER POLICY p ON t WITH CHECK (id <> 2)")
    with pytest.raises(RecordRefusedError, match="transactions divert"):
        bench.sink().commit(handle)
    assert [each.row for each in bench.sink().refusals(handle, [])] == [0]
    bench.run(f"REVOKE INSERT ON t FROM {user}")
    with pytest.raises(ConfigurationError, match="permission denied"):
        bench.sink().commit(handle)


@pytest.mark.parametrize("domain", ["text NOT NULL", "varchar(9) CHECK (VALUE IS NOT NULL)"])
def test_a_deletion_needs_no_value_for_a_domain_that_takes_no_null(bench: Bench, domain: str) -> None:
    bench.run(f"CREATE DOMAIN named AS {domain}")
    bench.run("CREATE TABLE t (id bigint PRIMARY KEY, name named)")
    bench.options |= {"key": "id", "op": "op"}
    bench.epoch(rows(op=["c", "c"], id=[1, 2], name=["a", "b"]))
    bench.epoch(rows(op=["d", "u"], id=[1, 2], name=[None, "B"]), number=1)
    assert bench.run("SELECT * FROM t") == [(2, "B")]
    error = rehearsed(bench, rows(op=["c"], id=[3], name=pa.array([None], pa.string())), number=2)
    assert isinstance(error, RecordRefusedError), "a row needs one"


def test_a_deletion_that_a_policy_passes_over_is_found_before_the_decision(
    postgres: EmbeddedPostgres, bench: Bench
) -> None:
    user, name = f"u{uuid.uuid4().hex[:12]}", bench.url.rpartition("/")[2]
    for statement in (
        "CREATE TABLE t (id bigint PRIMARY KEY, name text)", BOOKS.format("onceonly_commits"),
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY s ON t FOR SELECT USING (true)", "CREATE POLICY i ON t FOR INSERT WITH CHECK (true)",
        "CREATE POLICY u ON t FOR UPDATE USING (true)", "CREATE POLICY d ON t FOR DELETE USING (name <> 'kept')",
        f"CREATE ROLE {user} LOGIN PASSWORD 'p'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON t, onceonly_commits TO {user}",
    ):  # fmt: skip
        bench.run(statement)
    bench.options |= {"url": postgres.url(user, name), "password": "p", "key": "id", "op": "op"}
    bench.epoch(rows(op=["c", "c"], id=[1, 2], name=["a", "kept"]))
    bench.epoch(rows(op=["u", "d"], id=[2, 1], name=["kept", None]), number=1)
    assert bench.run("SELECT * FROM t") == [(2, "kept")]
    error = rehearsed(bench, rows(op=["d"], id=[2], name=pa.array([None], pa.string())), number=2)
    assert isinstance(error, RecordRefusedError), error
    assert "id 2 was deleted, and is there" in error.what
    assert "policies of rows" in error.what


@pytest.mark.parametrize("key", ["", "id"])
def test_the_rows_that_a_table_refuses_beside_all_others_are_named(bench: Bench, key: str) -> None:
    require_sifted(bench, key)


@pytest.mark.parametrize("more", ["", " DEFERRABLE INITIALLY DEFERRED"], ids=["at once", "deferred"])
def test_a_row_is_not_refused_as_what_it_refers_to_comes_behind_it(bench: Bench, more: str) -> None:
    table = f"CREATE TABLE t (id BIGINT PRIMARY KEY, parent BIGINT REFERENCES t (id){more})"
    require_refers_to_later_rows(bench, table)
