"""The OpenSearch sink on a real server: late writers, deleted keys, crashes, mappings, and what each refusal says."""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from keyed_bench import KeyedBench
from test_conformance_opensearch import ask, documents, make

from onceonly.errors import (
    ConfigurationError,
    OnceonlyError,
    RecordRefusedError,
    TargetBehindError,
    UnavailableError,
    WriteFailedError,
)
from onceonly.families.keyed import KeyedRows
from onceonly.families.staged.sink import named
from onceonly.model import AlreadyCommitted, Committed, Guarantee
from onceonly.ports import QueryContext
from onceonly.sinks.opensearch import OpenSearchSink, target
from onceonly.sinks.opensearch import sink as sinks
from onceonly_proof.conformance.world import wait_for
from onceonly_proof.embedded.opensearch import EmbeddedOpenSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from onceonly.sinks.opensearch.target import Item, Told

pytestmark = pytest.mark.integration
COLUMNS = (("key", "string"), ("value", "string"))
CONTEXT = QueryContext(query="q", sink="opensearch", guarantee=Guarantee.EXACTLY_ONCE, columns=COLUMNS)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedOpenSearch]:
    with EmbeddedOpenSearch() as server:
        yield server


class Bench(KeyedBench[OpenSearchSink]):
    """A query's sinks on one index of its own."""

    def __init__(self, server: EmbeddedOpenSearch, folder: Path, **index: object) -> None:
        self.server = server
        self.index = f"t{uuid.uuid4().hex}"
        make(server.url, self.index, **index)
        own = {"url": server.url, "index": self.index, "key": "key", "staging": str(folder)}
        super().__init__(OpenSearchSink, own)

    def seen(self) -> dict[str, Any]:
        return {key: row["value"] for key, row in documents(self.server.url, self.index).items()}

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  JSON
        return ask(self.server.url, method, path, body)


