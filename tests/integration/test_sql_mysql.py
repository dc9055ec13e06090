"""What the SQL sink promises on a real MariaDB: rows by key, deletions, every type, a sentence for each mistake."""

from __future__ import annotations

import datetime as dt
import itertools
import os
from contextlib import nullcontext
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.sql_bench import (
    Bench,
    require_refers_to_later_rows,
    require_sifted,
    require_told_of_staged_and_remembered,
    rows,
)

from onceonly.errors import ConfigurationError, OnceonlyError, RecordRefusedError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed, Lost
from onceonly.sinks.sql.dialects import mysql_loading
from onceonly.sinks.sql.target import Target
from onceonly.sinks.sql.texts import lines
from onceonly_proof.embedded.mariadb import DATABASE, PASSWORD, EmbeddedMariaDb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly.sinks.sql.types import Match

pytestmark = pytest.mark.integration

IDS = "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(200))"
_users = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDb]:
    with EmbeddedMariaDb(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


@pytest.fixture
def bench(server: EmbeddedMariaDb, tmp_path: Path) -> Iterator[Bench]:
    server.sql(f"DROP DATABASE {DATABASE}", database=None)
    server.sql(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4", database=None)
    made = Bench(server.url, tmp_path, server.sql, options={"password": PASSWORD})
    yield made
    made.close()


def user(server: EmbeddedMariaDb, *grants: str) -> str:
    """Make a user who may do no more than this; return the url by which it comes."""
    name = f"u{next(_users)}"
    server.sql(f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
    for grant in grants:
        server.sql(f"GRANT {grant} TO {name}@'127.0.0.1'")
    return server.url.replace("onceonly@", f"{name}@")


# ---------------------------------------------------------------------------------------- rows
@pytest.fixture(params=["loaded", "inserted"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By LOAD DATA LOCAL, or where the server does not allow it."""
    if request.param == "inserted":
        monkeypatch.delattr(os, "memfd_create")


def test_rows_are_added_where_no_key_is_named(bench: Bench, way: None) -> None:
    bench.run("CREATE TABLE t (id BIGINT, name TEXT)")
    for number in range(2):
        bench.epoch(rows(id=[1, 2], name=["a", None]), rows(id=[3], name=["c"]), number=number)
    assert sorted(bench.run("SELECT * FROM t")) == sorted([(1, "a"), (2, None), (3, "c")] * 2)


def test_a_row_replaces_the_one_with_its_key_and_others_stay(bench: Bench, way: None) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, note TEXT DEFAULT 'new')")
    bench.run("INSERT INTO t VALUES (1, 'a', 'kept')")
    bench.epoch(rows(id=[1, 2], name=["A", "b"]), key="id")
    bench.epoch(rows(id=[2, 3], name=["B", "c"]), number=1, key="id")
    assert bench.run("SELECT * FROM t") == [(1, "A", "kept"), (2, "B", "new"), (3, "c", "new")]


def test_what_is_staged_by_whom_and_whom_the_books_remember_is_told(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(200))")
    require_told_of_staged_and_remembered(bench)


def test_a_value_that_no_packet_takes_is_found_before_the_decision(bench: Bench, way: None) -> None:
    bench.run("CREATE TABLE t (id BIGINT, raw LONGBLOB)")
    [(before,)] = bench.run("SELECT @@GLOBAL.max_allowed_packet")
    bench.run(f"SET GLOBAL max_allowed_packet = {1 << 20}")
    try:
        for size in (100_000, 400_000, 1_100_000):
            is_taken = size < 1_000_000 or hasattr(os, "memfd_create")  # which comes in many packets
            some = rows(id=[1], raw=[b"\xff" * size])
            facts = bench.check(some)
            handle, refused = bench.stage(some, facts)
            assert not refused
            with nullcontext() if is_taken else pytest.raises(ConfigurationError, match="max_allowed_packet"):
                bench.sink().rehearse([handle], facts)
    finally:
        bench.run(f"SET GLOBAL max_allowed_packet = {before}")


def test_a_key_of_several_columns_and_nothing_else(bench: Bench) -> None:
    bench.run("CREATE TABLE t (a BIGINT, b VARCHAR(10), PRIMARY KEY (b, a))")
    for number in range(2):
        bench.epoch(rows(a=[1, 1], b=["x", "y"]), number=number, key="a,b")
    assert sorted(bench.run("SELECT * FROM t")) == [(1, "x"), (1, "y")]


def test_keys_that_the_server_takes_for_one_are_refused_or_decided_by_their_sequence(bench: Bench) -> None:
    bench.run("CREATE TABLE t (name VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, n BIGINT)")
    some = rows(name=["a", "A"], n=[2, 1])
    facts = bench.check(some, key="name")
    handle, _ = bench.stage(some, facts, key="name")
    with pytest.raises(RecordRefusedError, match="as the table compares them"):
        bench.sink(key="name").rehearse([handle], facts)
    alike = rows(name=["a", "A"], n=[3, 3])
    facts = bench.check(alike, key="name", sequence="n")
    handle, _ = bench.stage(alike, facts, key="name", sequence="n")
    with pytest.raises(RecordRefusedError, match="as the table compares them"):
        bench.sink(key="name", sequence="n").rehearse([handle], facts)
    bench.epoch(some, number=1, key="name", sequence="n")
    assert bench.run("SELECT * FROM t") == [("a", 2)]


@pytest.mark.parametrize("collation", ["utf8mb4_bin", "utf8mb4_nopad_bin"])
def test_a_key_with_a_blank_at_its_end_is_another_one_or_refused(bench: Bench, collation: str) -> None:
    bench.run(f"CREATE TABLE t (name VARCHAR(20) COLLATE {collation} PRIMARY KEY, n BIGINT)")
    bench.options |= {"key": "name"}
    some = rows(name=["a", "a "], n=[1, 2])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    if "nopad" not in collation:
        with pytest.raises(RecordRefusedError, match="as the table compares them"):
            bench.sink().rehearse([handle], facts)
        return
    bench.epoch(some)
    assert bench.run("SELECT * FROM t") == [("a", 1), ("a ", 2)]


def test_a_change_feed_is_applied(bench: Bench, way: None) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(200) NOT NULL)")
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


def test_a_check_of_another_table_is_no_matter(bench: Bench) -> None:
    bench.run("CREATE TABLE other (name JSON, id BIGINT CHECK (id > 5))")
    bench.run("CREATE TABLE t (id BIGINT, name LONGTEXT CHECK (name <> ''))")
    bench.epoch(rows(id=[1], name=["no JSON"]))
    assert bench.run("SELECT * FROM t") == [(1, "no JSON")]
    with pytest.raises(ConfigurationError, match="it takes no nested"):
        bench.check(rows(id=[1], name=pa.array([[1]])))


def test_names_with_quotes_percent_signs_and_letters_of_all_kinds(bench: Bench, way: None) -> None:
    bench.run("CREATE TABLE `a``b%s c` (`100%` BIGINT PRIMARY KEY, `tür``key` TEXT)")
    bench.epoch(rows(**{"100%": [1], "tür`key": ["x"]}), table='"a`b%s c"', key="100%")
    assert bench.run("SELECT * FROM `a``b%s c`") == [(1, "x")]


def test_every_type_comes_out_as_it_went_in(bench: Bench, way: None) -> None:
    zone = dt.UTC
    given: dict[str, tuple[str, pa.Array, list[Any] | None]] = {
        "yes": ("BOOLEAN", pa.array([True, False, None]), [1, 0, None]),
        "small": ("TINYINT", pa.array([-128, 127, None], pa.int8()), [-128, 127, None]),
        "large": ("BIGINT", pa.array([-(2**63), 2**63 - 1, None]), [-(2**63), 2**63 - 1, None]),
        "real": ("FLOAT", pa.array([0.1, -1e30, None], pa.float32()), None),
        "double_": ("DOUBLE", pa.array([0.1, 1.7976931348623157e308, None]), [0.1, 1.7976931348623157e308, None]),
        "exact": (
            "DECIMAL(38,9)", pa.array([Decimal("12345678901234567890.123456789"), Decimal("-0.000000001"), None],
                                      pa.decimal128(38, 9)),
            [Decimal("12345678901234567890.123456789"), Decimal("-0.000000001"), None],
        ),
        "words": (
            "LONGTEXT CHARACTER SET utf8mb4", pa.array(["Ünïcödé ☃ 𝄞", "a\nb\t\"c\" 'd',\\ \\N \0 \r", None]),
            ["Ünïcödé ☃ 𝄞", "a\nb\t\"c\" 'd',\\ \\N \0 \r", None],
        ),
        "raw": ("LONGBLOB", pa.array([bytes(range(256)), b"", None]), [bytes(range(256)), b"", None]),
        "day": (
            "DATE", pa.array([dt.date(1000, 1, 1), dt.date(9999, 12, 31), None]),
            [dt.date(1000, 1, 1), dt.date(9999, 12, 31), None],
        ),
        "local": (
            "DATETIME(6)", pa.array([dt.datetime(2026, 3, 29, 2, 30, 0, 1), dt.datetime(1000, 1, 1), None],  # noqa: DTZ001
                                    pa.timestamp("us")),
            [dt.datetime(2026, 3, 29, 2, 30, 0, 1), dt.datetime(1000, 1, 1), None],  # noqa: DTZ001
        ),
        "instant": (
            "TIMESTAMP(6) NULL", pa.array([dt.datetime(2026, 3, 29, 1, 30, 0, 1, zone), None, None],
                                          pa.timestamp("us", "UTC")),
            [dt.datetime(2026, 3, 29, 1, 30, 0, 1), None, None],  # noqa: DTZ001  read in UTC
        ),
        "tree": ("JSON", pa.array([[1, None], [], None], pa.list_(pa.int64())), ["[1,null]", "[]", None]),
        "nothing": ("LONGTEXT", pa.array([None, None, None], pa.string()), [None, None, None]),
    }  # fmt: skip
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in given.items())
    bench.run(f"CREATE TABLE t ({columns})")
    bench.run("SET GLOBAL time_zone = '+00:00'")
    bench.epoch(rows(**{name: array for name, (_, array, _) in given.items()}))
    for name, (_, array, wanted) in given.items():
        found = [value for (value,) in bench.run(f"SELECT `{name}` FROM t")]  # noqa: S608
        if name == "real":
            assert pa.array(found, pa.float32()).equals(array)
        else:
            assert found == wanted, name
    some = rows(**{name: array for name, (_, array, _) in given.items()})
    assert "tree is kept as JSON" in bench.reads_back(some)
    assert not bench.reads_back(some.drop_columns(["tree"]))


def test_what_is_made_for_a_querys_columns_takes_them(bench: Bench) -> None:
    some = rows(
        op=["c", "c"], id=["k", "K"], yes=[True, None], n=pa.array([1, None], pa.int8()), x=[1.5, None],
        d=pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)), text=["☃", None], raw=[b"\x00", None],
        day=pa.array([dt.date(2026, 1, 1), None]), at=pa.array([0, None], pa.timestamp("us")),
        when=pa.array([10**6, None], pa.timestamp("us", "UTC")), tree=pa.array([[1], None]),
    )  # fmt: skip
    for number in range(2):
        bench.epoch(some, number=number, create="true", key="id", op="op")
    assert bench.run("SELECT id, text FROM t") == [("K", None), ("k", "☃")]
    assert bench.run("SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_NAME = 't'") == [("InnoDB",)]


def test_a_column_that_would_round_numbers_takes_whole_ones_alone(bench: Bench, way: None) -> None:
    bench.run("CREATE TABLE t (x DOUBLE(6,2), y FLOAT(4,1))")
    for column in "xy":
        with pytest.raises(ConfigurationError, match="it takes no float"):
            bench.check(rows(**{column: pa.array([0.125], pa.float32())}))
    most = pa.array([9999, -9999, None, 10_000], pa.int16())
    handle, given_back = bench.stage(rows(x=most), bench.check(rows(x=most)))
    assert [(each.row, each.code) for each in given_back] == [(3, "OUT_OF_RANGE")]
    assert bench.sink().commit(handle) == Committed()
    assert bench.run("SELECT x FROM t") == [(9999.0,), (-9999.0,), (None,)]


# ---------------------------------------------------------------------------------------- rows that are given back
def test_rows_that_the_table_never_takes_are_given_back_each_with_its_reason(bench: Bench) -> None:
    bench.run(
        "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, name VARCHAR(2) NOT NULL, x DOUBLE, d DECIMAL(3,1), "
        "c CHAR(3), e ENUM('a','b'), at DATETIME(3), s TINYTEXT, w TIMESTAMP NULL)"
    )
    some = rows(
        id=pa.array([1, None, -1, 4, 5, 6, 7, 8, 9, 10, 11, 12], pa.int64()),
        name=["a", "b", "c", None, "eee", "f", "g", "h", "i", "j", "k", "l"],
        x=[1.5] * 5 + [float("inf")] + [1.5] * 6,
        d=pa.array([Decimal("99.9")] * 6 + [Decimal("100.0")] + [None] * 5, pa.decimal128(5, 1)),
        c=["a"] * 7 + ["b "] + ["c"] * 4,
        e=["a"] * 8 + ["z"] + ["b"] * 3,
        at=pa.array([0] * 12, pa.timestamp("us")),
        s=["☃" * 85] * 9 + ["☃" * 86] + ["a"] * 2,
        w=pa.array([10**6] * 10 + [0, 2**31 * 10**6], pa.timestamp("us", "UTC")),
    )
    bench.options.update(key="id")
    facts = bench.check(some)
    handle, found = bench.stage(some, facts)
    assert [(each.row, each.code) for each in found] == [
        (1, "NULL_KEY"), (2, "OUT_OF_RANGE"), (3, "NULL"), (4, "TOO_LONG"), (5, "NOT_A_NUMBER"), (6, "OUT_OF_RANGE"),
        (7, "NOT_OF_FORM"), (8, "NOT_OF_FORM"), (9, "TOO_LONG"), (10, "OUT_OF_RANGE"), (11, "OUT_OF_RANGE"),
    ]  # fmt: skip
    driver = bench.sink()
    driver.rehearse([handle], facts)
    assert driver.commit(handle) == Committed()
    assert bench.run("SELECT id FROM t") == [(1,)]


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


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("CREATE TABLE t (id BIGINT CHECK (id > 1), name TEXT)", "CONSTRAINT"),
        ("CREATE TABLE t (id BIGINT UNIQUE, name TEXT)", "Duplicate entry"),
        (
            "CREATE TABLE t (id BIGINT, name TEXT, FOREIGN KEY (id) REFERENCES other (id))",
            "a foreign key constraint fails",
        ),
        ("CREATE TABLE t (id BIGINT, name TEXT CHARACTER SET latin1)", "Incorrect string value"),
        (
            "CREATE TABLE t (id BIGINT, name TEXT) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (1))",
            "no partition",
        ),
    ],
)
def test_what_would_be_refused_is_found_before_the_decision(
    bench: Bench, way: None, table: str, said: str
) -> None:
    bench.run("CREATE TABLE other (id BIGINT PRIMARY KEY)")
    bench.run(table)
    error = refused(bench, rows(id=[1], name=["☃" * 200]), rows(id=[1], name=["b"]))
    assert isinstance(error, RecordRefusedError), error
    assert said.lower() in error.what.lower()


def test_what_a_child_of_another_column_than_the_key_forbids_is_found_before_the_decision(
    bench: Bench,
) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(9), INDEX (name))")
    bench.run("CREATE TABLE child (name VARCHAR(9), FOREIGN KEY (name) REFERENCES t (name))")
    bench.run("INSERT INTO t VALUES (1, 'a')")
    bench.run("INSERT INTO child VALUES ('a')")
    assert "foreign key constraint" in refused(bench, rows(id=[1], name=["c"]), key="id").what
    bench.run("DROP TABLE child")


@pytest.mark.parametrize("charset", ["latin1", "utf8mb3"])
def test_an_epoch_of_letters_that_every_charset_has_is_not_written_twice(
    bench: Bench, charset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run(f"CREATE TABLE t (id BIGINT, name VARCHAR(20) CHARACTER SET {charset})")
    asked: list[bool] = []
    apply = Target.apply

    def noted(self: Target, *some: Any, keep: bool = True, **more: Any) -> None:  # noqa: ANN401  as it is given
        asked.append(keep)
        apply(self, *some, keep=keep, **more)

    monkeypatch.setattr(Target, "apply", noted)
    bench.epoch(rows(id=[1, 2], name=["a", "~\t\\"]))
    assert asked == [True]
    assert bench.run("SELECT * FROM t") == [(1, "a"), (2, "~\t\\")]


def test_every_charset_has_the_letters_of_ascii_but_the_one_that_is_named(bench: Bench) -> None:
    letters = bytes(range(128))
    found: set[str] = set()
    for (charset,) in bench.run("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS"):
        there_and_back = f"CONVERT(CONVERT(_utf8mb4 X'{letters.hex()}' USING {charset}) USING utf8mb4)"
        [(kept,)] = bench.run(f"SELECT HEX({there_and_back})")
        found.update({charset} if bytes.fromhex(kept) != letters else ())
    assert found == {"swe7"}


def test_what_a_trigger_refuses_is_found_before_the_decision(bench: Bench, way: None) -> None:
    bench.run(IDS)
    bench.run(
        "CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not on Fridays'"
    )
    assert "not on Fridays" in refused(bench, rows(id=[1], name=["a"]), key="id").what


@pytest.mark.parametrize("key", ["", "id"])
def test_what_a_trigger_refuses_by_a_number_of_its_own_is_a_row(bench: Bench, way: None, key: str) -> None:
    bench.run(IDS)
    bench.run(
        "CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW SIGNAL SQLSTATE '45000' "
        "SET MYSQL_ERRNO = 30001, MESSAGE_TEXT = 'not on Fridays'"
    )
    error = refused(bench, rows(id=[1], name=["a"]), key=key)
    assert isinstance(error, RecordRefusedError), error
    assert "not on Fridays" in error.what


@pytest.mark.parametrize("row_format", ["COMPACT", "DYNAMIC"])
def test_a_row_that_no_page_has_room_for_is_found_before_the_decision(
    bench: Bench, way: None, row_format: str
) -> None:
    """As tables of older servers may have, and those that were made while innodb_strict_mode was off."""
    count, size, kind = {"COMPACT": (12, 1000, "TEXT"), "DYNAMIC": (50, 60, "VARCHAR(60)")}[row_format]
    names = [f"c{number}" for number in range(count)]
    columns = ", ".join(f"{name} {kind} CHARACTER SET utf8mb4" for name in names)
    [(before,)] = bench.run("SELECT @@GLOBAL.innodb_strict_mode")
    bench.run("SET GLOBAL innodb_strict_mode = 0")
    try:
        bench.run(f"CREATE TABLE t (id BIGINT, {columns}) ENGINE = InnoDB ROW_FORMAT = {row_format}")
    finally:
        bench.run(f"SET GLOBAL innodb_strict_mode = {before}")
    fits = rows(id=[1], **{name: ["short"] for name in names})
    bench.epoch(fits)
    bench.run("DELETE FROM t")
    bench.run("DELETE FROM onceonly_commits")
    error = refused(bench, rows(id=[2], **{name: ["☃" * size] for name in names}))
    assert isinstance(error, RecordRefusedError), error
    assert "Row size too large" in error.what


@pytest.mark.parametrize(
    "setting",
    ["max_error_count = 0", "old_mode = 'NO_DUP_KEY_WARNINGS_WITH_IGNORE'"],
    ids=["no text", "no warning"],
)
@pytest.mark.parametrize("triggers", ["checked", "trusted"])
def test_a_row_that_a_load_leaves_out_without_a_word_is_noticed(
    bench: Bench, setting: str, triggers: str
) -> None:
    bench.run("CREATE TABLE t (id BIGINT, name VARCHAR(20) UNIQUE)")
    variable = setting.partition(" ")[0]
    [(before,)] = bench.run(f"SELECT @@GLOBAL.{variable}")
    bench.run(f"SET GLOBAL {setting}")
    try:
        error = refused(bench, rows(id=[1, 2], name=["a", "a"]), triggers=triggers)
        assert isinstance(error, RecordRefusedError), error
        assert "of 2 rows it has loaded 1" in error.what
        bench.epoch(rows(id=[1, 2], name=["a", "b"]))
    finally:
        bench.run(f"SET GLOBAL {variable} = {before!r}")
    assert bench.run("SELECT * FROM t") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("key", ["", "id"])
def test_no_load_has_so_many_rows_that_a_cluster_would_commit_in_the_midst_of_it(
    bench: Bench, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By wsrep_load_data_splitting, a node of Galera's commits at each 10,000 rows of a statement."""
    bench.run(IDS)
    sizes: list[int] = []

    def counted(batch: pa.RecordBatch, found: Match) -> memoryview:
        sizes.append(batch.num_rows)
        return lines(batch, found)

    monkeypatch.setattr(mysql_loading, "lines", counted)
    bench.epoch(rows(id=list(range(25_001)), name=["x"] * 25_001), key=key)
    assert max(sizes) < 10_000
    assert bench.run("SELECT COUNT(*), MIN(id), MAX(id) FROM t") == [(25_001, 0, 25_000)]


def test_a_value_that_a_load_would_change_is_noticed_where_no_texts_are_kept(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT, name TEXT CHARACTER SET latin1)")
    [(before,)] = bench.run("SELECT @@GLOBAL.max_error_count")
    bench.run("SET GLOBAL max_error_count = 0")
    try:
        error = refused(bench, rows(id=[1], name=["☃"]))
    finally:
        bench.run(f"SET GLOBAL max_error_count = {before}")
    assert isinstance(error, RecordRefusedError), error
    assert "1 warning" in error.what


@pytest.mark.parametrize(
    "unique",
    ["UNIQUE (name(3))", "low VARCHAR(200) AS (LOWER(name)) PERSISTENT UNIQUE"],
    ids=["part", "computed"],
)
def test_a_row_that_would_be_taken_for_another_one_is_found_before_the_decision(
    bench: Bench, unique: str
) -> None:
    bench.run(
        f"CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, {unique})"
    )
    bench.epoch(rows(id=[1], name=["abcX"]), key="id")
    some = rows(id=[2, 3], name=["ABCx" if "low" in unique else "abcY", "other"])
    facts = bench.check(some, key="id")
    handle, _ = bench.stage(some, facts, epoch=1, key="id")
    driver = bench.sink(key="id")
    with pytest.raises(RecordRefusedError, match="id 2 was written, and is not there once"):
        driver.rehearse([handle], facts)
    with pytest.raises(RecordRefusedError, match="id 2 was written, and is not there once"):
        driver.commit(handle)
    assert [row[:2] for row in bench.run("SELECT * FROM t")] == [(1, "abcX")]
    bench.epoch(rows(id=[1, 2], name=["abcZ", "new"]), number=2, key="id")
    assert [row[:2] for row in bench.run("SELECT * FROM t")] == [(1, "abcZ"), (2, "new")]


def test_a_constraint_put_in_after_the_decision_leaves_the_epoch_pending_and_is_named(
    bench: Bench, way: None
) -> None:
    bench.run("CREATE TABLE t (id BIGINT, name TEXT)")
    some = rows(id=[1, 1], name=["a", "b"])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    driver = bench.sink()
    driver.rehearse([handle], facts)
    bench.run("CREATE UNIQUE INDEX once ON t (id)")
    with pytest.raises(RecordRefusedError, match="Duplicate entry"):
        driver.commit(handle)
    assert bench.run("SELECT * FROM t") == []
    bench.run("DROP INDEX once ON t")
    assert driver.commit(handle) == Committed()
    assert len(bench.run("SELECT * FROM t")) == 2


# ---------------------------------------------------------------------------------------- before the first record
@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ("CREATE TABLE other (id BIGINT)", {}, "no table"),
        ("CREATE TABLE t (id BIGINT)", {}, "no column name"),
        ("CREATE TABLE t (id BIGINT, name BIGINT)", {}, "it takes no string"),
        ("CREATE TABLE t (id BIGINT, name BINARY(16))", {}, "it takes no string"),
        ("CREATE TABLE t (id BIGINT, name TEXT, more TEXT NOT NULL)", {}, "no row without more"),
        ("CREATE TABLE t (id BIGINT, name TEXT AS (id))", {}, "the table computes it"),
        ("CREATE TABLE t (id BIGINT, name TEXT)", {"key": "id"}, "no primary key"),
        (
            "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(9) UNIQUE)",
            {"key": "id"},
            "another unique key, name",
        ),
        (
            "CREATE TABLE t (id BIGINT, name TEXT) ENGINE = MyISAM",
            {},
            "engine MyISAM, which has no transactions",
        ),
        ("CREATE TABLE t (id BIGINT, name TEXT) ENGINE = Aria", {}, "engine Aria"),
        ("CREATE VIEW t AS SELECT 1 AS id, 'a' AS name", {}, "is a view"),
        (IDS, {"books": "t"}, "is another table"),
        (IDS, {"table": "elsewhere.t"}, "no table"),
        (IDS, {"password": "wrong"}, "Access denied"),
        (IDS, {"url": "mysql://onceonly@127.0.0.1/a/b"}, "names no database"),
        (IDS, {"url": "mysql://onceonly@127.0.0.1/a?charset=latin1"}, "with charset"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    bench: Bench, table: str, options: dict[str, str], said: str
) -> None:
    bench.run(table)
    with pytest.raises(ConfigurationError, match=said) as raised:
        bench.check(rows(id=[1], name=["a"]), **options)
    assert raised.value.next_step
    assert PASSWORD not in str(raised.value)


def test_another_unique_key_that_the_query_does_not_write_is_no_matter(bench: Bench) -> None:
    bench.run(
        "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, code VARCHAR(9) NOT NULL UNIQUE, n BIGINT)"
    )
    for number in range(2):
        bench.epoch(rows(code=["a", "b"], n=[number, number]), number=number, key="code")
    assert bench.run("SELECT code, n FROM t") == [("a", 1), ("b", 1)]


def test_a_unique_key_of_what_is_not_written_is_refused_where_its_default_could_match(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, more INT NOT NULL DEFAULT 7 UNIQUE)")
    with pytest.raises(ConfigurationError, match="another unique key, more"):
        bench.check(rows(id=[1], name=["a"]), key="id")


def test_who_may_not_write_is_told_which_right_is_missing(bench: Bench, server: EmbeddedMariaDb) -> None:
    bench.run(IDS)
    bench.check(rows(id=[1], name=["a"]))  # it makes the books
    url = user(server, f"SELECT ON {DATABASE}.*", f"INSERT, DELETE ON {DATABASE}.onceonly_commits")
    with pytest.raises(ConfigurationError, match="denied") as raised:
        bench.check(rows(id=[1], name=["a"]), url=url)
    assert "grant the user SELECT, INSERT, UPDATE" in raised.value.next_step


@pytest.mark.parametrize("password", ["dünn", "5 €"])
def test_a_password_may_have_letters_of_all_kinds(
    bench: Bench, server: EmbeddedMariaDb, password: str
) -> None:
    bench.run(IDS)
    url = user(server, f"ALL ON {DATABASE}.*")
    name = url.partition("//")[2].partition("@")[0]
    server.sql(f"SET PASSWORD FOR {name}@'127.0.0.1' = PASSWORD('{password}')")
    bench.options |= {"url": url, "password": password}
    bench.epoch(rows(id=[1], name=["a"]))


def test_rights_on_the_table_and_the_books_are_enough(bench: Bench, server: EmbeddedMariaDb) -> None:
    bench.run(IDS)
    bench.check(rows(id=[1], name=["a"]))  # it makes the books
    url = user(
        server,
        f"SELECT, INSERT, UPDATE ON {DATABASE}.t",
        f"SELECT, INSERT, DELETE ON {DATABASE}.onceonly_commits",
        f"CREATE TEMPORARY TABLES ON {DATABASE}.*",
    )
    bench.epoch(rows(id=[1], name=["a"]), url=url, key="id")
    assert bench.run("SELECT * FROM t") == [(1, "a")]


def test_who_may_not_use_the_books_is_given_the_grant(bench: Bench, server: EmbeddedMariaDb) -> None:
    bench.run(IDS)
    bench.check(rows(id=[1], name=["a"]))  # it makes the books
    # On a database in which it may make tables, it is told that this one is there, and shown nothing of it.
    for rights in ((), (f"SELECT ON {DATABASE}.onceonly_commits",), (f"CREATE ON {DATABASE}.*",)):
        url = user(server, f"SELECT, INSERT, UPDATE ON {DATABASE}.t", *rights)
        with pytest.raises(ConfigurationError) as raised:
            bench.check(rows(id=[1], name=["a"]), url=url)
        grant = raised.value.next_step[raised.value.next_step.index("GRANT SELECT, INSERT, DELETE ON") :]
        server.sql(grant)
        bench.epoch(rows(id=[1], name=["a"]), url=url)
        bench.run("DELETE FROM t")
        bench.run("DELETE FROM onceonly_commits")


def test_what_is_void_needs_no_right_to_update_the_books(bench: Bench, server: EmbeddedMariaDb) -> None:
    bench.run(IDS)
    some = rows(id=[1], name=["a"])
    handle, _ = bench.stage(some, bench.check(some))
    bench.sink().abort(handle)
    url = user(server, f"SELECT, INSERT, DELETE ON {DATABASE}.onceonly_commits")
    for _ in range(2):
        assert isinstance(bench.sink(url=url).commit(handle), Lost)


def test_a_replica_that_takes_no_writes_is_named(bench: Bench, server: EmbeddedMariaDb) -> None:
    bench.run(IDS)
    for _ in range(2):  # the first start would make the books
        server.sql("SET GLOBAL read_only = 1")
        try:
            with pytest.raises(ConfigurationError, match="read-only") as raised:
                bench.check(rows(id=[1], name=["a"]))
        finally:
            server.sql("SET GLOBAL read_only = 0")
        assert "not a replica" in raised.value.next_step
        bench.check(rows(id=[1], name=["a"]))


def test_a_server_that_allows_no_load_is_written_to_all_the_same(
    bench: Bench, server: EmbeddedMariaDb
) -> None:
    bench.run(IDS)
    server.sql("SET GLOBAL local_infile = 0")
    try:
        bench.epoch(rows(id=[1], name=["☃"]), key="id")
    finally:
        server.sql("SET GLOBAL local_infile = 1")
    assert len(bench.run("SELECT * FROM t")) == 1


def test_what_the_server_was_told_of_modes_and_zones_does_not_matter(
    bench: Bench, server: EmbeddedMariaDb
) -> None:
    bench.run("CREATE TABLE t (id BIGINT, n TINYINT, `when` TIMESTAMP(6) NULL)")
    server.sql("SET GLOBAL sql_mode = '', GLOBAL time_zone = '+05:00'")
    try:
        bench.epoch(
            rows(id=[0], n=pa.array([1], pa.int8()), when=pa.array([10**6], pa.timestamp("us", "UTC")))
        )
    finally:
        server.sql("SET GLOBAL sql_mode = DEFAULT, GLOBAL time_zone = '+00:00'")
    assert bench.run("SELECT id, UNIX_TIMESTAMP(`when`) FROM t") == [(0, 1)]


@pytest.mark.parametrize("setting", ["innodb_force_primary_key", "sql_safe_updates"])
def test_a_server_that_asks_more_of_statements_takes_a_change_feed(
    bench: Bench, server: EmbeddedMariaDb, setting: str
) -> None:
    bench.run(IDS)
    server.sql(f"SET GLOBAL {setting} = 1")
    try:
        bench.options.update(key="id", op="op")
        bench.epoch(rows(op=["c", "c"], id=[1, 2], name=["a", "b"]))
        bench.epoch(rows(op=["d"], id=[1], name=pa.array([None], pa.string())), number=1)
    finally:
        server.sql(f"SET GLOBAL {setting} = 0")
    assert bench.run("SELECT * FROM t") == [(2, "b")]


def test_a_day_0_that_a_table_has_by_default_is_the_tables_own(bench: Bench, way: None) -> None:
    bench.run(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, day DATE NOT NULL DEFAULT '0000-00-00', "
        "at DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00')"
    )
    bench.epoch(rows(id=[1, 2], name=["a", "b"]))
    bench.epoch(rows(id=[2], name=["B"]), number=1, key="id")
    first = dt.date(1, 1, 1)
    bench.epoch(rows(id=[3], name=["c"], day=[first], op=["c"]), number=2, key="id", op="op")
    found = bench.run("SELECT id, name, day = '0000-00-00', at = '0000-00-00 00:00:00' FROM t ORDER BY id")
    assert found == [(1, "a", 1, 1), (2, "B", 1, 1), (3, "c", 0, 1)]
    assert bench.run("SELECT CAST(day AS CHAR) FROM t WHERE id = 3") == [(str(first),)]


def test_a_server_that_is_down_is_waited_for_and_one_that_comes_back_is_asked_again(
    bench: Bench, server: EmbeddedMariaDb
) -> None:
    bench.run(IDS)
    some = rows(id=[1], name=["a"])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    driver = bench.sink()
    driver.rehearse([handle], facts)
    server.kill()
    with pytest.raises(UnavailableError) as raised:
        driver.commit(handle)
    assert "Traceback" not in raised.value.what
    server.start()
    assert driver.commit(handle) == Committed()
    server.kill()
    server.start()
    assert driver.commit(handle) == AlreadyCommitted()


@pytest.mark.parametrize("key", ["", "id"])
def test_the_rows_that_a_table_refuses_beside_all_others_are_named(bench: Bench, key: str) -> None:
    require_sifted(bench, key)


def test_a_row_that_refers_to_a_later_one_is_refused_as_the_server_looks_at_them_one_by_one(
    bench: Bench,
) -> None:
    table = "CREATE TABLE t (id BIGINT PRIMARY KEY, parent BIGINT, FOREIGN KEY (parent) REFERENCES t (id))"
    require_refers_to_later_rows(bench, table, refused=(0, 1, 3))
