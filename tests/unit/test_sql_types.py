"""Values come out of a table as they went in, or are refused: never made others. SQLite here; servers elsewhere."""

from __future__ import annotations

import datetime as dt
import decimal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit import unreadable
from tests.unit.sql_bench import Bench, columns_of, rows

from onceonly.errors import ConfigurationError
from onceonly.model import Committed
from onceonly.rows.checksum import RowChecksum
from onceonly.sinks.sql.shape import json_text
from onceonly.sinks.sql.types import Column, Given, of_arrow, of_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


@pytest.mark.parametrize(
    ("spark", "arrow"),
    [
        ("boolean", pa.bool_()),
        ("tinyint", pa.int8()),
        ("smallint", pa.int16()),
        ("int", pa.int32()),
        ("bigint", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("string", pa.string()),
        ("string", pa.large_string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "Europe/Paris")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("array<int>", pa.list_(pa.int32())),
        ("map<string,int>", pa.map_(pa.string(), pa.int32())),
        ("struct<a:int>", pa.struct([("a", pa.int32())])),
    ],
)
def test_spark_and_arrow_mean_the_same_types(spark: str, arrow: pa.DataType) -> None:
    assert of_spark(spark) == of_arrow(arrow)
    shown = str(of_arrow(arrow))
    assert shown == ("nested" if "<" in spark else spark)


@pytest.mark.parametrize("name", ["void", "variant", "interval day to second", "time(6)", "geometry(0)"])
def test_another_type_is_taken_by_no_column_and_named(name: str) -> None:
    column = Column(name="c", declared="any", takes=("text", "int", "nested"))
    assert column.against(of_spark(name)) == f"it takes no {name}"


@pytest.mark.parametrize("name", ["varchar(10)", "char(3)", "string collate UNICODE_CI"])
def test_texts_of_other_names_are_texts(name: str) -> None:
    assert of_spark(name) == Given("text")


NOW = dt.datetime(2026, 11, 27, 16, 30, 0, 123456, tzinfo=dt.UTC)
VALUES = [
    ("BIGINT", pa.array([-(2**63), 2**63 - 1, None], pa.int64()), None),
    ("INTEGER", pa.array([True, False, None]), [1, 0, None]),
    ("BOOLEAN", pa.array([True, False, None]), [1, 0, None]),
    ("DOUBLE", pa.array([0.1, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), None]), None),
    ("REAL", pa.array([0.1, None], pa.float32()), None),
    ("REAL", pa.array([2**31 - 1, None], pa.int32()), None),
    ("TEXT", pa.array(["", "01", "a\0b", "☃𝄞", "x" * 100_000, None]), None),
    ("VARCHAR(3)", pa.array(["longer than that"]), None),
    ("BLOB", pa.array([b"", b"\0\xff", None]), None),
    ("", pa.array(["01", "1e3", None]), None),
    ("", pa.array([b"01"]), None),
    (
        "TEXT",
        pa.array([decimal.Decimal("0.0000001"), decimal.Decimal("-12345678901.50"), None], pa.decimal128(38, 7)),
        ["0.0000001", "-12345678901.5000000", None],
    ),
    ("DATE", pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]), ["0001-01-01", "9999-12-31", None]),
    (
        "TIMESTAMP",
        pa.array([NOW, None], pa.timestamp("us", "UTC")),
        ["2026-11-27 16:30:00.123456+00:00", None],
    ),
    (
        "TEXT",
        pa.array([NOW.replace(tzinfo=None), dt.datetime(1, 1, 1), None], pa.timestamp("us")),  # noqa: DTZ001  without
        ["2026-11-27 16:30:00.123456", "0001-01-01 00:00:00.000000", None],
    ),
    (
        "JSON",
        pa.array([{"a": [1, None]}, None], pa.struct([("a", pa.list_(pa.int32()))])),
        ['{"a":[1,null]}', None],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "values", "read"), VALUES)
