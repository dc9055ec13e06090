"""The Cassandra sink on a real server: late writers, deleted keys, crashes of it, and what each refusal says."""

from __future__ import annotations

import datetime as dt
import subprocess
import time
import uuid
from dataclasses import replace
from decimal import Decimal
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
from cassandra import InvalidRequest
from keyed_bench import KeyedBench

from onceonly.errors import (
    ConfigurationError,
    OnceonlyError,
    RecordRefusedError,
    TargetBehindError,
    UnavailableError,
    WriteFailedError,
)
from onceonly.families.keyed import Origin
from onceonly.families.staged.sink import named
from onceonly.model import AlreadyCommitted, Committed, Guarantee
from onceonly.ports import QueryContext
from onceonly.ports.standing import Stands
from onceonly.sinks.cassandra import CassandraSink, books
from onceonly.sinks.cassandra import sink as sinks
from onceonly_proof.campaign.cutting import CuttingProxy
from onceonly_proof.conformance.world import wait_for
from onceonly_proof.embedded.cassandra import EmbeddedCassandra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.long]  # a further server
KEYSPACE = "CREATE KEYSPACE rows WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
CONTEXT = QueryContext(
    query="q",
    sink="cassandra",
    guarantee=Guarantee.EXACTLY_ONCE,
    columns=(("key", "string"), ("value", "string")),
)
TEXTS = pa.schema([("key", pa.string()), ("value", pa.string())])


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedCassandra]:
    with EmbeddedCassandra() as server:
        server.cql(KEYSPACE)
        yield server


@pytest.fixture(scope="module")
def session(shared: EmbeddedCassandra) -> Iterator[Any]:
    with shared.session() as session:
        yield session


class Bench(KeyedBench[CassandraSink]):
    """A query's sinks on a table of its own."""

    def __init__(self, server: EmbeddedCassandra, session: Any, folder: Path, columns: str) -> None:  # noqa: ANN401  the client's
        self.session = session
        self.port = server.port
        self.table = f"t{uuid.uuid4().hex}"
        self.columns = columns
        session.execute(f"CREATE TABLE rows.{self.table} ({columns})")
        own = {"hosts": server.hosts, "keyspace": "rows", "table": self.table, "key": "key"}
        # Books of its own, as tests take them away.
        super().__init__(CassandraSink, {**own, "books": f"b{self.table[:20]}", "staging": str(folder)})

    def ask(self, text: str) -> list[Any]:
        """Ask as anybody would; ``{}`` in the text is the table."""
        return list(self.session.execute(text.replace("{}", f"rows.{self.table}")))

    def seen(self) -> dict[str, str]:
        return {row.key: row.value for row in self.ask("SELECT key, value FROM {}")}


@pytest.fixture
def make(shared: EmbeddedCassandra, session: Any, tmp_path: Path) -> Iterator[Callable[[str], Bench]]:  # noqa: ANN401  the client's
    made: list[Bench] = []

    def a_bench(columns: str = "key text PRIMARY KEY, value text") -> Bench:
        made.append(Bench(shared, session, tmp_path, columns))
        return made[-1]

    yield a_bench
    for each in made:
        each.close()


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    return make()


def rows(**values: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": list(values), "value": list(values.values())}, schema=TEXTS)


def ops(**values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"key": list(values), "value": ["v"] * len(values), "op": list(values.values())}
    )


# --- keys and versions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
def test_a_writer_of_an_older_epoch_that_wakes_up_late_changes_nothing(bench: Bench, early: bool) -> None:  # noqa: FBT001
    late = bench.sink()
    attempt = late.begin_transaction(bench.context(5, early=early))
    if not early:
        late.write(attempt, rows(a="zz of 5", c="zz of 5"))
        waiting = late.pre_commit(attempt)
    bench.committed(rows(a="of 6", b="of 6"), epoch=6, early=early)
    if early:
        with pytest.raises(WriteFailedError, match="later epoch"):
            late.write(attempt, rows(a="zz of 5", c="zz of 5"))
    else:
        assert waiting is not None
        late.commit(waiting)
    assert bench.seen() == {"a": "of 6", "b": "of 6", "c": "zz of 5"}


def test_rows_seen_early_are_asked_for_together_and_a_newer_one_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.options["op"] = "op"
    keys = [f"k{number:02}" for number in range(50)]
    some = ops(**{key: "d" if key in {"k03", "k31"} else "u" for key in keys})
    asked: list[str] = []
    late = bench.sink()
    run = late._target.run

    def counted(calls: list[tuple[str, Sequence[Any]]]) -> list[Any]:
        asked.extend(text for text, _ in calls if text.startswith("SELECT"))
        return run(calls)

    monkeypatch.setattr(late._target, "run", counted)
    attempt = late.begin_transaction(bench.context(5, early=True))
    late.write(attempt, some)
    assert len(asked) == 3
    assert set(bench.seen()) == {*keys} - {"k03", "k31"}
    for number, op in enumerate(("u", "d"), 6):  # a newer row, then none
        bench.committed(ops(k07=op), epoch=number, early=True)
        with pytest.raises(WriteFailedError, match=r"k07.*later epoch|later epoch.*k07"):
            late.write(attempt, some)