@pytest.fixture
def bench(server: EmbeddedOpenSearch, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(server, tmp_path)
    yield made
    made.close()


def rows(**values: Any) -> pa.RecordBatch:  # noqa: ANN401  of one type
    return pa.RecordBatch.from_pydict({"key": list(values), "value": list(values.values())})


def ops(**values: str) -> pa.RecordBatch:
    columns = {"key": list(values), "value": ["v"] * len(values), "op": list(values.values())}
    return pa.RecordBatch.from_pydict(columns)


def error_of(action: Callable[[], object]) -> OnceonlyError:
    with pytest.raises(OnceonlyError) as raised:
        action()
    return raised.value


def test_the_doctor_tries_its_rights_and_changes_nothing(bench: Bench) -> None:
    bench.committed(rows(a="1"))
    given = bench.sink()._search

    def numbers() -> Any:  # noqa: ANN401  JSON
        path = f"/{given.index},{given.books}/_stats?level=shards&filter_path=**.max_seq_no"
        return bench.ask("GET", path)

    before = numbers()
    assert bench.sink().require_rights(CONTEXT) == ""
    assert numbers() == before
    assert (
        bench.sink(books="none")
        .require_rights(CONTEXT)
        .endswith("has no index none yet, which a start makes")
    )
    assert bench.ask("GET", "/none?ignore_unavailable=true") == {}


# --- keys and versions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
def test_a_writer_of_an_older_epoch_that_wakes_up_late_changes_nothing(bench: Bench, early: bool) -> None:  # noqa: FBT001
    late = bench.sink()
    attempt = late.begin_transaction(bench.context(5, early=early))
    if not early:
        late.write(attempt, rows(a="of 5", c="of 5"))
    waiting = None if early else late.pre_commit(attempt)
    bench.committed(rows(a="of 6", b="of 6"), epoch=6, early=early)
    if waiting is None:
        with pytest.raises(WriteFailedError, match="later epoch"):
            late.write(attempt, rows(a="of 5", c="of 5"))
    else:
        late.commit(waiting)
    assert bench.seen() == {"a": "of 6", "b": "of 6", "c": "of 5"}


def test_a_replay_changes_nothing_and_a_row_replaces_all_fields(bench: Bench) -> None:
    bench.committed(rows(a="1", b="1"), epoch=1)
    handle = bench.committed(rows(a=None, b="2"), epoch=2)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    bench.committed(rows(b="2", a=None), epoch=2)
    assert bench.seen() == {"a": None, "b": "2"}


def test_a_deleted_key_refuses_who_is_late_also_after_the_cluster_has_forgotten_deletes(bench: Bench) -> None:
    bench.options |= {"op": "op"}
    bench.committed(ops(a="c", b="c"), epoch=1)
    bench.committed(ops(a="d", b="u"), epoch=3)
    bench.ask("PUT", f"/{bench.index}/_settings", {"index": {"gc_deletes": "0s"}})
    bench.ask("POST", f"/{bench.index}/_flush")
    late = bench.sink()
    with pytest.raises(WriteFailedError, match="later epoch"):
        late.write(late.begin_transaction(bench.context(2, early=True)), ops(a="u"))
    assert set(bench.seen()) == {"b"}
    bench.committed(ops(a="c"), epoch=4)
    assert set(bench.seen()) == {"a", "b"}


def test_what_is_left_of_a_deleted_key_is_removed_after_its_time(bench: Bench) -> None:
    bench.options |= {"op": "op", "tombstones": "50 ms"}
    bench.committed(ops(a="d", b="c"), epoch=1)

    def is_gone() -> bool:
        bench.ask("POST", f"/{bench.index}/_refresh")
        bench.sink().check(replace(CONTEXT, columns=()))  # as the next start does
        bench.ask("POST", f"/{bench.index}/_refresh")
        count: int = bench.ask("GET", f"/{bench.index}/_count")["count"]
        return count == 1

    assert wait_for(is_gone)
    assert set(bench.seen()) == {"b"}


def test_a_key_of_a_query_that_came_later_is_found_before_the_decision(bench: Bench) -> None:
    handle = bench.staged(rows(a="older", b="older"), epoch=3)
    facts = bench.sink().check(replace(CONTEXT, query="newer"))
    bench.committed(rows(a="newer"), query="newer", facts=facts)
    with pytest.raises(ConfigurationError, match="was written by another query"):
        bench.sink().rehearse([handle], {})


def test_where_the_books_are_gone_versions_go_on_above_those_of_the_rows(bench: Bench) -> None:
    bench.options["books"] = f"books-{bench.index}"
    for query in ("one", "two", "three"):
        facts = bench.sink().check(replace(CONTEXT, query=query))
        bench.committed(rows(a=query), epoch=5, query=query, facts=facts)
    bench.ask("DELETE", f"/{bench.options['books']}")
    handle = bench.staged(rows(a="four"))
    with pytest.raises(UnavailableError, match=r"the books .* were lost"):
        bench.sink().rehearse([handle], {})
    bench.committed(rows(a="four"))
    assert bench.seen() == {"a": "four"}


def test_an_index_and_books_that_went_back_stop_the_next_start(bench: Bench) -> None:
    bench.options["books"] = f"books-{bench.index}"
    handles = [bench.committed(rows(a=str(epoch)), epoch=epoch) for epoch in range(2)]
    bench.sink().look_back(CONTEXT, 1, handles[-1:])
    bench.ask("DELETE", f"/{bench.options['books']}")
    with pytest.raises(TargetBehindError, match="holds none of its epochs"):
        bench.sink().look_back(CONTEXT, 1, handles[-1:])


@pytest.mark.parametrize("early", [False, True])
def test_an_index_that_is_deleted_under_an_epoch_stops_the_query_and_the_next_start(
    bench: Bench,
    early: bool,  # noqa: FBT001
) -> None:
    handles = [bench.committed(rows(a="1"))]
    sink = bench.sink()
    sink.check(CONTEXT)
    attempt = sink.begin_transaction(bench.context(1, early=early))
    sink.write(attempt, rows(b="2"))
    handle = sink.pre_commit(attempt)
    assert handle is not None
    bench.ask("DELETE", f"/{bench.index}")
    bench.sink().put(KeyedRows(keys=["c"], deleted=[False], rows=rows(c="3")), 1)  # as another task does
    for step in (lambda: sink.rehearse([handle], {}), lambda: sink.commit_many([handle])):
        with pytest.raises(TargetBehindError, match="has become another one since the query was started"):
            step()
    with pytest.raises(TargetBehindError, match=r"another one since chk-0|lost rows of chk-1"):
        bench.sink().commit(handle)  # an operator's
    with pytest.raises(TargetBehindError, match="has become another one since chk-0"):
        bench.sink().look_back(CONTEXT, 0, handles)
    bench.options["onceonly.target.behind"] = "go-on"
    going_on = bench.sink()
    going_on.look_back(CONTEXT, 0, handles)
    going_on.check(CONTEXT)
    assert going_on.commit(handle) == Committed()
    del bench.options["onceonly.target.behind"]
    bench.sink().look_back(CONTEXT, 1, [handle])


def test_an_index_that_is_deleted_while_an_epoch_is_applied_is_not_noted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.staged(rows(a="1"))
    put = OpenSearchSink.put

    def deleted(sink: OpenSearchSink, given: KeyedRows, version: int) -> Any:  # noqa: ANN401  as the sink's own
        bench.ask("DELETE", f"/{bench.index}")
        return put(sink, given, version)

    monkeypatch.setattr(OpenSearchSink, "put", deleted)
    with pytest.raises(TargetBehindError, match="while chk-0 was applied"):
        bench.sink().commit(handle)
    assert not bench.sink().known(named([handle]))


def test_who_is_killed_before_the_first_name_is_noted_leaves_the_newest_epoch_as_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.committed(rows(a="0"))
    handles = [bench.staged(rows(**{key: "1"}), epoch=1, slot=slot) for slot, key in enumerate("ab")]
    create, left = target.Target.create, 0

    def killed(self: target.Target, index: str, name: str, document: object) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return create(self, index, name, document)

    for names, newest in ((0, 0), (1, 1)):
        left = names
        with monkeypatch.context() as patch:
            patch.setattr(target.Target, "create", killed)
            with pytest.raises(KeyboardInterrupt):
                bench.sink().commit_many(handles)
        assert bench.sink().newest("q", "opensearch") == newest
        assert [each.committed for each in bench.sink().recover(CONTEXT) if not each.data] == [newest]
    assert bench.sink().commit_many(handles) == [AlreadyCommitted(), Committed()]
    assert bench.sink().newest("q", "opensearch") == 1
    bench.committed(rows(a="2"), epoch=2)
    assert bench.sink().newest("q", "opensearch") == 2


def test_a_running_query_removes_names_of_old_epochs_and_keys_deleted_long_ago(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "BULK_ROWS", 2)
    bench.options |= {"op": "op", "tombstones": "1 ms"}
    sink = bench.sink()
    facts = sink.check(replace(CONTEXT, columns=(*COLUMNS, ("op", "string"))))
    old = [bench.staged(ops(**{key: "d"}), slot=slot, facts=facts) for slot, key in enumerate("abcde")]
    assert set(sink.commit_many(old)) == {Committed()}
    void = bench.staged(ops(z="c"), slot=9, facts=facts)
    assert sink.void(named([void])) == {void.transaction}
    assert sink.commit(bench.staged(ops(f="c"), epoch=10, facts=facts)) == Committed()
    newest = bench.staged(ops(f="c"), epoch=11, facts=facts)
    assert sink.commit(newest) == Committed()
    books = sink._search.books

    def held() -> tuple[set[str], int]:
        names = [each.transaction for each in (*old, void, newest)]
        bench.ask("POST", f"/{bench.index}/_refresh")
        return set(sink._target.documents(books, names)), bench.ask("GET", f"/{bench.index}/_count")["count"]

    sink.refresh(facts)
    assert held()[1] == 6  # it was tidied just now
    monkeypatch.setattr(sinks, "TIDY_S", -1.0)
    sink.refresh(facts)
    assert held() == ({newest.transaction}, 1)


def test_large_epochs_go_in_several_requests(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "BULK_BYTES", 2_000)
    monkeypatch.setattr(target, "IDS_MAX", 70)
    many = {f"k{number}": str(number) for number in range(500)}
    handles = [bench.staged(rows(**dict(list(many.items())[slot::4])), slot=slot) for slot in range(4)]
    sink = bench.sink()
    sink.rehearse(handles, {})
    assert set(sink.commit_many(handles)) == {Committed()}
    assert bench.seen() == many


# --- types ------------------------------------------------------------------------------------------------------


def test_fields_are_added_for_every_type_and_take_every_value(bench: Bench) -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)
    columns = (
        ("key", "string"), ("value", "string"), ("flag", "boolean"), ("tiny", "tinyint"), ("big", "bigint"),
        ("real", "double"), ("price", "decimal(20,2)"), ("day", "date"), ("at", "timestamp"),
        ("local", "timestamp_ntz"), ("raw", "binary"), ("tags", "array<string>"),
        ("both", "struct<n:int,inner:array<struct<day:date>>>"),
    )  # fmt: skip
    values = {
        "flag": pa.array([True]), "tiny": pa.array([-1], pa.int8()), "big": pa.array([2**62]),
        "real": pa.array([1e300]), "price": pa.array([Decimal("10.50")]), "day": pa.array([at.date()]),
        "at": pa.array([at], pa.timestamp("us", "UTC")),
        "local": pa.array([at.replace(tzinfo=None)], pa.timestamp("us")), "raw": pa.array([b"\xff"]),
        "tags": pa.array([["a", None]]), "both": pa.array([{"n": 1, "inner": [{"day": at.date()}]}]),
    }  # fmt: skip
    facts = bench.sink().check(replace(CONTEXT, columns=columns))
    batch = pa.RecordBatch.from_pydict({"key": pa.array(["a"]), "value": pa.array(["2026-01-01"]), **values})
    bench.committed(batch, facts=facts)
    row = documents(bench.server.url, bench.index)["a"]
    assert {name: row[name] for name in values} == {
        "flag": True, "tiny": -1, "big": 2**62, "real": 1e300, "price": "10.50", "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.000006Z", "local": "2026-01-02T03:04:05.000006", "raw": "/w==",
        "tags": ["a", None], "both": {"n": 1, "inner": [{"day": "2026-01-02"}]},
    }  # fmt: skip
    fields = bench.ask("GET", f"/{bench.index}/_mapping")[bench.index]["mappings"]["properties"]
    # A text that looks like a date stays a text for those that do not.
    assert (fields["value"]["type"], fields["day"]["type"], fields["big"]["type"]) == ("text", "date", "long")
    bench.committed(rows(b="no date"), epoch=1)