def test_a_value_comes_out_as_it_went_in(
    bench: Bench, declared: str, values: pa.Array, read: list[object] | None
) -> None:
    bench.run(f"CREATE TABLE t (c {declared})")
    bench.epoch(rows(c=values))
    found = [value for (value,) in bench.run("SELECT c FROM t ORDER BY rowid")]
    wanted = values.to_pylist() if read is None else read
    assert found == wanted
    assert list(map(type, found)) == list(map(type, wanted)) or declared in {"REAL", "INTEGER"}
    unread = {"JSON": "is kept as JSON", "DOUBLE": "has a zero, whose sign is not kept"}.get(declared, "")
    told = bench.reads_back(rows(c=values))
    assert (bool(told), unread in told) == (bool(unread), True)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (pa.array([b"ok", b"\xff\xfe", None]).cast(pa.binary()).view(pa.string()), "NOT_UTF8"),
        (pa.array([0, 10**9, None], pa.int32()).cast(pa.date32()), "OUT_OF_RANGE"),
        (pa.array([0, 10**18, None], pa.int64()).cast(pa.timestamp("us")), "OUT_OF_RANGE"),
    ],
)
def test_a_value_that_nobody_could_read_is_given_back(bench: Bench, values: pa.Array, code: str) -> None:
    bench.run("CREATE TABLE t (c TEXT)")
    facts = bench.check(rows(c=values))
    handle, refused = bench.stage(rows(c=values), facts)
    assert [(each.row, each.code) for each in refused] == [(1, code)]
    bench.sink().commit(handle)
    assert len(bench.run("SELECT * FROM t")) == 2


@pytest.mark.parametrize("what", ["a text in a list", "a day in a list"])
def test_a_value_inside_of_others_that_nobody_could_read_is_given_back(bench: Bench, what: str) -> None:
    bench.run("CREATE TABLE t (c JSON)")
    _, column, code = unreadable.COLUMNS[what]
    handle, refused = bench.stage(rows(c=column), bench.check(rows(c=column)))
    assert [(each.row, each.code) for each in refused] == [(1, code)]
    bench.sink().commit(handle)
    assert len(bench.run("SELECT * FROM t")) == 1


@pytest.mark.parametrize("what", ["a text in a list", "a day in a list"])
def test_of_a_deletion_nothing_but_its_key_is_read(bench: Bench, what: str) -> None:
    bench.run("CREATE TABLE t (id INTEGER PRIMARY KEY, c JSON)")
    bench.run("INSERT INTO t VALUES (1, '[]'), (2, '[]')")
    column = unreadable.COLUMNS[what][1]
    some = rows(id=[1, 2], c=column, op=["u", "d"])
    handle, refused = bench.stage(some, bench.check(some, key="id", op="op"), key="id", op="op")
    assert refused == []
    assert bench.sink(key="id", op="op").commit(handle) == Committed()
    assert [key for key, _ in bench.run("SELECT id, c FROM t")] == [1]


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        ("NUMERIC", pa.array(["01"])),
        ("INTEGER", pa.array([1.5])),
        ("INTEGER", pa.array(["1"])),
        ("REAL", pa.array([1], pa.int64())),
        ("DECIMAL(10,2)", pa.array([decimal.Decimal("0.10")])),
        ("REAL", pa.array([decimal.Decimal("0.10")])),
        ("TEXT", pa.array([b"a"])),
        ("TEXT", pa.array([[1]])),
        ("BLOB", pa.array(["a"])),
        ("DATE", pa.array([0], pa.timestamp("us"))),
        ("TIMESTAMP", pa.array([0], pa.int32()).cast(pa.date32())),
        ("JSON", pa.array(["1"])),
    ],
)
def test_what_sqlite_would_make_another_value_is_refused_by_name(
    bench: Bench, declared: str, values: pa.Array
) -> None:
    bench.run(f"CREATE TABLE t (c {declared})")
    with pytest.raises(ConfigurationError, match="its column c is") as raised:
        bench.check(rows(c=values))
    assert raised.value.next_step