def test_a_replay_changes_nothing_and_a_null_removes_what_was_there(bench: Bench) -> None:
    bench.committed(rows(a="1", b="1"), epoch=1)
    handle = bench.committed(rows(a=None, b="2"), epoch=2)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert bench.seen() == {"a": None, "b": "2"}


def test_a_null_that_is_kept_leaves_what_was_there(bench: Bench) -> None:
    bench.options["nulls"] = "keep"
    bench.committed(rows(a="1"), epoch=1)
    bench.committed(rows(a=None, b=None), epoch=2)
    assert bench.seen() == {"a": "1", "b": None}


@pytest.mark.parametrize("early", [False, True])
def test_a_deleted_key_refuses_who_is_late(bench: Bench, early: bool) -> None:  # noqa: FBT001
    bench.options["op"] = "op"
    bench.committed(ops(a="c", b="c"), epoch=1)
    late = bench.staged(ops(a="u"), epoch=2)
    bench.committed(ops(a="d", b="u"), epoch=3)
    if early:
        sink = bench.sink()
        with pytest.raises(WriteFailedError, match="later epoch"):
            sink.write(sink.begin_transaction(bench.context(2, early=True)), ops(a="u"))
    else:
        bench.sink().commit(late)
    assert set(bench.seen()) == {"b"}
    bench.committed(ops(a="c"), epoch=4)
    assert set(bench.seen()) == {"a", "b"}


def test_rows_that_were_written_by_the_clock_are_written_over(bench: Bench) -> None:
    bench.ask("INSERT INTO {} (key, value) VALUES ('a', 'by the clock')")
    bench.committed(rows(a="ours"))
    bench.ask("INSERT INTO {} (key, value) VALUES ('a', 'by the clock, later')")
    bench.ask("DELETE FROM {} WHERE key = 'a'")
    assert bench.seen() == {"a": "ours"}


def test_the_newest_of_a_keys_rows_stays_though_its_values_are_smaller(bench: Bench) -> None:
    bench.options["sequence"] = "at"
    bench.session.execute(f"ALTER TABLE rows.{bench.table} ADD at bigint")
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context())
    for at, value in enumerate(("z", "y", "a")):
        sink.write(attempt, pa.RecordBatch.from_pydict({"key": ["k"], "value": [value], "at": [at]}))
    handle = sink.pre_commit(attempt)
    assert handle is not None
    assert sink.commit(handle) == Committed()
    assert [tuple(row) for row in bench.ask("SELECT key, value, at FROM {}")] == [("k", "a", 2)]
    for asks in ({"early": True}, {"guarantee": Guarantee.AT_LEAST_ONCE}):
        with pytest.raises(ConfigurationError, match="has a sequence, and writes rows before"):
            bench.sink().begin_transaction(bench.context(1, **asks))


def test_epochs_of_many_rows_are_whole(bench: Bench) -> None:
    many = {f"k{number}": str(number) for number in range(2000)}
    handles = [bench.staged(rows(**dict(list(many.items())[slot::4])), slot=slot) for slot in range(4)]
    sink = bench.sink()
    sink.rehearse(handles, {})
    assert set(sink.commit_many(handles)) == {Committed()}
    assert bench.seen() == many


def test_a_key_of_a_query_that_came_later_is_found_before_the_decision(bench: Bench) -> None:
    handle = bench.staged(rows(a="older", b="older"), epoch=3)
    facts = bench.sink().check(replace(CONTEXT, query="newer"))
    bench.committed(rows(a="newer"), query="newer", facts=facts)
    with pytest.raises(ConfigurationError, match="was written by another query"):
        bench.sink().rehearse([handle], {})
    assert bench.seen() == {"a": "newer"}


def test_where_the_books_are_gone_versions_go_on_above_those_of_the_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for query in ("one", "two", "three"):
        facts = bench.sink().check(replace(CONTEXT, query=query))
        bench.committed(rows(a=query), epoch=5, query=query, facts=facts)
    last = facts["generation"]
    assert isinstance(last, int)
    bench.session.execute(f"TRUNCATE rows.{bench.options['books']}")
    monkeypatch.setattr(books, "time", SimpleNamespace(time=lambda: 0.0))
    handle = bench.staged(rows(a="four"))
    with pytest.raises(UnavailableError, match=r"the books .* were lost"):
        bench.sink().rehearse([handle], {})
    assert bench.sink().check(CONTEXT)["generation"] == last + 1
    bench.committed(rows(a="four"))
    assert bench.seen() == {"a": "four"}