@pytest.mark.parametrize(
    ("field", "kind", "said"),
    [
        ({"type": "integer"}, "bigint", "larger numbers would be refused"),
        ({"type": "float"}, "double", "larger numbers"),
        ({"type": "long"}, "string", "might not fit"),
        ({"type": "date"}, "string", "it takes times only"),
        ({"type": "date", "format": "yyyy"}, "date", "its format is yyyy"),
        ({"type": "ip"}, "string", "might not fit"),
        ({"type": "keyword"}, "map<string,int>", "no single value"),
        ({"type": "object"}, "string", "might not fit"),
    ],
)
def test_a_column_that_its_field_may_refuse_is_refused_at_the_start(
    server: EmbeddedOpenSearch, tmp_path: Path, field: dict[str, str], kind: str, said: str
) -> None:
    bench = Bench(server, tmp_path, mappings={"properties": {"odd": field}})
    error = error_of(lambda: bench.sink().check(replace(CONTEXT, columns=(*COLUMNS, ("odd", kind)))))
    assert isinstance(error, ConfigurationError)
    assert "The column odd is" in error.what
    assert said in error.what


def test_what_no_field_takes_and_a_strict_index_are_refused_by_name(
    server: EmbeddedOpenSearch, tmp_path: Path
) -> None:
    bench = Bench(
        server, tmp_path, mappings={"dynamic": "strict", "properties": {"key": {"type": "keyword"}}}
    )
    error = error_of(lambda: bench.sink().check(CONTEXT))
    assert "is strict and has no field value" in error.what
    path, body = error.next_step.removeprefix("add it: PUT ").split(" ", 1)
    import json

    bench.ask("PUT", path, json.loads(body))
    bench.sink().check(CONTEXT)
    for kind in ("map<string,int>", "interval day to second"):
        context = replace(CONTEXT, columns=(("key", "string"), ("x", kind)))
        error = error_of(lambda context=context: bench.sink().check(context))  # type: ignore[misc]
        assert "knows no field" in error.what


