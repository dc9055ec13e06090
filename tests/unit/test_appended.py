"""Appended sinks: what a row becomes, which are refused, and what the family does not promise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pytest

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.families.appended import AppendedSink, Appender
from onceonly.model import Guarantee
from onceonly.ports import QueryContext, Refused, WriteContext
from onceonly.settings.registry import build, settings_of, strongest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CONTEXT = WriteContext(
    query="q", sink="heap", run="r", epoch=3, plan="p", slot=1, attempt="a", guarantee=Guarantee.AT_LEAST_ONCE, index=2,
)  # fmt: skip


class Heap:
    """Fulfils ``Appender``."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.calls: list[str] = []

    def append(self, batch: pa.RecordBatch, values: Sequence[bytes]) -> None:
        assert batch.num_rows == len(values)
        self.rows += values

    def finish(self) -> None:
        self.calls.append("finish")

    def close(self) -> None:
        self.calls.append("close")


class HeapSink(AppendedSink):
    """Appends to a list; refuses what begins with an x."""

    name: ClassVar[str] = "heap"

    def open(self, context: WriteContext) -> Appender:
        self.heap = Heap()
        return self.heap

    def beside(self) -> Sequence[str]:
        return ("shelf",)

    def unfit(
        self, batch: pa.RecordBatch, rows: Sequence[bytes | None], facts: Mapping[str, str | int]
    ) -> Iterator[Refused]:
        for row, value in enumerate(rows):
            if value is not None and value.startswith(b"x"):
                yield Refused(row=row, code="X", why="it begins with an x")


def batch(*values: object, kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(list(values), kind or pa.string())})


def columns(*given: tuple[str, str], **options: str) -> None:
    HeapSink(options).check(
        QueryContext(query="q", sink="heap", guarantee=Guarantee.AT_LEAST_ONCE, columns=given)
    )


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_row_is_its_value(kind: pa.DataType) -> None:
    sink = HeapSink({})
    attempt = sink.begin_transaction(CONTEXT)
    assert not sink.write(attempt, batch(b"a" if kind == pa.binary() else "a", kind=kind))
    assert sink.heap.rows == [b"a"]
    sink.pre_commit(attempt)
    assert sink.heap.calls == ["finish", "close"]


def test_an_envelope_names_query_epoch_try_slot_and_number_of_each_row() -> None:
    sink = HeapSink({"envelope": "json"})
    attempt = sink.begin_transaction(CONTEXT)
    for rows in ({"a": [1, None], "b": ['"', "ü"]}, {"a": [3], "b": ["c"]}):
        sink.write(attempt, pa.RecordBatch.from_pydict(rows))
    told = {"query": "q", "sink": "heap", "epoch": 3, "try": 2, "slot": 1}
    assert [json.loads(row) for row in sink.heap.rows] == [
        {**told, "number": 0, "row": {"a": 1, "b": '"'}},
        {**told, "number": 1, "row": {"b": "ü"}},
        {**told, "number": 2, "row": {"a": 3, "b": "c"}},
    ]


def test_a_second_try_gives_the_same_numbers_also_where_rows_are_refused() -> None:
    sink = HeapSink({"envelope": "json"})
    tries = []
    for parts in ([["a", "b"], ["c"]], [["a"], ["b", "c"]]):
        attempt = sink.begin_transaction(CONTEXT)
        for part in parts:
            sink.write(attempt, batch(*part))
        tries.append(list(sink.heap.rows))
    assert tries[0] == tries[1]


def test_refused_rows_are_given_back_and_the_others_are_written() -> None:
    sink = HeapSink({})
    attempt = sink.begin_transaction(
        WriteContext(**{name: getattr(CONTEXT, name) for name in CONTEXT.__slots__} | {"gives_back": True})
    )
    given = sink.write(attempt, batch("a", None, "x1", "b"))
    assert [(each.row, each.code) for each in given] == [(1, "NO_VALUE"), (2, "X")]
    assert sink.heap.rows == [b"a", b"b"]


def test_without_a_place_for_letters_a_refused_row_stops_before_its_batch_is_written() -> None:
    sink = HeapSink({})
    attempt = sink.begin_transaction(CONTEXT)
    with pytest.raises(RecordRefusedError, match="begins with an x"):
        sink.write(attempt, batch("a", "x"))
    assert sink.heap.rows == []


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
def test_more_than_at_least_once_is_refused_with_the_reason(guarantee: str) -> None:
    assert strongest(HeapSink) is Guarantee.AT_LEAST_ONCE
    settings = settings_of({"onceonly.guarantee": guarantee}, "heap", HeapSink)
    with pytest.raises(ConfigurationError, match=r"taken back.*at-least-once") as found:
        build(settings.sink, HeapSink)
    assert "envelope=json" in found.value.what


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("key", "string")], "the query has key"),
        ([("value", "int")], "it is int"),
        ([("value", "string"), ("more", "int")], "the column more would be left out"),
    ],
)
def test_columns_that_would_be_lost_are_named(given: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        columns(*given)
    columns(*given, envelope="json")


def test_a_column_that_the_sink_reads_may_stand_beside_the_value() -> None:
    columns(("value", "binary"), ("shelf", "string"))


def test_an_envelope_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="none, json"):
        HeapSink({"envelope": "xml"})


@pytest.mark.parametrize("envelope", ["none", "json"])
def test_two_columns_of_one_name_are_refused_and_none_of_them_is_left_out(envelope: str) -> None:
    with pytest.raises(ConfigurationError, match="named value"):
        columns(("value", "string"), ("value", "string"), envelope=envelope)