def test_where_the_books_are_gone_a_later_day_is_above_what_was_deleted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.options["op"] = "op"
    bench.committed(ops(a="d"), epoch=5)
    bench.session.execute(f"TRUNCATE rows.{bench.options['books']}")
    tomorrow = time.time() + 86_400
    monkeypatch.setattr(books, "time", SimpleNamespace(time=lambda: tomorrow))
    facts = bench.sink().check(replace(CONTEXT, query="new", columns=()))
    bench.committed(ops(a="c"), query="new", facts=facts)
    assert set(bench.seen()) == {"a"}


def test_a_target_that_has_lost_its_books_stops_the_next_start(bench: Bench) -> None:
    sink = bench.sink()
    first = bench.staged(rows(a="1"), epoch=1)
    assert sink.commit(first) == Committed()
    bench.sink().look_back(CONTEXT, 1, [first])
    bench.session.execute(f"TRUNCATE rows.{bench.options['books']}")
    second = bench.staged(rows(b="2"), epoch=2)
    with pytest.raises(TargetBehindError, match="forgotten chk-1"):
        sink.commit(second)
    with pytest.raises(TargetBehindError, match="holds none of its epochs"):
        bench.sink().look_back(CONTEXT, 1, [first])


def test_a_table_that_is_made_anew_stops_the_query_and_the_next_start(bench: Bench) -> None:
    handles = [bench.committed(rows(a="1"))]
    sink = bench.sink()
    sink.check(CONTEXT)
    handle = bench.staged(rows(b="2"), epoch=1)
    bench.ask("DROP TABLE {}")
    bench.ask(f"CREATE TABLE {{}} ({bench.columns})")
    for step in (lambda: sink.rehearse([handle], {}), lambda: sink.commit_many([handle])):
        with pytest.raises(TargetBehindError, match="has become another one since the query was started"):
            step()
    with pytest.raises(TargetBehindError, match="has become another one since chk-0"):
        bench.sink().look_back(CONTEXT, 0, handles)
    assert bench.seen() == {}


def test_the_names_of_old_epochs_are_forgotten_and_those_of_others_are_not(bench: Bench) -> None:
    other = bench.sink()
    theirs = bench.staged(rows(z="1"), epoch=0, query="other")
    other.commit(theirs)
    handles = [bench.committed(rows(a=str(epoch)), epoch=epoch) for epoch in range(13)]
    assert set(bench.sink().known(named(handles))) == {handle.transaction for handle in handles[2:]}
    assert set(bench.sink().known(named([theirs]))) == {theirs.transaction}


def test_each_batch_has_a_row_of_the_books_of_its_own(bench: Bench) -> None:
    jobs = [f"batch-job-{number:012x}" for number in range(2)]
    handles = {}
    for job in jobs:
        facts = bench.sink().check(replace(CONTEXT, query=job))
        handles[job] = bench.committed(rows(a=job), query=job, facts=facts)
    for job, handle in handles.items():
        sink = bench.sink()
        sink.look_back(replace(CONTEXT, query=job), 0, [handle])
        assert sink.look_up(handle).stands is Stands.COMMITTED
        assert bench.sink().commit(handle) == AlreadyCommitted()
    assert set(bench.sink().known(named(handles.values()))) == {each.transaction for each in handles.values()}
    found = bench.session.execute(f"SELECT target FROM rows.{bench.options['books']}")  # noqa: S608  a name of ours
    assert {row.target for row in found} == {bench.table, *(f"{bench.table}/{job}" for job in jobs)}


def test_what_was_given_up_cannot_be_applied(bench: Bench) -> None:
    handle = bench.staged(rows(a="1"))
    assert bench.sink().void(named([handle])) == {handle.transaction}
    with pytest.raises(UnavailableError, match="given up while it was applied"):
        bench.sink().commit(handle)
    done = bench.committed(rows(a="2"), epoch=1)
    assert bench.sink().void(named([done])) == set()


def test_two_who_change_the_books_at_a_time_take_nothing_from_each_other(bench: Bench) -> None:
    one, two = bench.sink(), bench.sink()
    bench.committed(rows(a="1"))
    handles = [bench.staged(rows(a="2"), epoch=1), bench.staged(rows(b="2"), epoch=2)]
    real, is_between = one._target.book, False

    def between(query: str) -> tuple[int, str]:
        nonlocal is_between
        found = real(query)
        if not is_between:
            is_between = True
            two.books.note(_origin(bench, 2), [handles[1].transaction], since=-1)
        return found

    one._target.book = between  # type: ignore[method-assign]
    one.books.note(_origin(bench, 1), [handles[0].transaction], since=-1)
    assert bench.sink().known(named(handles)) == {handle.transaction for handle in handles}
    assert bench.sink().newest("q", "cassandra") == 2