def test_rows_that_no_document_can_hold_are_given_back(bench: Bench) -> None:
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(gives_back=True))
    batch = pa.RecordBatch.from_pydict(
        {"key": ["a", "b", "é" * 257, "d"], "value": [1.5, float("nan"), 2.5, float("inf")]}
    )
    given = sink.write(attempt, batch)
    assert [(each.row, each.code) for each in given] == [
        (1, "NOT_FINITE"), (2, "KEY_TOO_LONG"), (3, "NOT_FINITE"),
    ]  # fmt: skip
    handle = sink.pre_commit(attempt)
    assert handle is not None
    sink.commit(handle)
    assert bench.seen() == {"a": 1.5}


LONG = "x" * 32_767
FAR = dt.datetime(2262, 4, 12, tzinfo=dt.UTC)
NEAR = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("field", "kind", "values", "code"),
    [
        ({"type": "keyword"}, "string", [LONG[1:], LONG], "TOO_LONG"),
        ({"type": "keyword", "index": False}, "string", [LONG[1:], LONG], "TOO_LONG"),
        ({"type": "text", "fields": {"own": {"type": "keyword"}}}, "string", [LONG[1:], LONG], "TOO_LONG"),
        ({"type": "keyword"}, "array<string>", [["a", LONG[1:]], [None, LONG]], "TOO_LONG"),
        ({"type": "keyword"}, "binary", [b"x" * 24_573, b"x" * 24_576], "TOO_LONG"),
        ({"properties": {"s": {"type": "keyword"}}}, "struct<s:string>", [None, {"s": LONG}], "TOO_LONG"),
        ({"type": "date_nanos"}, "timestamp", [NEAR, FAR], "OUT_OF_RANGE"),
        ({"type": "date_nanos"}, "date", [NEAR.date(), dt.date(1969, 12, 31)], "OUT_OF_RANGE"),
        ({"type": "double"}, "array<double>", [[1.5, None], [2.5, float("nan")]], "NOT_FINITE"),
        ({}, "struct<a:array<struct<b:float>>>", [{"a": None}, {"a": [{"b": float("inf")}]}], "NOT_FINITE"),
    ],
)  # fmt: skip
def test_a_value_that_a_field_refuses_or_json_has_not_is_given_back_before_the_vote(
    server: EmbeddedOpenSearch, tmp_path: Path, field: dict[str, Any], kind: str, values: list[Any], code: str
) -> None:
    bench = Bench(server, tmp_path, mappings={"properties": {"value": field} if field else {}})
    facts = bench.sink().check(replace(CONTEXT, columns=(("key", "string"), ("value", kind))))
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(gives_back=True, facts=facts))
    column = pa.array(values, pa.timestamp("us", "UTC") if kind == "timestamp" else None)
    [refused] = sink.write(
        attempt, pa.RecordBatch.from_arrays([pa.array(["a", "b"]), column], ["key", "value"])
    )
    assert (refused.row, refused.code) == (1, code)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    assert sink.commit(handle) == Committed()
    assert set(bench.seen()) == {"a"}