def test_json_says_what_sparks_to_json_says() -> None:
    kind = pa.struct(
        [
            ("n", pa.float64()), ("d", pa.decimal128(5, 2)), ("b", pa.binary()), ("t", pa.timestamp("us", "UTC")),
            ("m", pa.map_(pa.int32(), pa.list_(pa.date32()))), ("s", pa.string()),
        ]
    )  # fmt: skip
    value = {
        "n": float("nan"), "d": decimal.Decimal("1.50"), "b": b"\0", "t": NOW, "m": [(1, [dt.date(2026, 1, 1)])],
        "s": 'a"☃',
    }  # fmt: skip
    assert json_text(value, kind) == (
        '{"n":"NaN","d":1.50,"b":"AA==","t":"2026-11-27T16:30:00.123456+00:00","m":{"1":["2026-01-01"]},"s":"a\\"☃"}'
    )
    assert json_text(None, kind) is None


@pytest.mark.parametrize(
    ("declared", "values", "changed"),
    [
        ("BOOLEAN", pa.array([True, False]), "2"),
        ("BIGINT", pa.array([1, 2], pa.int8()), "1000"),
        ("BIGINT", pa.array([1, 2], pa.int64()), "1.5"),
        ("BIGINT", pa.array([1, 2], pa.int64()), "'x'"),
        ("BIGINT", pa.array([1, 2], pa.int64()), "NULL"),
        ("REAL", pa.array([0.5, 2.5], pa.float32()), "0.1"),
        ("REAL", pa.array([0.5, 2.5]), "x'00'"),
        ("TEXT", pa.array(["a", "b"]), "x'61'"),
        ("TEXT", pa.array([decimal.Decimal("1.50"), None], pa.decimal128(5, 2)), "'1.505'"),
        ("TEXT", pa.array([decimal.Decimal("1.50"), None], pa.decimal128(5, 2)), "'much'"),
        ("DATE", pa.array([dt.date(2026, 1, 1), None]), "'2026-01-02'"),
        ("BLOB", pa.array([b"a", b"b"]), "x'62'"),
    ],
)
def test_a_value_that_was_changed_is_found_whatever_it_is_made(
    bench: Bench, declared: str, values: pa.Array, changed: str
) -> None:
    bench.run(f"CREATE TABLE t (c {declared})")
    some = rows(c=values)
    bench.epoch(some)
    assert not bench.reads_back(some)
    bench.run(f"UPDATE t SET c = {changed} WHERE rowid = 1")  # noqa: S608  ours
    held = bench.sink().read_back(bench.context(columns_of(some.schema)), ())
    total = RowChecksum()
    total.add(some)
    assert held is not None
    assert (held.rows, held.unread) == (2, "")
    assert held.wrong or (held.checksum and held.checksum != total.value)


def test_what_a_trigger_writes_or_no_column_keeps_is_no_change(bench: Bench) -> None:
    bench.run("CREATE TABLE t (c TEXT, d DATE)")
    bench.run(
        "CREATE TRIGGER capitals AFTER INSERT ON t BEGIN UPDATE t SET c = upper(c) WHERE rowid = new.rowid; END"
    )
    some = rows(c=["a"])
    bench.epoch(some)
    assert bench.reads_back(some) == "the trigger capitals may have changed what was written"
    assert not bench.reads_back(rows(c=["A"])), "what is the same is the same all the same"
    bench.run("DROP TRIGGER capitals")
    bench.run("UPDATE t SET d = 'some day'")
    told = bench.reads_back(rows(d=pa.array([None], pa.date32())))
    assert told == "its column d has a time that cannot be read"


def test_a_table_that_has_lost_a_column_is_said_to_be_another(bench: Bench) -> None:
    bench.run("CREATE TABLE t (c TEXT, d TEXT)")
    some = rows(c=["a"], d=["b"])
    bench.epoch(some)
    bench.run("ALTER TABLE t DROP COLUMN d")
    with pytest.raises(ConfigurationError, match="no column d"):
        bench.sink().read_back(bench.context(columns_of(some.schema)), ())