def _origin(bench: Bench, epoch: int) -> Origin:
    return Origin.of(bench.context(epoch), chosen=False)


# --- columns ----------------------------------------------------------------------------------------------------


def test_each_type_comes_back_as_it_was(make: Callable[[str], Bench]) -> None:
    at, day = dt.datetime(2026, 1, 2, 3, 4, 5, 6000, dt.UTC), dt.date(1969, 12, 31)
    one, two = uuid.uuid4(), uuid.uuid1()
    given: dict[str, tuple[str, pa.Array, str, Any]] = {
        "flag": ("boolean", pa.array([True]), "boolean", True),
        "small": ("tinyint", pa.array([-1], pa.int8()), "tinyint", -1),
        "wider": ("bigint", pa.array([-7], pa.int32()), "int", -7),
        "big": ("varint", pa.array([2**62], pa.int64()), "bigint", 2**62),
        "real": ("double", pa.array([1.5], pa.float32()), "float", 1.5),
        "price": ("decimal", pa.array([Decimal("10.50")]), "decimal(10,2)", Decimal("10.50")),
        "whole": ("varint", pa.array([Decimal(10)]), "decimal(10,0)", 10),
        "day": ("date", pa.array([day]), "date", "1969-12-31"),
        "at": ("timestamp", pa.array([at], pa.timestamp("us", "UTC")), "timestamp", at.replace(tzinfo=None)),
        "raw": ("blob", pa.array([b"\xff"]), "binary", b"\xff"),
        "plain": ("ascii", pa.array(["abc"]), "string", "abc"),
        "one": ("uuid", pa.array([str(one)]), "string", one),
        "two": ("timeuuid", pa.array([str(two)]), "varchar(36)", two),
        "tags": ("frozen<list<text>>", pa.array([["b", "a", "b"]]), "array<string>", ["b", "a", "b"]),
        "deep": (
            "frozen<list<frozen<list<int>>>>",
            pa.array([[[1], [2, 3]]], pa.list_(pa.list_(pa.int32()))),
            "array<array<int>>",
            [[1], [2, 3]],
        ),
        "both": ("set<text>", pa.array([["b", "a", "b"]]), "array<string>", {"a", "b"}),
        "pairs": (
            "map<text, double>",
            pa.array([[("k", 1.0)]], pa.map_(pa.string(), pa.float64())),
            "map<string,double>",
            {"k": 1.0},
        ),
        "none": ("text", pa.array([None], pa.string()), "string", None),
    }
    columns = ", ".join(f'"{name}" {cql}' for name, (cql, *_) in given.items())
    bench = make(f"key text PRIMARY KEY, {columns}")
    kinds = tuple((name, kind) for name, (_, _, kind, _) in given.items())
    bench.sink().check(replace(CONTEXT, columns=(("key", "string"), *kinds)))
    arrays = {name: array for name, (_, array, _, _) in given.items()}
    bench.committed(pa.RecordBatch.from_pydict({"key": pa.array(["a"]), **arrays}))
    bench.committed(pa.RecordBatch.from_pydict({"key": pa.array(["a"]), **arrays}), epoch=1)
    [row] = bench.ask("SELECT * FROM {}")
    shown = {name: getattr(row, name) for name in given}
    shown |= {"day": str(shown["day"]), "both": set(shown["both"]), "pairs": dict(shown["pairs"])}
    assert shown == {name: wanted for name, (*_, wanted) in given.items()}


def test_keys_of_several_columns_and_types(make: Callable[[str], Bench]) -> None:
    bench = make('shop text, day date, "No" bigint, value text, PRIMARY KEY ((shop, day), "No")')
    bench.options |= {"key": "No,shop,day", "op": "op"}
    day = dt.date(2026, 1, 2)
    kinds = (("shop", "string"), ("day", "date"), ("No", "bigint"), ("value", "string"), ("op", "string"))
    bench.sink().check(replace(CONTEXT, columns=kinds))

    def batch(op: str) -> pa.RecordBatch:
        rows = {"shop": ["", "a:b"], "day": [day, day], "No": [1, 2], "value": ["x", "y"], "op": ["u", op]}
        return pa.RecordBatch.from_pydict(rows)

    bench.committed(batch("u"))
    assert {(row.shop, row.No, row.value) for row in bench.ask("SELECT * FROM {}")} == {
        ("", 1, "x"),
        ("a:b", 2, "y"),
    }
    bench.committed(batch("d"), epoch=1)
    assert [(row.shop, row.No) for row in bench.ask("SELECT * FROM {}")] == [("", 1)]