def test_poison_is_given_back_early_and_names_its_row_after_a_decision(
    server: EmbeddedOpenSearch, tmp_path: Path
) -> None:
    bench = Bench(server, tmp_path, mappings={"properties": {"value": {"type": "integer"}}})
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(early=True, gives_back=True))
    [refused] = sink.write(attempt, rows(a="1", b="no number", c="3"))
    assert (refused.row, refused.code) == (1, "MAPPING")
    assert "failed to parse field [value]" in refused.why
    handle = bench.staged(rows(d="4", e="no number"), epoch=1)
    with pytest.raises(RecordRefusedError, match="the key e"):
        bench.sink().commit(handle)
    assert bench.seen() == {"a": "1", "c": "3", "d": "4"}
    bench.ask("POST", f"/{bench.index}/_refresh")


# --- the cluster ------------------------------------------------------------------------------------------------


def test_what_is_no_index_is_refused_by_name(bench: Bench) -> None:
    def said(index: str) -> str:
        return error_of(lambda: bench.sink(index=index).check(CONTEXT)).what

    assert "has no index nowhere" in said("nowhere")
    bench.ask("POST", "/_aliases", {"actions": [{"add": {"index": bench.index, "alias": "of-one"}}]})
    assert "of-one is an alias" in said("of-one")
    template = {"index_patterns": ["stream*"], "data_stream": {}}
    bench.ask("PUT", "/_index_template/streams", template)
    bench.ask("PUT", "/_data_stream/stream-one")
    assert "stream-one is a data stream" in said("stream-one")


