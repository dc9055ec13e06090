"""Values come out of PostgreSQL as they went in, or are refused: never made others."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres_databases import ask, database
from tests.unit.sql_bench import Bench, rows

from onceonly.errors import ConfigurationError
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


UTC = dt.UTC
_texts = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20
) | st.sampled_from(["", "\\N", "\\", "\t\n\r\\.", '"', "NULL", "☃𝄞"])
_times = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999))  # noqa: DTZ001
TYPES: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any]]] = {
    "smallint": ("smallint", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "tinyint into integer": ("integer", pa.int8(), st.integers(-128, 127)),
    "int": ("integer", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "bigint": ("bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "bigint into numeric": ("numeric", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "real": ("real", pa.float32(), st.floats(width=32, allow_nan=False)),
    "float into double": ("double precision", pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": ("double precision", pa.float64(), st.floats(allow_nan=False)),
    "int into double": ("double precision", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "numeric": (
        "numeric(38,10)", pa.decimal128(38, 10),
        st.decimals(places=10, min_value=-(10**27), max_value=10**27, allow_nan=False),
    ),
    "decimal into any numeric": (
        "numeric", pa.decimal128(38, 30), st.decimals(places=30, min_value=-(10**7), max_value=10**7, allow_nan=False)
    ),
    "boolean": ("boolean", pa.bool_(), st.booleans()),
    "text": ("text", pa.string(), _texts),
    "varchar": ("varchar(20)", pa.large_string(), _texts),
    "bytea": ("bytea", pa.binary(), st.binary(max_size=20)),
    "date": ("date", pa.date32(), st.dates()),
    "timestamp": ("timestamp", pa.timestamp("us"), _times),
    "timestamptz": ("timestamptz", pa.timestamp("us", "UTC"), _times.map(lambda at: at.replace(tzinfo=UTC))),
    "in another zone": (
        "timestamptz", pa.timestamp("us", "Asia/Tokyo"), _times.map(lambda at: at.replace(tzinfo=UTC))
    ),
    "uuid": ("uuid", pa.string(), st.uuids().map(str)),
    "jsonb": (
        "jsonb", pa.struct([("a", pa.list_(pa.int64())), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3), "b": _texts}),
    ),
}  # fmt: skip
_numbers = iter(range(10**6))


@pytest.mark.parametrize("name", TYPES)
def test_values_come_out_as_they_went_in(postgres: EmbeddedPostgres, tmp_path: Path, name: str) -> None:
    declared, kind, values = TYPES[name]
    url = database(postgres)
    ask(url, f"CREATE TABLE t (n bigint, c {declared})")
    with closing(Bench(url, tmp_path, lambda sql: ask(url, sql))) as bench:
        empty = rows(n=pa.array([], pa.int64()), c=pa.array([], kind))
        # Spark's own times are in the session's zone.
        facts_kind = pa.timestamp("us", "UTC") if "zone" in name else kind
        facts = bench.check(empty.set_column(1, "c", pa.array([], facts_kind)))
        driver = bench.sink()

        @settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(st.lists(values | st.none(), min_size=1, max_size=30))
        def come_out(some: list[Any]) -> None:
            epoch = next(_numbers)
            batch = rows(n=pa.array(range(len(some)), pa.int64()), c=pa.array(some, kind))
            handle, refused = bench.stage(batch, facts, epoch=epoch)
            assert not refused
            assert driver.commit(handle) == Committed()
            with closing(psycopg.connect(url, autocommit=True)) as db:
                db.execute("SET timezone = 'UTC'")
                text = name in {"date", "timestamp", "timestamptz", "in another zone", "uuid"}
                shown = "c::text" if text else "c::float8" if name == "real" else "c"
                found = [value for (value,) in db.execute(f"SELECT {shown} FROM t ORDER BY n")]  # noqa: S608
                told = bench.reads_back(batch.set_column(1, "c", batch["c"].cast(facts_kind)))
                db.execute("TRUNCATE t")
            assert bool(told) == (declared in {"uuid", "jsonb"}), told
            assert found == [_read(value, name) for value in some]

        come_out()


def _read(value: Any, name: str) -> Any:  # noqa: ANN401
    """Return a value as the server shows it."""
    if value is None or name in {"uuid", "text"}:
        return value
    if isinstance(value, dt.datetime):
        shown = value.replace(tzinfo=None).isoformat(" ")
        shown = shown.rstrip("0") if "." in shown else shown
        return shown + ("+00" if value.tzinfo else "")
    return value.isoformat() if isinstance(value, dt.date) else value


def test_a_client_of_another_encoding_writes_the_same_texts(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    url = database(postgres)
    ask(url, "CREATE TABLE t (c text)")
    with closing(Bench(f"{url}?client_encoding=LATIN1", tmp_path, lambda sql: ask(url, sql))) as bench:
        bench.epoch(rows(c=["é", "☃"]))
    assert ask(url, "SELECT c FROM t") == [("é",), ("☃",)]


def test_a_domain_that_is_named_as_a_type_is_not_taken_for_it(bench: Bench) -> None:
    bench.run("CREATE DOMAIN public.date AS integer")
    bench.run("CREATE TABLE t (c public.date)")
    [(name,)] = bench.run("SELECT current_database()")
    # So that the server names it without its schema.
    bench.run(f"ALTER DATABASE {name} SET search_path = public, pg_catalog")
    bench.epoch(rows(c=pa.array([20_000], pa.int32())))
    assert bench.run("SELECT c::integer FROM t") == [(20_000,)]


def test_a_composite_type_that_is_named_as_a_type_is_not_taken_for_it(bench: Bench) -> None:
    bench.run("CREATE TYPE public.text AS (a integer)")
    bench.run("CREATE TABLE t (id BIGINT, name public.text)")
    with pytest.raises(ConfigurationError, match="it takes no string"):
        bench.check(rows(id=[1], name=["a"]))


def test_what_is_no_number_is_kept(bench: Bench) -> None:
    bench.run("CREATE TABLE t (c double precision, d real)")
    odd = [float("nan"), float("inf"), float("-inf"), -0.0]
    bench.epoch(rows(c=odd, d=pa.array(odd, pa.float32())))
    assert bench.run("SELECT c::text, d::text FROM t") == [
        (x, x) for x in ("NaN", "Infinity", "-Infinity", "-0")
    ]
    assert not bench.reads_back(rows(c=odd, d=pa.array(odd, pa.float32())))


@pytest.mark.parametrize(
    ("declared", "values", "code"),
    [
        ("smallint", pa.array([1, 2**15], pa.int32()), "OUT_OF_RANGE"),
        ("integer", pa.array([1, -(2**31) - 1], pa.int64()), "OUT_OF_RANGE"),
        ("numeric(3,0)", pa.array([1, 1000], pa.int64()), "OUT_OF_RANGE"),
        (
            "numeric(5,2)", pa.array([decimal.Decimal("1.00"), decimal.Decimal("1000.00")], pa.decimal128(10, 2)),
            "OUT_OF_RANGE",
        ),
        ("varchar(3)", pa.array(["äöü", "abcd"]), "TOO_LONG"),
        ("char(3)", pa.array(["abc", "abcd"]), "TOO_LONG"),
        ("text", pa.array(["", "a\0b"]), "NUL"),
        ("text", pa.array([b"ok", b"\xff\xfe"]).view(pa.string()), "NOT_UTF8"),
        ("timestamp(3)", pa.array([1000, 1001], pa.int64()).cast(pa.timestamp("us")), "TOO_FINE"),
        ("date", pa.array([0, 4_000_000], pa.int32()).cast(pa.date32()), "OUT_OF_RANGE"),
        ("uuid", pa.array(["6f1b8e0e-30d6-4f43-a1ab-0c4eae4ac2c9", "6f1b"]), "NOT_OF_FORM"),
    ],
)  # fmt: skip
def test_a_value_that_the_column_would_not_keep_is_given_back(
    bench: Bench, declared: str, values: pa.Array, code: str
) -> None:
    bench.run(f"CREATE TABLE t (c {declared})")
    facts = bench.check(rows(c=values))
    handle, refused = bench.stage(rows(c=values), facts)
    assert [(each.row, each.code) for each in refused] == [(1, code)]
    assert bench.sink().commit(handle) == Committed()
    assert len(bench.run("SELECT * FROM t")) == 1


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("real", pa.float64()), ("double precision", pa.int64()), ("numeric(10,2)", pa.float64()),
        ("numeric(10,2)", pa.decimal128(10, 3)), ("bigint", pa.float64()), ("bigint", pa.string()),
        ("bigint", pa.decimal128(10, 0)), ("text", pa.int64()), ("text", pa.binary()), ("bytea", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")), ("timestamptz", pa.timestamp("us")), ("date", pa.timestamp("us")),
        ("timestamp", pa.date32()), ("integer[]", pa.list_(pa.int32())), ("text", pa.list_(pa.int32())),
        ("interval", pa.string()), ("inet", pa.string()), ("money", pa.decimal128(10, 2)), ("boolean", pa.int32()),
        ("numeric(3,5)", pa.decimal128(5, 5)), ("numeric(3,-2)", pa.int64()),
    ],
)  # fmt: skip
def test_a_type_that_the_column_would_make_another_is_refused_by_name(
    bench: Bench, declared: str, kind: pa.DataType
) -> None:
    bench.run(f"CREATE TABLE t (c {declared})")
    with pytest.raises(ConfigurationError, match="its column c is") as raised:
        bench.check(rows(c=pa.array([], kind)))
    assert raised.value.next_step


def test_texts_that_a_database_takes_for_bytes_are_not_taken_for_changed(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    name = f"t{uuid.uuid4().hex[:12]}"
    ask(postgres.url(), f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    url = postgres.url(database=name)
    ask(url, "CREATE TABLE t (c text)")
    with closing(Bench(url, tmp_path, lambda sql: ask(url, sql))) as bench:
        some = rows(c=["a", "☃"])
        bench.epoch(some)
        assert bench.reads_back(some) in {"", "the encoding SQL_ASCII may have changed what was written"}