@pytest.mark.parametrize(
    ("columns", "kinds", "said"),
    [
        (
            "n list<int>",
            "array<int>",
            "n is array<int>, and list<int> in .*: a repeated row adds its elements again",
        ),
        ("n int", "bigint", "n is bigint, and int in .*: some values would not fit"),
        ("n text", "int", "n is int, and text in"),
        ("n duration", "interval day to second", "and duration in"),
        ("n timestamp", "timestamp_ntz", "n is timestamp_ntz, and timestamp in"),
        ("n frozen<set<timestamp>>", "array<timestamp>", "are not looked at one by one"),
        ("n map<text, int>", "array<string>", "it takes maps only"),
        ("n inet", "string", "and inet in"),
        ("m text", "string", "has no column n: it has key, m"),
    ],
)
def test_a_column_that_its_table_may_refuse_is_refused_by_name(
    make: Callable[[str], Bench], columns: str, kinds: str, said: str
) -> None:
    bench = make(f"key text PRIMARY KEY, {columns}")
    with pytest.raises(ConfigurationError, match=said):
        bench.sink().check(replace(CONTEXT, columns=(("key", "string"), ("n", kinds))))


def test_tables_that_no_key_fits_are_refused(make: Callable[[str], Bench]) -> None:
    counters = make("key text PRIMARY KEY, n counter")
    with pytest.raises(ConfigurationError, match="a counter counts a repeated row again"):
        counters.sink().check(replace(CONTEXT, columns=(("key", "string"), ("n", "bigint"))))
    static = make("key text, no int, s text STATIC, value text, PRIMARY KEY (key, no)")
    with pytest.raises(ConfigurationError, match=r"the primary key of .* is key, no"):
        static.sink().check(CONTEXT)
    static.options["key"] = "key,no"
    with pytest.raises(ConfigurationError, match=r"The column s of .* is static"):
        static.sink().check(replace(CONTEXT, columns=(("key", "string"), ("no", "int"), ("s", "string"))))


def test_a_row_that_the_table_has_no_place_for_is_refused_before_it_is_staged(
    make: Callable[[str], Bench],
) -> None:
    bench = make(
        "key text, no int, at timestamp, u uuid, tags set<text>, raw blob, plain ascii, PRIMARY KEY (key, no)"
    )
    bench.options["key"] = "key,no"
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    fine: dict[str, Any] = {"key": "k", "no": 1, "at": at, "u": None, "tags": ["a"], "raw": b"", "plain": "a"}
    wrong: dict[str, dict[str, Any]] = {
        "TOO_FINE": {"at": at.replace(microsecond=1)},
        "NO_UUID": {"u": str(uuid.uuid4()).upper()},
        "NULL_INSIDE": {"tags": ["a", None]},
        "NOT_ASCII": {"plain": "ä"},
        "NO_KEY": {"key": ""},
        "KEY_TOO_LONG": {"key": "x" * 65_536},
        "TOO_LARGE": {"raw": b"x" * (sinks.ROW_BYTES_MAX + 1)},
    }
    every = [{**fine, **each, "no": number} for number, each in enumerate(wrong.values())]
    schema = pa.schema([
        ("key", pa.string()), ("no", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("u", pa.string()),
        ("tags", pa.list_(pa.string())), ("raw", pa.binary()), ("plain", pa.string()),
    ])  # fmt: skip
    batch = pa.RecordBatch.from_pylist([*every, {**fine, "no": 99}], schema=schema)
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(gives_back=True))
    refused = sink.write(attempt, batch)
    assert [each.code for each in refused] == list(wrong)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    assert sink.commit(handle) == Committed()
    assert [row.no for row in bench.ask("SELECT no FROM {}")] == [99]


def test_the_largest_row_that_is_let_through_fits(make: Callable[[str], Bench]) -> None:
    bench = make("key text PRIMARY KEY, raw blob")
    raw = b"x" * (sinks.ROW_BYTES_MAX - 1024)
    bench.committed(pa.RecordBatch.from_pydict({"key": ["a"], "raw": [raw]}))
    assert [len(row.raw) for row in bench.ask("SELECT raw FROM {}")] == [len(raw)]


# --- the server -------------------------------------------------------------------------------------------------


def said(bench: Bench, **options: str) -> OnceonlyError:
    with pytest.raises(OnceonlyError) as raised:
        bench.sink(**options).check(CONTEXT)
    return raised.value


def test_what_is_not_there_is_named(bench: Bench, make: Callable[[str], Bench]) -> None:
    assert "has no keyspace shop: it has" in said(bench, keyspace="shop").what
    assert "has no table carts: it has" in said(bench, table="carts").what
    forgets = make("key text PRIMARY KEY, value text")
    forgets.ask("ALTER TABLE {} WITH gc_grace_seconds = 3600")
    assert isinstance(said(forgets), ConfigurationError)
    assert "forgets what was removed after 3600 s" in said(forgets).what
    forgets.ask(said(forgets).next_step.partition(", or")[0])
    forgets.sink().check(CONTEXT)
    forgets.ask("ALTER TABLE {} WITH gc_grace_seconds = 3600")
    forgets.sink(tombstones="1 hour").check(CONTEXT)