def test_an_index_that_asks_for_a_routing_is_refused(server: EmbeddedOpenSearch, tmp_path: Path) -> None:
    bench = Bench(server, tmp_path, mappings={"_routing": {"required": True}})
    assert "asks for a routing" in error_of(lambda: bench.sink().check(CONTEXT)).what


def test_an_index_that_is_blocked_says_whether_it_passes(bench: Bench) -> None:
    handle = bench.staged(rows(a="1"))
    for block, kind in (("read_only_allow_delete", UnavailableError), ("write", ConfigurationError)):
        bench.ask("PUT", f"/{bench.index}/_settings", {f"index.blocks.{block}": True})
        error = error_of(lambda: bench.sink().commit(handle))
        assert isinstance(error, kind), error
        assert ("disk is nearly full" in error.what) == (kind is UnavailableError)
        bench.ask("PUT", f"/{bench.index}/_settings", {f"index.blocks.{block}": None})
    assert bench.sink().commit(handle) == Committed()


def test_what_is_wrong_with_an_index_makes_no_row_a_wrong_one(bench: Bench) -> None:
    """Rows that are refused may become dead letters, and here nothing is wrong with any."""
    sink, settings = bench.sink(), f"/{bench.index}/_settings"
    attempt = sink.begin_transaction(bench.context(early=True, gives_back=True))
    handle = bench.staged(rows(a="1"))

    def require(said: str, *steps: Callable[[], object]) -> None:
        for step in steps:
            error = error_of(step)
            assert isinstance(error, ConfigurationError), error
            assert said in error.what

    writes = (lambda: sink.write(attempt, rows(b="2")), lambda: bench.sink().commit(handle))
    bench.ask("PUT", settings, {"index.default_pipeline": "gone"})
    require("no ingest pipeline", *writes)
    bench.ask("PUT", settings, {"index.default_pipeline": None})
    bench.ask("POST", f"/{bench.index}/_close")
    require("somebody has closed", *writes, lambda: bench.sink().rehearse([handle], {}))
    bench.ask("POST", f"/{bench.index}/_open?wait_for_active_shards=1")
    assert bench.sink().commit(handle) == Committed()


