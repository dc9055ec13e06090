"""What the SQL sinks promise, on SQLite: upserts, deletions, books, rehearsals, and a sentence for each mistake."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.sql_bench import Bench, require_refers_to_later_rows, require_sifted, rows
from tests.unit.test_coordinator_query import barrier, complete

from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import (
    ConfigurationError,
    InDoubtError,
    LogError,
    OnceonlyError,
    RecordRefusedError,
    TargetBehindError,
    UnavailableError,
)
from onceonly.executor.slot import run_slot
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Lost
from onceonly.ports import WriteContext
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import BUILT_IN, build
from onceonly.sinks.sql import books, past
from onceonly.sinks.sql.dialects.sqlite import Sqlite
from onceonly.sinks.sql.options import Url
from onceonly.sinks.sql.sink import SqliteSink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IDS = "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "r.db"

    def run(sql: str) -> list[Any]:
        with closing(sqlite3.connect(path, timeout=20)) as db, db:
            return db.execute(sql).fetchall()

    run("VACUUM")
    made = Bench(f"sqlite:///{path}", tmp_path, run)
    yield made
    made.close()


# ---------------------------------------------------------------------------------------- rows by key
def test_rows_are_added_where_no_key_is_named(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT, name TEXT)")
    for number in range(2):
        bench.epoch(rows(id=[1, 2], name=["a", None]), rows(id=[3], name=["c"]), number=number)
    assert sorted(bench.run("SELECT * FROM t")) == sorted([(1, "a"), (2, None), (3, "c")] * 2)


def test_a_row_replaces_the_one_with_its_key_and_others_stay(bench: Bench) -> None:
    bench.run(IDS)
    bench.epoch(rows(id=[1, 2], name=["a", "b"]), key="id")
    bench.epoch(rows(id=[2, 3], name=["B", "c"]), number=1, key="id")
    assert bench.run("SELECT * FROM t") == [(1, "a"), (2, "B"), (3, "c")]


def test_a_column_that_the_query_does_not_have_stays_as_it_is(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, note TEXT DEFAULT 'new')")
    bench.run("INSERT INTO t VALUES (1, 'a', 'kept')")
    bench.epoch(rows(id=[1, 2], name=["A", "b"]), key="id")
    assert bench.run("SELECT * FROM t") == [(1, "A", "kept"), (2, "b", "new")]


def test_a_key_of_several_columns_and_nothing_else(bench: Bench) -> None:
    bench.run("CREATE TABLE t (a BIGINT, b TEXT, PRIMARY KEY (b, a))")
    for number in range(2):
        bench.epoch(rows(a=[1, 1], b=["x", "y"]), number=number, key="a,b")
    assert sorted(bench.run("SELECT * FROM t")) == [(1, "x"), (1, "y")]


def test_a_change_feed_is_applied(bench: Bench) -> None:
    bench.run(IDS)
    bench.options.update(key="id", op="op", sequence="seq")
    bench.epoch(rows(op=["c", "I", "insert"], seq=[1, 2, 3], id=[1, 2, 3], name=["a", "b", "c"]))
    bench.epoch(
        rows(
            op=["update_preimage", "U", "d", "DELETE", "c", "d"], seq=[4, 5, 6, 7, 8, 3],
            id=[1, 1, 2, 3, 3, 9], name=["a", "A", None, None, "again", None],
        ),
        number=1,
    )  # fmt: skip
    assert bench.run("SELECT * FROM t") == [(1, "A"), (3, "again")]


def test_of_rows_with_one_key_the_greatest_sequence_wins_in_whichever_slot(bench: Bench) -> None:
    bench.run(IDS)
    bench.epoch(
        rows(id=[1, 1], name=["old", "newest"], n=[1, 3]), rows(id=[1], name=["older"], n=[2]),
        key="id", sequence="n",
    )  # fmt: skip
    assert bench.run("SELECT * FROM t") == [(1, "newest")]


@pytest.mark.parametrize("later", [{}, {"sequence": ""}, {"op": "", "sequence": ""}], ids=str)
def test_what_was_decided_is_applied_by_the_options_by_which_it_was_staged(
    bench: Bench, later: dict[str, str]
) -> None:
    """A driver dies between a decision and its commit, and the query is started again with other options."""
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, op TEXT DEFAULT '')")
    bench.run("INSERT INTO t (id, name) VALUES (2, 'b')")
    own = {"key": "id", "sequence": "n", "op": "op"}
    some = rows(id=[1, 2], name=["new", None], n=[3, 4], op=["u", "d"])
    older = rows(id=[1], name=["old"], n=[2], op=["c"])
    facts = bench.check(some, **own)
    handles = [
        bench.stage(each, facts, slot=slot, key="id", sequence="n", op="op")[0]
        for slot, each in enumerate((some, older))
    ]
    bench.sink(**own).rehearse(handles, facts)
    assert set(bench.sink(**{**own, **later}).commit_many(handles)) == {Committed()}
    assert bench.run("SELECT id, name FROM t") == [(1, "new")]


def test_rows_that_were_decided_to_be_added_are_not_taken_for_changes(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, op TEXT)")
    bench.run("INSERT INTO t VALUES (1, 'x')")
    some = rows(id=[2, 3], op=["d", "c"])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    assert bench.sink(key="id", op="op").commit_many([handle]) == [Committed()]
    assert bench.run("SELECT * FROM t") == [(1, "x"), (2, "d"), (3, "c")]


def test_a_sequence_is_written_where_the_table_has_such_a_column(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    bench.epoch(rows(id=[1, 1], n=[1, 3]), key="id", sequence="n")
    assert bench.run("SELECT * FROM t") == [(1, 3)]


def refused(bench: Bench, *slots: pa.RecordBatch, **more: str) -> OnceonlyError:
    """Stage an epoch, and return what its rehearsal raises; the table must be as before."""
    before = bench.run("SELECT * FROM t")
    bench.options.update(more)
    facts = bench.check(slots[0])
    handles = [bench.stage(each, facts, slot=slot)[0] for slot, each in enumerate(slots)]
    with pytest.raises(OnceonlyError) as raised:
        bench.sink().rehearse(handles, facts)
    assert bench.run("SELECT * FROM t") == before
    assert bench.run("SELECT * FROM onceonly_commits") == []
    return raised.value


def test_a_key_twice_in_an_epoch_is_refused_before_the_decision(bench: Bench) -> None:
    bench.run(IDS)
    error = refused(bench, rows(id=[1, 2], name=["a", "b"]), rows(id=[2], name=["c"]), key="id")
    assert isinstance(error, RecordRefusedError)
    assert "several rows of this epoch have id 2," in error.what
    assert "sequence" in error.next_step


def test_two_rows_with_one_key_and_one_sequence_are_refused(bench: Bench) -> None:
    bench.run(IDS)
    error = refused(bench, rows(id=[1, 1], name=["a", "b"], n=[7, 7]), key="id", sequence="n")
    assert "id 1, n 7" in error.what


def test_a_feed_may_have_a_key_twice_where_one_is_passed_over(bench: Bench) -> None:
    bench.run(IDS)
    bench.epoch(rows(op=["-U", "+U"], id=[1, 1], name=["a", "b"]), key="id", op="op")
    assert bench.run("SELECT * FROM t") == [(1, "b")]


# ---------------------------------------------------------------------------------------- rows that are given back
def test_rows_that_the_table_never_takes_are_given_back_each_with_its_reason(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT NOT NULL, x REAL)")
    some = rows(
        op=["c", "c", None, "drop", "d", "c", "c"],
        id=pa.array([1, None, 3, 4, 5, 6, 7], pa.int64()),
        name=["a", "b", "c", "d", None, None, "g"],
        x=[1.5, 1.5, 1.5, 1.5, None, 1.5, float("nan")],
    )
    bench.options.update(key="id", op="op")
    facts = bench.check(some)
    handle, found = bench.stage(some, facts)
    assert [(each.row, each.code) for each in found] == [
        (1, "NULL_KEY"), (2, "NO_OP"), (3, "NO_OP"), (5, "NULL"), (6, "NOT_A_NUMBER"),
    ]  # fmt: skip
    driver = bench.sink()
    driver.rehearse([handle], facts)
    assert driver.commit(handle) == Committed()
    assert bench.run("SELECT * FROM t") == [(1, "a", 1.5)]


# ---------------------------------------------------------------------------------------- before the first record
@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ("CREATE TABLE other (id BIGINT)", {}, "no table"),
        ("CREATE TABLE t (id BIGINT)", {}, "no column name"),
        ("CREATE TABLE t (id BIGINT, name BIGINT)", {}, "it takes no string"),
        ("CREATE TABLE t (id BIGINT, name STRING)", {}, "it takes no string"),
        ("CREATE TABLE t (id BIGINT, name TEXT, more TEXT NOT NULL)", {}, "no row without more"),
        ("CREATE TABLE t (id BIGINT, name TEXT AS (id))", {}, "the table computes it"),
        ("CREATE TABLE t (id BIGINT, name TEXT)", {"key": "id"}, "no primary key"),
        (
            "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)",
            {"key": "id,name"},
            "id, name and nothing else",
        ),
        (
            "CREATE TABLE t (id BIGINT, name TEXT COLLATE NOCASE PRIMARY KEY)",
            {"key": "name"},
            "no primary key",
        ),
        (IDS, {"key": "no"}, "key names the column no"),
        (IDS, {"key": "id", "op": "id"}, "which says what becomes of a row"),
        (IDS, {"key": "id", "sequence": "name"}, "which says what is newer"),
        ("CREATE VIEW t AS SELECT 1 AS id, 'a' AS name", {}, "is a view"),
        (
            "CREATE TABLE t (id BIGINT REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED, name TEXT)",
            {},
            "DEFERRED",
        ),
        (IDS, {"books": "t"}, "is another table"),
        (IDS, {"table": "elsewhere.t"}, "no table"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_name(
    bench: Bench, table: str, options: dict[str, str], said: str
) -> None:
    bench.run(table)
    with pytest.raises(ConfigurationError, match=said) as raised:
        bench.check(rows(id=[1], name=["a"]), **options)
    assert raised.value.next_step


def test_several_hosts_in_an_address_are_read_by_every_python() -> None:
    url = Url.of("postgresql+psycopg://u%40x@a:1,[::1]:2,c/d?sslmode=require", who="the sink sql")
    assert (url.scheme, url.user, url.hosts, url.path) == ("postgresql", "u@x", "a:1,[::1]:2,c", "d")
    assert url.query == {"sslmode": "require"}
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Url.of("postgresql://a:1,[::1/d", who="the sink sql")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "oracle://h/d"}, "begins with oracle"),
        ({"url": "r.db"}, "begins with no scheme"),
        ({"url": "sqlite:///r.db"}, "by its whole path"),
        ({"url": "sqlite://"}, "by its whole path"),
        ({"url": "postgresql://u:geheim@h/d"}, "holds a password"),
        ({"url": "postgresql://u@h/d?password=geheim"}, "holds a password"),
        ({"url": "postgresql://[h/d"}, "cannot be read"),
        ({"password": "geheim"}, "has no passwords"),
        ({"password": "geheim", "password.file": "/x"}, "both given"),
        ({"table": "a.b.c"}, "schema.table"),
        ({"table": ""}, "schema.table"),
        ({"key": "a,,b"}, "separated by commas"),
        ({"key": "a,a"}, "separated by commas"),
        ({"op": "o"}, "without key"),
        ({"sequence": "o"}, "without key"),
        ({"statement.timeout": "5"}, "a time such as"),
        ({"statement.timeout": "0 seconds"}, "a time such as 30 seconds"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(bench: Bench, options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        bench.sink(**options)
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [("/tmp/x.db", "has no scheme"), ("x.db", "has no scheme"), ("mysql://h/d", "begins with mysql://")],  # noqa: S108
)
def test_an_address_of_another_system_is_told_what_it_lacks(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The option url of the sink sqlite {said}\\.") as raised:
        SqliteSink({"url": url, "table": "t"})
    assert "sqlite:////data/r.db" in raised.value.next_step


def test_a_missing_file_is_not_made(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="unable to open") as raised:
        bench.check(rows(id=[1]), url=f"sqlite:///{bench.folder}/none.db")
    assert "create=true" in raised.value.next_step
    assert not (bench.folder / "none.db").exists()


def test_a_table_is_made_where_the_option_says_so(bench: Bench) -> None:
    some = rows(op=["c"], id=[1], name=["a"], when=pa.array([0], pa.timestamp("us", "UTC")))
    bench.epoch(some, create="true", key="id", op="op")
    assert bench.run("SELECT * FROM t") == [(1, "a", "1970-01-01 00:00:00.000000+00:00")]
    bench.epoch(some, number=1, create="true", key="id", op="op")
    assert len(bench.run("SELECT * FROM t")) == 1


def test_a_file_is_made_by_the_check_and_never_by_a_look(bench: Bench) -> None:
    path = bench.folder / "new.db"
    sink = bench.sink(url=f"sqlite:///{path}", create="true")
    with pytest.raises(ConfigurationError, match="unable to open"):
        sink.look_back(bench.context([]), 1, [Handle(transaction="0.0.x.arrow")])
    assert not path.exists()
    sink.check(bench.context([("id", "bigint")]))
    assert path.exists()
    with pytest.raises(ConfigurationError, match=f"there is no folder {bench.folder}/no ") as raised:
        bench.check(rows(id=[1]), url=f"sqlite:///{bench.folder}/no/new.db", create="true")
    assert "mount it" in raised.value.next_step


def test_names_are_found_whatever_their_case_where_only_one_is_meant(bench: Bench) -> None:
    bench.run("CREATE TABLE t (Id BIGINT, NAME TEXT)")
    bench.epoch(rows(id=[1], name=["a"]))
    assert bench.run("SELECT Id, NAME FROM t") == [(1, "a")]


# ---------------------------------------------------------------------------------------- rehearsals
@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("CREATE TABLE t (id BIGINT CHECK (id > 1), name TEXT)", "CHECK"),
        ("CREATE TABLE t (id BIGINT UNIQUE, name TEXT)", "UNIQUE"),
        ("CREATE TABLE t (id BIGINT REFERENCES other (id), name TEXT)", "FOREIGN KEY"),
    ],
)
def test_what_a_constraint_refuses_is_found_before_the_decision(bench: Bench, table: str, said: str) -> None:
    bench.run("CREATE TABLE other (id BIGINT PRIMARY KEY)")
    bench.run(table)
    error = refused(bench, rows(id=[1], name=["a"]), rows(id=[1], name=["b"]))
    assert isinstance(error, RecordRefusedError)
    assert said in error.what


def test_what_a_trigger_refuses_is_found_before_the_decision(bench: Bench) -> None:
    bench.run(IDS)
    bench.run("CREATE TRIGGER no BEFORE INSERT ON t BEGIN SELECT RAISE(ABORT, 'not on Fridays'); END")
    assert "not on Fridays" in refused(bench, rows(id=[1], name=["a"]), key="id").what


@pytest.mark.parametrize("key", ["", "id"])
def test_a_row_that_a_trigger_passes_over_is_refused_before_the_decision(bench: Bench, key: str) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)")
    bench.run("CREATE TRIGGER tr BEFORE INSERT ON t WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END")
    some = rows(id=[1, 2, 3], name=["a", "b", "c"])
    facts = bench.check(some, key=key)
    handle, _ = bench.stage(some, facts, key=key)
    for step in (
        lambda: bench.sink(key=key).rehearse([handle], facts),
        lambda: bench.sink(key=key).commit(handle),
    ):
        with pytest.raises(RecordRefusedError, match="no error; the table has the trigger tr"):
            step()
    assert bench.run("SELECT * FROM t") == []
    [refused] = bench.sink(key=key).refusals(handle, [])
    assert refused.row == 1
    bench.epoch(some, key=key, triggers="trusted")
    assert bench.run("SELECT * FROM t") == [(1, "a"), (3, "c")]


def test_what_is_left_of_a_transaction_is_staged_with_what_was_known_of_its_table(bench: Bench) -> None:
    bench.run(IDS)
    some = rows(id=[1, 1], name=["a", "b"])
    handle, _ = bench.stage(some, bench.check(some))
    handle = replace(handle, data={**handle.data, past.TABLE_ID: "7"})
    sink = bench.sink()
    [refused] = sink.refusals(handle, [])
    context = WriteContext(
        query="q", sink="sql", run="", epoch=0, plan="p", slot=0, attempt="operator",
        guarantee=Guarantee.EXACTLY_ONCE,
    )  # fmt: skip
    again = sink.stage_again(context, some.slice(refused.row - 1, 1), handle)
    assert again.data[past.TABLE_ID] == "7"
    assert bench.sink().commit(again) == Committed()


def test_a_deletion_that_a_trigger_passes_over_is_refused_before_the_decision(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)")
    bench.run("CREATE TRIGGER tr BEFORE DELETE ON t BEGIN SELECT RAISE(IGNORE); END")
    bench.epoch(rows(op=["c"], id=[1], name=["a"]), key="id", op="op")
    with pytest.raises(RecordRefusedError, match="id 1 was deleted, and is there"):
        bench.epoch(rows(op=["d"], id=[1], name=["a"]), number=1, key="id", op="op")
    assert bench.run("SELECT * FROM t") == [(1, "a")]


@pytest.mark.parametrize("key", ["", "id"])
def test_a_trigger_is_seen_however_it_spells_its_table(bench: Bench, key: str) -> None:
    """SQLite keeps the table's name as the trigger's statement had it."""
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)")
    bench.run("CREATE TRIGGER tr BEFORE INSERT ON T WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END")
    some = rows(id=[1, 2, 3], name=["a", "b", "c"])
    facts = bench.check(some, key=key)
    handle, _ = bench.stage(some, facts, key=key)
    with pytest.raises(RecordRefusedError, match="no error; the table has the trigger tr"):
        bench.sink(key=key).rehearse([handle], facts)


def test_books_that_pass_over_what_is_noted_are_refused_at_the_start(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT)")
    bench.check(rows(id=[1]))
    bench.run("CREATE TRIGGER tr BEFORE INSERT ON onceonly_commits BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(ConfigurationError, match="takes a row without an error and has not got it"):
        bench.check(rows(id=[1]))


def test_a_deletion_that_another_table_forbids_is_found_before_the_decision(bench: Bench) -> None:
    bench.run(IDS)
    bench.run("INSERT INTO t VALUES (1, 'a')")
    bench.run("CREATE TABLE child (t_id BIGINT REFERENCES t (id))")
    bench.run("INSERT INTO child VALUES (1)")
    error = refused(bench, rows(op=["d"], id=[1], name=pa.array([None], pa.string())), key="id", op="op")
    assert "FOREIGN KEY" in error.what


@pytest.mark.parametrize(
    ("child", "options", "is_taken"),
    [
        ("t_id BIGINT REFERENCES T (id) DEFERRABLE INITIALLY DEFERRED", {"key": "id", "op": "op"}, False),
        ("t_id BIGINT REFERENCES t DEFERRABLE INITIALLY DEFERRED", {"key": "id", "op": "op"}, False),
        ("t_id BIGINT REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED", {"key": "id"}, True),
        (
            "t_id BIGINT REFERENCES t (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED",
            {"key": "id", "op": "op"}, True,
        ),
        ("name TEXT REFERENCES t (name) DEFERRABLE INITIALLY DEFERRED", {"key": "id"}, False),
        ("name TEXT REFERENCES t (name) DEFERRABLE INITIALLY DEFERRED", {}, True),
    ],
)  # fmt: skip
def test_what_another_table_would_forbid_at_the_commit_alone_is_refused_before_the_first_record(
    bench: Bench, child: str, options: dict[str, str], *, is_taken: bool
) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT UNIQUE)")
    bench.run(f"CREATE TABLE child ({child})")
    some = rows(op=["c"], id=[1], name=["a"]) if "op" in options else rows(id=[1], name=["a"])
    bench.options |= options
    if is_taken:
        bench.epoch(some)
        return
    with pytest.raises(ConfigurationError, match="foreign key of child to it that is only checked at COMMIT"):
        bench.check(some)


def test_a_constraint_put_in_after_the_decision_leaves_the_epoch_pending_and_is_named(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT, name TEXT)")
    some = rows(id=[1, 1], name=["a", "b"])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    driver = bench.sink()
    driver.rehearse([handle], facts)
    bench.run("CREATE UNIQUE INDEX once ON t (id)")
    with pytest.raises(RecordRefusedError, match="UNIQUE"):
        driver.commit(handle)
    assert bench.run("SELECT * FROM t") == []
    bench.run("DROP INDEX once")
    assert driver.commit(handle) == Committed()
    assert len(bench.run("SELECT * FROM t")) == 2


def test_a_staged_file_that_is_gone_before_the_decision_voids_the_try(bench: Bench) -> None:
    bench.run(IDS)
    facts = bench.check(rows(id=[1], name=["a"]))
    handle, _ = bench.stage(rows(id=[1], name=["a"]), facts)
    bench.sink().abort(handle)
    with pytest.raises(UnavailableError, match="removed or cut before"):
        bench.sink().rehearse([handle], facts)


# ---------------------------------------------------------------------------------------- tables that change
def test_a_new_column_that_may_be_null_is_taken(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT, name TEXT)")
    some = rows(id=[1], name=["a"])
    facts = bench.check(some)
    bench.run("ALTER TABLE t ADD COLUMN more TEXT")
    handle, _ = bench.stage(some, facts)
    driver = bench.sink()
    driver.rehearse([handle], facts)
    assert driver.commit(handle) == Committed()
    assert bench.run("SELECT * FROM t") == [(1, "a", None)]


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ("ALTER TABLE t DROP COLUMN name", ConfigurationError, "no column name"),
        ("ALTER TABLE t ADD COLUMN more TEXT NOT NULL DEFAULT ''", None, ""),
        ("DROP TABLE t", ConfigurationError, "is gone"),
    ],
)
def test_a_table_that_no_longer_fits_stops_before_the_decision(
    bench: Bench, change: str, kind: type[OnceonlyError] | None, said: str
) -> None:
    bench.run("CREATE TABLE t (id BIGINT, name TEXT)")
    some = rows(id=[1], name=["a"])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    bench.run(change)
    if kind is None:
        bench.sink().rehearse([handle], facts)
        return
    with pytest.raises(kind, match=said):
        bench.sink().rehearse([handle], facts)


def test_rows_are_looked_at_again_by_the_table_as_it_is_now(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT, name TEXT)")
    some = rows(id=[1], name=pa.array([None], pa.string()))
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    bench.run("DROP TABLE t")
    bench.run("CREATE TABLE t (id BIGINT, name TEXT NOT NULL)")
    with pytest.raises(RecordRefusedError, match=r"changed meanwhile.*takes no null"):
        bench.sink().rehearse([handle], facts)


# ---------------------------------------------------------------------------------------- books
def test_old_rows_leave_the_books_and_who_asks_for_them_is_in_doubt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books, "EPOCHS_KEPT", 2)
    bench.run("CREATE TABLE t (id BIGINT)")
    facts = bench.check(rows(id=[0]))
    handles = []
    for number in range(6):
        handle, _ = bench.stage(rows(id=[number]), facts, epoch=number)
        assert bench.sink().commit(handle) == Committed()
        handles.append(handle)
    kept = "SELECT epoch FROM onceonly_commits WHERE void = 0 ORDER BY epoch"
    assert bench.run(kept) == [(3,), (4,), (5,)]
    assert bench.sink().commit(handles[3]) == AlreadyCommitted()
    with pytest.raises(InDoubtError, match="no longer knows chk-2"):
        bench.sink().commit(handles[2])
    assert bench.run("SELECT id FROM t") == [(number,) for number in range(6)]


def test_a_driver_that_slept_through_many_epochs_applies_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books, "EPOCHS_KEPT", 2)
    bench.run("CREATE TABLE t (id BIGINT)")
    facts = bench.check(rows(id=[0]))
    handle, _ = bench.stage(rows(id=[0]), facts)
    zombie = bench.sink()
    real = zombie.apply

    def late(staged: Any) -> None:  # noqa: ANN401
        # It has the rows in hand; meanwhile another driver applies them and goes on.
        kept = {name: _Kept(name, list(each.batches())) for name, each in staged.items()}
        assert bench.sink().commit(handle) == Committed()
        for number in range(1, 6):
            assert bench.sink().commit(bench.stage(rows(id=[number]), facts, epoch=number)[0]) == Committed()
        real(kept)

    monkeypatch.setattr(zombie, "apply", late)
    with pytest.raises(InDoubtError, match="paused"):
        zombie.commit(handle)
    assert bench.run("SELECT id FROM t") == [(number,) for number in range(6)]


class _Kept:
    def __init__(self, name: str, batches: list[pa.RecordBatch]) -> None:
        self.name = name
        self._batches = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)


def test_an_older_checkpoint_stops_before_its_decision(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT)")
    for number in (4, 5):
        bench.epoch(rows(id=[number]), number=number)
    facts = bench.check(rows(id=[0]))
    handle, _ = bench.stage(rows(id=[0]), facts, epoch=4)
    with pytest.raises(ConfigurationError, match="has chk-5 of query q already"):
        bench.sink().rehearse([handle], facts)


def test_a_checkpoint_that_is_one_epoch_older_stops_its_start(bench: Bench, tmp_path: Path) -> None:
    """Its epoch is the newest one of the books, which would take it as a part of that."""
    bench.run("CREATE TABLE t (id BIGINT)")
    checkpoint = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "q"}', encoding="utf-8")
    barrier(checkpoint, 0)
    options = {"url": bench.url, "table": "t"}
    own = SinkSettings(name="sql", options=options)

    def run(epoch: int) -> None:
        driver = QueryCoordinator(QuerySettings(checkpoint=str(checkpoint)), actor="driver", application="a")
        driver.enlist(own, BUILT_IN["sqlite"], (("id", "bigint"),))
        with closing(driver):
            plan = driver.plan(epoch, run="r")
            sink = build(own, BUILT_IN["sqlite"], checkpoint=str(checkpoint))
            context = WriteContext(
                query="q", sink="sql", run="r", epoch=epoch, plan=plan.id, slot=0, attempt="0",
                guarantee=Guarantee.EXACTLY_ONCE, mode=plan.mode, facts=plan.facts["sql"],
            )  # fmt: skip
            driver.decide(plan, [run_slot(sink, plan, context, [rows(id=[epoch])])])
        complete(checkpoint, epoch)
        barrier(checkpoint, epoch + 1)

    run(0)
    backup = shutil.copytree(checkpoint, tmp_path / "backup")
    run(1)
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    with pytest.raises(LogError, match=r"the newest epoch of q\.sql is chk-1 in its target: an older"):
        run(1)
    assert bench.run("SELECT id FROM t ORDER BY id") == [(0,), (1,)]


def test_a_backup_that_is_restored_while_the_query_runs_takes_no_further_epoch(
    bench: Bench, tmp_path: Path
) -> None:
    bench.run("CREATE TABLE t (a INTEGER)")
    facts = bench.check(rows(a=[0]))
    handles = [bench.stage(rows(a=[epoch]), facts, epoch=epoch)[0] for epoch in range(3)]
    driver = bench.sink()
    driver.commit(handles[0])
    backup = (tmp_path / "r.db").read_bytes()
    driver.commit(handles[1])
    (tmp_path / "r.db").write_bytes(backup)
    with pytest.raises(TargetBehindError, match="has forgotten chk-1"):
        driver.commit(handles[2])
    assert bench.run("SELECT a FROM t") == [(0,)]


def test_a_backup_that_is_restored_before_the_first_decision_of_a_run_takes_no_epoch(
    bench: Bench, tmp_path: Path
) -> None:
    bench.run("CREATE TABLE t (a INTEGER)")
    bench.epoch(rows(a=[0]))
    backup = (tmp_path / "r.db").read_bytes()
    bench.epoch(rows(a=[1]), number=1)
    facts = bench.check(rows(a=[2]))
    handle, _ = bench.stage(rows(a=[2]), facts, epoch=2)
    bench.sink().rehearse([handle], facts)
    (tmp_path / "r.db").write_bytes(backup)
    with pytest.raises(TargetBehindError, match="has forgotten chk-1"):
        bench.sink().rehearse([handle], facts)
    assert bench.run("SELECT a FROM t") == [(0,)]


def test_a_target_that_went_back_stops_the_query_and_names_what_is_missing(
    bench: Bench, tmp_path: Path
) -> None:
    bench.run("CREATE TABLE t (id BIGINT)")
    bench.epoch(rows(id=[0]), number=2)
    backup = (tmp_path / "r.db").read_bytes()
    for number in (3, 4):
        bench.epoch(rows(id=[0]), number=number)
    facts = bench.check(rows(id=[0]))
    handle, _ = bench.stage(rows(id=[0]), facts, epoch=4)
    context = bench.context([("id", "bigint")])
    bench.sink().look_back(context, 4, [handle])
    assert bench.sink().newest_epoch(context) == 4
    (tmp_path / "r.db").write_bytes(backup)
    assert bench.sink().newest_epoch(context) == 2
    with pytest.raises(TargetBehindError, match="chk-3 to chk-4 are not there") as raised:
        bench.sink().look_back(context, 4, [handle])
    assert "another table" not in str(raised.value), "this one has epochs of the query"
    bench.sink(**{"onceonly.target.behind": "go-on"}).look_back(context, 4, [handle])
    bench.sink().look_back(context, 4, [])
    bench.run("DROP TABLE onceonly_commits")
    assert bench.sink().newest_epoch(context) is None
    with pytest.raises(TargetBehindError, match="nothing of this query: chk-0 to chk-4") as raised:
        bench.sink().look_back(context, 4, [handle])
    assert "or the option books named another table then" in raised.value.what
    assert "name the former table again" in raised.value.next_step


def test_a_table_that_is_gone_is_not_made_anew_as_if_nothing_had_been_in_it(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT)")
    bench.epoch(rows(id=[0]), number=2)
    facts = bench.check(rows(id=[0]))
    handle, _ = bench.stage(rows(id=[0]), facts, epoch=2)
    context = bench.context([("id", "bigint")])
    bench.run("DROP TABLE t")
    with pytest.raises(TargetBehindError, match=r"no table t in .* any more. By the log chk-2 is complete"):
        bench.sink(create="true").look_back(context, 2, [handle])
    bench.sink(create="true", **{"onceonly.target.behind": "go-on"}).look_back(context, 2, [handle])


def looked_back(bench: Bench, caplog: pytest.LogCaptureFixture, change: str, **more: str) -> str:
    """Write an epoch, change the database while the job is down, and return what the next start tells."""
    bench.options.update(more)
    bench.run(IDS)
    some = (
        rows(id=[1, 2], name=["a", "b"], op=["c", "c"]) if "op" in more else rows(id=[1, 2], name=["a", "b"])
    )
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    assert bench.sink().commit(handle) == Committed()
    bench.run(change)
    caplog.clear()
    bench.sink().look_back(bench.context([]), 0, [handle])
    return caplog.text


def test_a_table_that_was_emptied_while_the_job_was_down_is_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    assert "is empty, and chk-0 has written 2 rows" in looked_back(bench, caplog, "DELETE FROM t")


def test_a_table_that_still_has_a_row_or_whose_feed_deletes_is_not_told_of(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    assert looked_back(bench, caplog, "DELETE FROM t WHERE id = 1") == ""
    bench.run("DROP TABLE t")
    bench.query = "feed"
    assert looked_back(bench, caplog, "DELETE FROM t", key="id", op="op") == ""


def test_another_query_that_has_written_to_the_table_is_told_of_until_this_one_has(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    bench.run("CREATE TABLE u (id BIGINT)")
    bench.epoch(rows(id=[1]))
    assert caplog.text == ""
    bench.query = "anew"
    bench.check(rows(id=[1]))
    assert "has written nothing to t" in caplog.text
    assert "query q has" in caplog.text
    caplog.clear()
    bench.check(rows(id=[1]), table="u")
    bench.check(rows(id=[1]), key="id")
    bench.epoch(rows(id=[2]), key="id")
    bench.check(rows(id=[1]))
    assert caplog.text == ""


def test_of_batches_each_is_a_query_of_its_own_and_nobody_is_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run("CREATE TABLE t (id BIGINT)")
    for number in range(2):
        bench.query = f"batch-nightly-{number:012x}"
        bench.epoch(rows(id=[number]))
    assert caplog.text == ""


def test_the_books_of_a_query_go_with_it(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.run("CREATE TABLE t (id BIGINT)")
    bench.epoch(rows(id=[1]))
    bench.run("DELETE FROM onceonly_commits WHERE query = 'q'")
    bench.query = "anew"
    bench.check(rows(id=[1]))
    assert caplog.text == ""


def test_a_lost_file_is_void_for_good(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT)")
    facts = bench.check(rows(id=[0]))
    handle, _ = bench.stage(rows(id=[0]), facts)
    bench.sink().abort(handle)
    assert isinstance(bench.sink().commit(handle), Lost)
    assert bench.run("SELECT name, void FROM onceonly_commits") == [(handle.transaction, 1)]


@pytest.mark.parametrize("key", ["", "id"])
def test_the_rows_that_a_table_refuses_beside_all_others_are_named(bench: Bench, key: str) -> None:
    require_sifted(bench, key)


@pytest.mark.parametrize(("key", "refused"), [("", [0, 1, 3]), ("id", [1])], ids=["one by one", "at once"])
def test_a_row_is_not_refused_as_what_it_refers_to_comes_behind_it(
    bench: Bench, key: str, refused: list[int]
) -> None:
    bench.options.update(key=key)
    table = "CREATE TABLE t (id BIGINT PRIMARY KEY, parent BIGINT REFERENCES t (id))"
    require_refers_to_later_rows(bench, table, refused=refused)


def test_a_disk_that_is_full_leaves_the_epoch_pending_until_there_is_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file that may not grow is full as a disk is, for SQLite and in its words.
    limit, connect = ["100"], Sqlite.connect

    def limited(dialect: Sqlite) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(dialect)
        db.execute(f"PRAGMA max_page_count = {limit[0]}")
        return db

    monkeypatch.setattr(Sqlite, "connect", limited)
    bench.run("CREATE TABLE t (id BIGINT, name TEXT)")
    some = rows(id=list(range(500)), name=["a" * 3000] * 500)
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    driver = bench.sink()
    driver.rehearse([handle], facts)
    for _ in range(2):
        with pytest.raises(
            UnavailableError, match=r"the disk of sqlite:///.* is full: database or disk is full"
        ) as e:
            driver.commit(handle)
        assert "make room" in e.value.next_step
        assert (
            bench.run("SELECT * FROM t") == bench.run("SELECT * FROM onceonly_commits WHERE void = 0") == []
        )
    limit[0] = "100000"
    assert driver.commit(handle) == Committed()
    assert driver.commit(handle) == AlreadyCommitted()
    assert bench.run("SELECT COUNT(DISTINCT id), COUNT(*) FROM t") == [(500, 500)]