def test_a_table_that_removes_rows_by_itself_is_told_of(
    make: Callable[[str], Bench], caplog: pytest.LogCaptureFixture
) -> None:
    forgets = make("key text PRIMARY KEY, value text")
    forgets.sink().check(CONTEXT)
    assert "default_time_to_live" not in caplog.text
    forgets.ask("ALTER TABLE {} WITH default_time_to_live = 60")
    forgets.sink().check(CONTEXT)
    assert "removes rows 60 s after they were written (default_time_to_live)" in caplog.text


def test_a_table_that_is_dropped_after_a_vote_leaves_the_epoch_pending_with_the_servers_word(
    bench: Bench,
) -> None:
    handle = bench.staged(rows(a="1"))
    bench.ask("DROP TABLE {}")
    with pytest.raises(ConfigurationError, match=r"has no table|refuses what goes to"):
        bench.sink().commit(handle)
    bench.session.execute(f"CREATE TABLE rows.{bench.table} ({bench.columns})")
    assert bench.sink().commit(handle) == Committed()
    assert bench.seen() == {"a": "1"}


def test_a_server_that_is_not_there_may_come_back(tmp_path: Path) -> None:
    options = {
        "hosts": "127.0.0.1:1",
        "keyspace": "rows",
        "table": "t",
        "key": "key",
        "staging": str(tmp_path),
    }
    with pytest.raises(UnavailableError, match="does not answer"):
        CassandraSink(options).check(CONTEXT)


def test_a_session_whose_nodes_are_gone_for_a_moment_is_made_anew(bench: Bench) -> None:
    proxy = CuttingProxy(bench.port, b"IF revision")
    sink = bench.sink(hosts=f"127.0.0.1:{proxy.port}")
    first = bench.staged(rows(a="1"))
    proxy.cut_next()
    assert sink.commit(first) in {Committed(), AlreadyCommitted()}
    assert proxy.cut_at is not None
    proxy.close()


def test_a_server_that_is_killed_while_an_epoch_is_applied_gets_the_rest(tmp_path: Path) -> None:
    with EmbeddedCassandra() as server, server.session() as session:
        session.execute(KEYSPACE)
        bench = Bench(server, session, tmp_path, "key text PRIMARY KEY, value text")
        many = {f"k{number}": str(number) for number in range(3000)}
        handle = bench.staged(rows(**many))
        sink = bench.sink(timeout="5 seconds")
        real = sink._target.run

        def killed(calls: Sequence[Any]) -> list[Any]:
            real(calls[:1000])
            server.kill()
            return real(calls[1000:])

        sink._target.run = killed  # type: ignore[method-assign, assignment]
        with pytest.raises(UnavailableError, match="does not answer"):
            sink.commit(handle)
        server.start()
        with server.session() as fresh:
            bench.session = fresh
            assert len(bench.seen()) == 1000
            again = bench.sink()
            assert again.commit(handle) == Committed()
            assert bench.seen() == many
            assert bench.sink().commit(handle) == AlreadyCommitted()