@pytest.mark.long
def test_a_disk_past_its_flood_stage_keeps_the_epoch_pending_until_there_is_room(bench: Bench) -> None:
    def free_wanted(size: str | None) -> None:
        disk = "cluster.routing.allocation.disk"
        names = [f"{disk}.watermark.{each}" for each in ("low", "high", "flood_stage")]
        wanted = dict.fromkeys(names, size) | {f"{disk}.threshold_enabled": None if size is None else "true"}
        # The cluster itself has forbidden to make an index meanwhile, and lifts that only when it looks again.
        lifted = {"cluster.blocks.create_index": None} if size is None else {}
        bench.ask("PUT", "/_cluster/settings", {"transient": wanted, "persistent": lifted})

    def is_read_only() -> bool:
        return "blocks" in bench.ask("GET", f"/{bench.index}/_settings")[bench.index]["settings"]["index"]

    handle = bench.staged(rows(a="1", b="2"))
    before = bench.seen()
    try:
        free_wanted("900tb")  # no disk has as much left, so that this one is as good as full
        assert wait_for(is_read_only, seconds=90)
        for _ in range(2):
            error = error_of(lambda: bench.sink().commit(handle))
            assert isinstance(error, UnavailableError), error
            assert "disk is nearly full" in error.what
            assert "make room" in error.next_step
            assert bench.seen() == before
        free_wanted("1mb")
        assert wait_for(lambda: not is_read_only(), seconds=90)
    finally:
        free_wanted(None)
    assert bench.sink().commit(handle) == Committed()
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert bench.seen() == {"a": "1", "b": "2"}


def test_books_whose_shard_is_not_up_yet_are_not_empty_ones(bench: Bench) -> None:
    sink, books = bench.sink(), f"books-{bench.index}"
    here = "index.routing.allocation.require._name"
    waits = {"settings": {here: "nobody", "number_of_replicas": 0}}
    bench.ask("PUT", f"/{books}?wait_for_active_shards=0", waits)
    assert "no_shard_available" in error_of(lambda: sink._target.documents(books, ["newest:q"])).what
    bench.ask("PUT", f"/{books}/_settings", {here: None})
    assert wait_for(lambda: bench.ask("GET", f"/_cluster/health/{books}")["status"] == "green")
    assert sink._target.documents(books, ["newest:q"]) == {}
    bench.ask("DELETE", f"/{books}")
    assert sink._target.documents(books, ["newest:q"]) == {}


def test_a_translog_that_lags_is_told_of(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.ask("PUT", f"/{bench.index}/_settings", {"index.translog.durability": "async"})
    with caplog.at_level(logging.WARNING, "onceonly"):
        bench.sink().check(CONTEXT)
    assert "makes rows durable some seconds late" in caplog.text


def test_a_cluster_that_is_killed_while_an_epoch_is_applied_gets_the_rest(
    server: EmbeddedOpenSearch, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "BULK_ROWS", 100)
    many = {f"k{number}": str(number) for number in range(1000)}
    handle = bench.staged(rows(**many))
    sink = bench.sink(timeout="5 seconds")
    real, calls = sink._target._once, 0

    def killed(index: str, items: list[Item]) -> list[Told]:
        nonlocal calls
        calls += 1
        if calls == 3:
            server.kill()
        return real(index, items)

    monkeypatch.setattr(sink._target, "_once", killed)
    try:
        error = error_of(lambda: sink.commit(handle))
    finally:
        server.start()
    assert error.restartable
    assert "does not answer" in error.what
    wait_for(
        lambda: bench.ask("GET", f"/_cluster/health/{bench.index}?wait_for_status=green")["status"] == "green"
    )
    assert 0 < len(bench.seen()) < 1000
    assert sink.commit(handle) == Committed()
    assert bench.seen() == many
    assert bench.sink().commit(handle) == AlreadyCommitted()
