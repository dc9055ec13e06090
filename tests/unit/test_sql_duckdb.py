"""The SQL sinks on DuckDB: the conformance suite, types, rehearsals, and a file that one process has at a time."""

from __future__ import annotations

import datetime as dt
import decimal
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from tests.unit.sql_bench import Bench, require_sifted, rows

from onceonly.background import begin
from onceonly.errors import ConfigurationError, RecordRefusedError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed
from onceonly.sinks.sql import DuckdbSink
from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def ask(path: Path | str, sql: str) -> list[Any]:
    """Ask the file itself, as soon as nobody else has it."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with closing(duckdb.connect(str(path))) as db:
                return list(db.execute(sql).fetchall())
        except duckdb.IOException:
            assert time.monotonic() < deadline
            time.sleep(0.002)


@pytest.mark.long
class TestDuckdb(SinkConformance):
    sink = DuckdbSink
    every_pass = False

    def options(self, folder: Path) -> dict[str, str]:
        database = folder / "results.db"
        ask(database, "CREATE TABLE results (key VARCHAR NOT NULL, value VARCHAR)")
        return {"url": f"duckdb:///{database}", "table": "results", "staging": str(folder / "staging")}

    def visible(self, options: Mapping[str, str]) -> list[tuple[str, str]]:
        return ask(database_of(options), "SELECT key, value FROM results")

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [str(path) for path in Path(options["staging"]).rglob("*") if path.is_file()]

    def refusable(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": [None, None], "value": ["without", "a key"]})

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        database = database_of(options)
        aside = database.rename(database.with_name("aside"))
        yield
        aside.rename(database)


def database_of(options: Mapping[str, str]) -> Path:
    return Path(options["url"].removeprefix("duckdb:///"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "r.db"
    ask(path, "SELECT 1")
    made = Bench(f"duckdb:///{path}", tmp_path, lambda sql: ask(path, sql))
    yield made
    made.close()


def test_rows_are_added_replaced_and_deleted(bench: Bench) -> None:
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
    bench.epoch(rows(id=[1, 2], name=["a", "b"]), rows(id=[3], name=["c"]))
    bench.options.update(key="id", op="op", sequence="n")
    bench.epoch(
        rows(op=["U", "d", "c", "d", "-U"], n=[1, 2, 3, 4, 5], id=[1, 2, 4, 4, 3], name=["A", None, "d", None, "x"]),
        number=1,
    )  # fmt: skip
    assert bench.run("SELECT * FROM t ORDER BY id") == [(1, "A"), (3, "c")]


def test_a_schema_and_a_unique_index_are_found(bench: Bench) -> None:
    bench.run("CREATE SCHEMA s")
    bench.run("CREATE TABLE s.t (a BIGINT, b VARCHAR, c VARCHAR)")
    bench.run("CREATE UNIQUE INDEX i ON s.t (a, b)")
    for number in range(2):
        bench.epoch(rows(a=[1, 2], b=["x", "y"], c=["c", str(number)]), number=number, table="s.t", key="b,a")
    assert bench.run("SELECT * FROM s.t ORDER BY a") == [(1, "x", "c"), (2, "y", "1")]
    assert bench.run("SELECT count(*) FROM s.onceonly_commits WHERE void = 0") == [(2,)]


NOW = dt.datetime(2026, 11, 27, 16, 30, 0, 123456, tzinfo=dt.UTC)
PLAIN = NOW.replace(tzinfo=None)
VALUES = [
    ("TINYINT", pa.array([-128, 127, None], pa.int8())),
    ("BIGINT", pa.array([-(2**63), 2**63 - 1, None], pa.int64())),
    ("HUGEINT", pa.array([-(2**63), None], pa.int64())),
    ("DOUBLE", pa.array([0.1, 5e-324, float("inf"), None])),
    ("DOUBLE", pa.array([0.1], pa.float32())),
    ("FLOAT", pa.array([0.1], pa.float32())),
    ("DECIMAL(38,10)", pa.array([decimal.Decimal("0.0000000001"), None], pa.decimal128(20, 10))),
    ("DECIMAL(10,2)", pa.array([decimal.Decimal("1.5"), None], pa.decimal128(5, 1))),
    ("BOOLEAN", pa.array([True, False, None])),
    ("VARCHAR", pa.array(["", "a\0b", "☃𝄞", None])),
    ("BLOB", pa.array([b"", b"\0\xff", None])),
    ("DATE", pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None])),
    ("TIMESTAMP", pa.array([PLAIN, None], pa.timestamp("us"))),
    ("UUID", pa.array(["6f1b8e0e-30d6-4f43-a1ab-0c4eae4ac2c9", None])),
    ("JSON", pa.array([{"a": [1, None]}, None], pa.struct([("a", pa.list_(pa.int32()))]))),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "values"), VALUES)
def test_a_value_comes_out_as_it_went_in(bench: Bench, declared: str, values: pa.Array) -> None:
    bench.run(f"CREATE TABLE t (n BIGINT, c {declared})")
    bench.epoch(rows(n=pa.array(range(len(values)), pa.int64()), c=values))
    found = [value for (value,) in bench.run("SELECT c FROM t ORDER BY n")]
    wanted = values.to_pylist()
    if declared == "JSON":
        wanted = ['{"a":[1,null]}', None]
    assert found == wanted or [str(value) for value in found] == [str(value) for value in wanted]
    told = bench.reads_back(rows(n=pa.array(range(len(values)), pa.int64()), c=values))
    assert bool(told) == (declared in {"JSON", "UUID"}), told


def test_a_time_with_a_zone_is_the_same_instant(bench: Bench) -> None:
    bench.run("CREATE TABLE t (c TIMESTAMPTZ)")
    bench.epoch(rows(c=pa.array([NOW], pa.timestamp("us", "UTC"))))
    assert bench.run("SELECT epoch_us(c) FROM t") == [(round(NOW.timestamp() * 10**6),)]
    assert not bench.reads_back(rows(c=pa.array([NOW], pa.timestamp("us", "UTC"))))


@pytest.mark.parametrize(
    ("declared", "values", "code"),
    [
        ("SMALLINT", pa.array([1, 2**15], pa.int32()), "OUT_OF_RANGE"),
        ("UTINYINT", pa.array([1, -1], pa.int32()), "OUT_OF_RANGE"),
        (
            "DECIMAL(4,2)",
            pa.array([decimal.Decimal(1), decimal.Decimal(100)], pa.decimal128(5, 1)),
            "OUT_OF_RANGE",
        ),
        ("TIMESTAMP_S", pa.array([10**6, 1], pa.timestamp("us")), "TOO_FINE"),
        ("UUID", pa.array(["6f1b8e0e-30d6-4f43-a1ab-0c4eae4ac2c9", "x"]), "NOT_OF_FORM"),
    ],
)
def test_a_value_that_the_column_would_not_keep_is_given_back(
    bench: Bench, declared: str, values: pa.Array, code: str
) -> None:
    bench.run(f"CREATE TABLE t (c {declared})")
    facts = bench.check(rows(c=values))
    handle, refused = bench.stage(rows(c=values), facts)
    assert [(each.row, each.code) for each in refused] == [(1, code)]
    assert bench.sink().commit(handle) == Committed()


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("DECIMAL(10,2)", pa.float64()), ("BIGINT", pa.float64()), ("BIGINT", pa.string()), ("VARCHAR", pa.int64()),
        ("TIMESTAMP", pa.timestamp("us", "UTC")), ("TIMESTAMPTZ", pa.timestamp("us")), ("INTEGER[]", pa.list_(pa.int32())),  # noqa: E501
        ("INTERVAL", pa.string()), ("FLOAT", pa.float64()),
    ],
)  # fmt: skip
def test_a_type_that_the_column_would_make_another_is_refused_by_name(
    bench: Bench, declared: str, kind: pa.DataType
) -> None:
    bench.run(f"CREATE TABLE t (c {declared})")
    with pytest.raises(ConfigurationError, match="its column c is"):
        bench.check(rows(c=pa.array([], kind)))


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE t (id BIGINT CHECK (id > 1), name VARCHAR)",
        "CREATE TABLE t (id BIGINT UNIQUE, name VARCHAR)",
        "CREATE TABLE t (id BIGINT REFERENCES o (id), name VARCHAR)",
        "CREATE TABLE t (id BIGINT, name ENUM ('x'))",
    ],
)
def test_what_a_constraint_refuses_is_found_before_the_decision(bench: Bench, table: str) -> None:
    bench.run("CREATE TABLE o (id BIGINT PRIMARY KEY)")
    bench.run(table)
    slots = rows(id=[1], name=["a"]), rows(id=[1], name=["b"])
    facts = bench.check(slots[0])
    handles = [bench.stage(each, facts, slot=slot)[0] for slot, each in enumerate(slots)]
    with pytest.raises(RecordRefusedError):
        bench.sink().rehearse(handles, facts)
    assert bench.run("SELECT * FROM t") == []


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"id": [1], "name": ["a"], "op": ["d"]}, {"op": "op"}),
        ({"id": [1], "name": ["b"]}, {}),
    ],
)
@pytest.mark.parametrize("table", ["t", 's."T 1"'])
def test_what_a_child_table_forbids_is_found_before_the_decision(
    bench: Bench, table: str, row: dict[str, Any], options: dict[str, str]
) -> None:
    bench.run("CREATE SCHEMA s")
    bench.run(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, name VARCHAR)")
    # A column of an index is not changed in place.
    bench.run(f"CREATE INDEX i ON {table}(name)")
    child = "s.child" if "." in table else "child"
    bench.run(f"CREATE TABLE {child} (parent BIGINT REFERENCES {table}(id))")
    bench.options |= {"table": table, "key": "id"}
    bench.epoch(rows(id=[1, 2], name=["a", "b"]))
    bench.run(f"INSERT INTO {child} VALUES (1)")  # noqa: S608
    bench.options |= options
    some = rows(**row)
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts, epoch=1)
    with pytest.raises(RecordRefusedError, match="foreign key"):
        bench.sink().rehearse([handle], facts)


def test_keys_that_a_collation_takes_for_one_and_a_unique_index_for_two_lose_no_row(bench: Bench) -> None:
    bench.run('CREATE TABLE t (n BIGINT, "name" VARCHAR COLLATE NOCASE PRIMARY KEY)')
    some = rows(name=["a", "A"], n=[1, 2])
    for key in ("name", "NAME"):
        with pytest.raises(ConfigurationError, match="finds other keys"):
            bench.epoch(some, key=key, sequence="n")
    bench.epoch(some)  # that adds rows alone
    assert bench.run("SELECT name FROM t ORDER BY n") == [("a",), ("A",)]


def test_a_collation_of_another_column_than_the_key_is_none_of_the_keys(bench: Bench) -> None:
    bench.run('CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR COLLATE NOCASE, "collate" VARCHAR)')
    for name in ("a", "A"):
        bench.epoch(rows(id=[1], name=[name], collate=["x"]), key="id")
    assert bench.run("SELECT name FROM t") == [("A",)]


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ("CREATE TABLE o (id BIGINT)", {}, "no table"),
        ("CREATE TABLE t (id BIGINT, name VARCHAR, more VARCHAR NOT NULL)", {}, "no row without more"),
        ("CREATE TABLE t (id BIGINT, name VARCHAR GENERATED ALWAYS AS ('x') VIRTUAL)", {}, "generated"),
        ("CREATE VIEW t AS SELECT 1::BIGINT AS id, 'a' AS name", {}, "is a view"),
        ("CREATE TABLE t (id BIGINT, name VARCHAR)", {"key": "id"}, "no primary key"),
        ("CREATE TABLE t (id BIGINT, name VARCHAR)", {"url": "duckdb:////none/r.db"}, "no file"),
        ("CREATE TABLE t (id BIGINT, name VARCHAR)", {"url": "duckdb:///r.db"}, "whole path"),
        ("CREATE TABLE t (id BIGINT, name VARCHAR)", {"password": "p"}, "no passwords"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    bench: Bench, table: str, options: dict[str, str], said: str
) -> None:
    bench.run(table)
    with pytest.raises(ConfigurationError, match=said) as raised:
        bench.check(rows(id=[1], name=["a"]), **options)
    assert raised.value.next_step


def test_a_table_is_made_where_the_option_says_so(bench: Bench) -> None:
    some = rows(id=[1], name=["a"], d=pa.array([decimal.Decimal("1.5")], pa.decimal128(5, 2)))
    bench.epoch(some, create="true", key="id")
    assert bench.run("SELECT * FROM t") == [(1, "a", decimal.Decimal("1.50"))]


def test_of_a_file_in_a_folder_that_is_not_there_the_folder_is_named(bench: Bench) -> None:
    url = f"duckdb:///{bench.folder}/no/new.db"
    with pytest.raises(ConfigurationError, match=f"there is no folder {bench.folder}/no "):
        bench.check(rows(id=[1]), url=url, create="true")


@contextmanager
def held(path: Path, *, reads: bool, by: str) -> Iterator[tuple[Callable[[], object], str]]:
    """Have the file open elsewhere; give what closes it there, and who has it."""
    if by == "this process":
        # A connection that writes, too, is shared within a process, and keeps nobody out.
        other = duckdb.connect(str(path), read_only=True)
        yield other.close, "this process, to read alone"
        other.close()
        return
    code = f"import duckdb; db = duckdb.connect({str(path)!r}, read_only={reads}); print('has it', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline()
        yield process.stdin.close, f"(PID {process.pid})"


@pytest.mark.parametrize(
    ("reads", "by"), [(True, "another process"), (False, "another process"), (True, "this process")]
)
def test_a_file_that_somebody_has_open_is_waited_for_and_who_has_it_is_named(
    bench: Bench, tmp_path: Path, reads: bool, by: str  # noqa: FBT001
) -> None:  # fmt: skip
    bench.run("CREATE TABLE t (id BIGINT)")
    facts = bench.check(rows(id=[1]))
    handle, _ = bench.stage(rows(id=[1]), facts)
    with held(tmp_path / "r.db", reads=reads, by=by) as (close, who):
        hasty, patient = bench.sink(**{"connect.timeout": "50ms"}), bench.sink()
        for ask in (
            lambda: hasty.commit(handle),
            lambda: hasty.rehearse([handle], facts),
            lambda: hasty.refresh(facts),
            lambda: bench.check(rows(id=[1]), **{"connect.timeout": "50ms"}),
        ):
            with pytest.raises(UnavailableError) as raised:
                ask()
            assert f"duckdb:///{tmp_path}/r.db is open in " in raised.value.what
            assert who in raised.value.what
            assert "parameter" not in raised.value.what  # what DuckDB itself advises is of no use to a writer
            assert raised.value.next_step.startswith("close it there; nothing is lost until then")
        committing = begin("commit", lambda: patient.commit(handle))
        time.sleep(0.1)
        assert not committing.done()
        close()
        assert committing.result(20) == Committed()
    assert hasty.commit(handle) == AlreadyCommitted()
    assert bench.run("SELECT * FROM t") == [(1,)]


def test_a_disk_that_is_full_leaves_the_epoch_pending_until_there_is_room(
    bench: Bench, tmp_path: Path
) -> None:
    bench.run("CREATE TABLE t (id BIGINT)")
    facts = bench.check(rows(id=[1]))
    handle, _ = bench.stage(rows(id=[1]), facts)
    driver = bench.sink()
    driver.rehearse([handle], facts)
    log = tmp_path / "r.db.wal"
    log.symlink_to("/dev/full")
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"the disk of .* is full: .*No space left") as raised:
            driver.commit(handle)
        assert "make room" in raised.value.next_step
        assert (
            bench.run("SELECT * FROM t") == bench.run("SELECT * FROM onceonly_commits WHERE void = 0") == []
        )
    log.unlink()
    assert driver.commit(handle) == Committed()
    assert driver.commit(handle) == AlreadyCommitted()
    assert bench.run("SELECT * FROM t") == [(1,)]


@pytest.mark.parametrize(
    ("missing", "kind"), [("python_arrow_scan", UnavailableError), ("read_nothing", ConfigurationError)]
)
def test_what_the_client_itself_did_not_find_is_nobodys_mistake(
    bench: Bench, missing: str, kind: type[Exception]
) -> None:
    # In these words, of DuckDB 2.0, it ended a query once; another try opens the file anew.
    error = duckdb.CatalogException(f"Catalog Error: Table Function with name {missing} does not exist!")
    assert type(bench.sink()._target.sql.told(error)) is kind


@pytest.mark.parametrize("key", ["", "id"])
def test_the_rows_that_a_table_refuses_beside_all_others_are_named(bench: Bench, key: str) -> None:
    require_sifted(bench, key)