def test_each_refusal_of_a_server_with_users_and_tls_has_its_sentence(tmp_path: Path) -> None:
    ca, key = certificate(tmp_path)
    tls = {
        "enabled": True, "optional": True, "keystore": str(key), "keystore_password": "changeit",
    }  # fmt: skip
    users = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    brief = {f"{each}_validity": "0ms" for each in ("permissions", "roles", "credentials")}
    own = {"client_encryption_options": tls, "commitlog_segment_size": "8MiB"}
    with EmbeddedCassandra(settings={**users, **brief, **own}) as server:
        root = wait_for_root(server)
        with server.session(**root) as session:
            session.execute(KEYSPACE)
            session.execute("CREATE ROLE writer WITH PASSWORD = 'right' AND LOGIN = true")
            bench = Bench(server, session, tmp_path, "key text PRIMARY KEY, value text")
            bench.options |= {"user": "writer", "password": "right"}
            for wrong in ({"password": "wrong"}, {"user": "nobody"}):
                error = said(bench, **wrong)
                assert isinstance(error, ConfigurationError), wrong
                assert "does not let the user" in error.what
                assert "right" not in str(error)
            error = said(bench)
            assert isinstance(error, ConfigurationError)
            assert "does not permit the user writer" in error.what
            session.execute(f"GRANT SELECT ON rows.{bench.table} TO writer")
            assert "no MODIFY permission" in said(bench).what
            session.execute(f"GRANT MODIFY ON rows.{bench.table} TO writer")
            assert "no CREATE permission" in said(bench).what
            session.execute("GRANT CREATE ON KEYSPACE rows TO writer")
            books = f"rows.{bench.options['books']}"
            unseen = f"what may be done with {books} shows only in doing it"
            assert bench.sink().require_rights(CONTEXT) == unseen
            bench.committed(rows(a="1"))
            assert bench.seen() == {"a": "1"}
            for right, table in product(("SELECT", "MODIFY"), (f"rows.{bench.table}", books)):
                assert bench.sink().require_rights(CONTEXT) == ""
                session.execute(f"REVOKE {right} ON {table} FROM writer")
                with pytest.raises(ConfigurationError, match=f"no {right} permission on <table {table}>"):
                    bench.sink().require_rights(CONTEXT)
                session.execute(f"GRANT {right} ON {table} TO writer")
            for columns in ("key text PRIMARY KEY", "key text PRIMARY KEY, tags set<text>"):
                alone = Bench(server, session, tmp_path, columns)
                alone.options |= {"user": "writer", "password": "right", "books": bench.options["books"]}
                session.execute(f"GRANT SELECT ON rows.{alone.table} TO writer")
                with pytest.raises(ConfigurationError, match="no MODIFY permission"):
                    alone.sink().check(replace(CONTEXT, columns=(("key", "string"),)))
                # No condition can be asked for there, and the doctor leaves nothing behind.
                assert f"{alone.table} shows only" in alone.sink().require_rights(CONTEXT)
                alone.close()
            # Half of what a mutation may have, which is half of a segment.
            assert bench.sink(**root).check(CONTEXT)["row_max"] == 2 << 20
            error = said(bench, tls="true")
            assert isinstance(error, ConfigurationError)
            assert "is not trusted" in error.what
            bench.sink(tls="true", **{"tls.ca": str(ca)}).check(CONTEXT)


def test_disks_that_are_full_by_the_clusters_own_limit_are_named_and_waited_for(tmp_path: Path) -> None:
    users = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    brief = {f"{each}_validity": "0ms" for each in ("permissions", "roles", "credentials")}
    limit = {"data_disk_usage_percentage_fail_threshold": 50, "data_disk_usage_max_disk_size": "8MiB"}
    # It is asked of each node how full it is, each half a minute.
    with EmbeddedCassandra(settings={**users, **brief, **limit}) as server:
        root = wait_for_root(server)
        with server.session(**root) as session:
            session.execute(KEYSPACE)
            session.execute("CREATE TABLE rows.filler (key int PRIMARY KEY, value blob)")
            session.execute("CREATE ROLE writer WITH PASSWORD = 'right' AND LOGIN = true")
            session.execute("GRANT ALL ON KEYSPACE rows TO writer")
            bench = Bench(server, session, tmp_path, "key text PRIMARY KEY, value text")
            bench.options |= {"user": "writer", "password": "right"}
            bench.committed(rows(a="1", b="before"))
            handle = bench.staged(rows(b="2", c="3"), epoch=1)
            context = bench.context(epoch=2, early=True)
            driver = bench.sink()
            driver.rehearse([handle], {})
            for number in range(8):  # the first user is none of those who are kept out
                session.execute(
                    "INSERT INTO rows.filler (key, value) VALUES (%s, %s)", (number, bytes(10**6))
                )

            with server.session(user="writer", password="right") as other:  # noqa: S106  of this server

                def is_full() -> bool:
                    try:
                        other.execute(f"DELETE FROM rows.{bench.table} WHERE key = 'z'")  # noqa: S608
                    except InvalidRequest:
                        return True
                    return False

                assert wait_for(is_full, seconds=120)
            early = bench.sink()
            for ask in (
                lambda: driver.commit(handle),
                lambda: early.write(early.begin_transaction(context), rows(d="4")),
            ):
                with pytest.raises(UnavailableError, match=r"the disks of .* are full: ") as raised:
                    ask()
                assert raised.value.next_step.startswith("make room there")
            assert bench.seen() == {"a": "1", "b": "before"}
            session.execute("TRUNCATE rows.filler")

            def is_committed() -> bool:
                try:
                    return driver.commit(handle) == Committed()
                except UnavailableError:
                    return False

            assert wait_for(is_committed, seconds=120)
            assert driver.commit(handle) == AlreadyCommitted()
            assert bench.seen() == {"a": "1", "b": "2", "c": "3"}
            bench.close()


def test_a_node_that_cannot_write_its_files_any_more_gets_the_rest_when_it_can(tmp_path: Path) -> None:
    # Files that may not grow are full as a disk is, for this server: it stops its transports, as its policies say.
    stop = {"disk_failure_policy": "stop", "commit_failure_policy": "stop", "commitlog_segment_size": "1MiB"}
    with EmbeddedCassandra(settings=stop) as server, server.session() as session:
        session.execute(KEYSPACE)
        bench = Bench(server, session, tmp_path, "key text PRIMARY KEY, value text")
        many = {f"k{number}": "x" * 10_000 for number in range(1000)}
        handle = bench.staged(rows(**many))
        driver = bench.sink(timeout="10 seconds")
        driver.rehearse([handle], {})
        assert server._process is not None
        process = psutil.Process(server._process.pid)
        process.rlimit(psutil.RLIMIT_FSIZE, (100_000, psutil.RLIM_INFINITY))
        for _ in range(2):
            with pytest.raises(UnavailableError, match="does not answer") as raised:
                driver.commit(handle)
            assert "see whether its nodes run" in raised.value.next_step
        assert process.is_running()
        server.kill()
        server.start()
        with server.session() as fresh:
            bench.session = fresh
            assert len(bench.seen()) < 1000
            assert driver.commit(handle) == Committed()
            assert driver.commit(handle) == AlreadyCommitted()
            assert bench.seen() == many
            bench.close()


def test_a_partition_that_an_operator_has_closed_is_found_before_the_decision(tmp_path: Path) -> None:
    closing = {
        "partition_denylist_enabled": True, "denylist_refresh": "1s", "denylist_consistency_level": "ONE",
    }  # fmt: skip
    with EmbeddedCassandra(settings=closing) as server, server.session() as session:
        session.execute(KEYSPACE)
        bench = Bench(server, session, tmp_path, "key text PRIMARY KEY, value text")
        bench.committed(rows(a="1", b="1"))
        decided, open_one = bench.staged(rows(b="2", c="2"), epoch=1), bench.staged(rows(a="2"), epoch=2)
        context = bench.context(epoch=3, early=True)
        closed, named_by = "system_distributed.partition_denylist", ("rows", bench.table, b"b")
        session.execute(f"INSERT INTO {closed} (ks_name, table_name, key) VALUES (%s, %s, %s)", named_by)  # noqa: S608

        def is_closed() -> bool:
            try:
                bench.ask("SELECT value FROM {} WHERE key = 'b'")
            except InvalidRequest:
                return True
            return False

        assert wait_for(is_closed)
        early = bench.sink()
        for ask in (
            lambda: bench.sink().rehearse([decided], {}),
            lambda: bench.sink().commit(decided),
            lambda: early.write(early.begin_transaction(context), rows(b="3")),
        ):
            with pytest.raises(RecordRefusedError, match=r"has closed a partition of .*, 62\)") as raised:
                ask()
            assert "system_distributed.partition_denylist" in raised.value.next_step
        bench.sink().rehearse([open_one], {})
        session.execute(f"DELETE FROM {closed} WHERE ks_name = %s AND table_name = %s AND key = %s", named_by)  # noqa: S608
        assert wait_for(lambda: not is_closed())
        assert bench.sink().commit(decided) == Committed()
        assert bench.seen() == {"a": "1", "b": "2", "c": "2"}
        bench.close()


def wait_for_root(server: EmbeddedCassandra) -> dict[str, str]:
    """Return how the server's first user comes in, once it is there."""
    root = {"user": "cassandra", "password": "cassandra"}

    def is_there() -> bool:
        try:
            with server.session(**root):
                return True
        except Exception:  # noqa: BLE001  whatever the client raises
            return False

    assert wait_for(is_there)
    return root


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1, and the server's store of keys."""
    store, ca = folder / "keys.p12", folder / "ca.pem"
    common = ["-keystore", str(store), "-storepass", "changeit", "-alias", "one"]
    make = [
        "-genkeypair",
        "-keyalg",
        "RSA",
        "-dname",
        "CN=one",
        "-ext",
        "SAN=IP:127.0.0.1",
        "-storetype",
        "PKCS12",
    ]
    subprocess.run(["keytool", *make, *common], check=True, capture_output=True)
    subprocess.run(
        ["keytool", "-exportcert", "-rfc", "-file", str(ca), *common], check=True, capture_output=True
    )
    return ca, store


def test_rows_are_refused_where_a_key_is_twice(bench: Bench) -> None:
    twice = pa.RecordBatch.from_pydict({"key": ["a", "a"], "value": ["1", "2"]}, schema=TEXTS)
    with pytest.raises(RecordRefusedError, match=r"the key a .* is twice"):
        bench.sink().rehearse([bench.staged(twice)], {})
    sink = bench.sink()
    with pytest.raises(RecordRefusedError, match=r"the key a .* is twice"):
        sink.write(sink.begin_transaction(bench.context(guarantee=Guarantee.AT_LEAST_ONCE)), twice)
