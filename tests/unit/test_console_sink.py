"""The console sink."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from tests.unit import unreadable

from onceonly.errors import ConfigurationError
from onceonly.model import Committed, Guarantee, Handle
from onceonly.ports import WriteContext
from onceonly.sinks.console import ConsoleSink

CONTEXT = WriteContext(
    query="q",
    sink="console",
    run="r",
    epoch=3,
    plan="p",
    slot=1,
    attempt="a",
    guarantee=Guarantee.AT_LEAST_ONCE,
)


def prepare(sink: ConsoleSink, *batches: dict[str, list[object]]) -> Handle:
    sample = sink.begin_transaction(CONTEXT)
    for batch in batches:
        sink.write(sample, pa.RecordBatch.from_pydict(batch))
    handle = sink.pre_commit(sample)
    return Handle(transaction=handle.transaction, data=json.loads(json.dumps(dict(handle.data))))


def test_a_commit_prints_the_first_rows_and_counts_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink({"numRows": "2", "truncate": "6"})
    handle = prepare(sink, {"id": [1], "name": ["Anastasia"]}, {"id": [2, 3], "name": [None, "x"]})
    assert capsys.readouterr().out == ""
    assert sink.commit(handle) == Committed()
    assert capsys.readouterr().out == (
        "-- chk-3, slot 1\n"
        "+--+------+\n"
        "|id|  name|\n"
        "+--+------+\n"
        "| 1|Ana...|\n"
        "| 2|  NULL|\n"
        "+--+------+\n"
        "only showing the first 2 of 3 rows\n"
    )


@pytest.mark.parametrize("what", unreadable.COLUMNS)
def test_a_value_that_python_cannot_hold_is_shown_all_the_same(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = ConsoleSink({})
    sample = sink.begin_transaction(CONTEXT)
    sink.write(sample, pa.RecordBatch.from_arrays([unreadable.COLUMNS[what][1]], names=["value"]))
    sink.commit(sink.pre_commit(sample))
    assert capsys.readouterr().out.count("\n") == 7


def test_an_abort_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink({})
    sink.abort(prepare(sink, {"id": [1]}))
    assert capsys.readouterr().out == ""


def test_a_handle_stays_small_whatever_the_rows() -> None:
    handle = prepare(ConsoleSink({"truncate": "false"}), {"text": ["x" * 100_000] * 50})
    assert len(str(handle.data["rows"])) < 20 * 1010
    assert handle.data["count"] == 50


def test_it_promises_at_least_once_only() -> None:
    assert ConsoleSink.capabilities.guarantees == {Guarantee.AT_LEAST_ONCE}


@pytest.mark.parametrize(
    ("options", "said"),
    [({"numrow": "1"}, "numrow"), ({"numRows": "many"}, "'many'"), ({"numRows": "9999"}, "1000"),
     ({"truncate": "yes"}, "'yes'")],
)  # fmt: skip
def test_wrong_options_are_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ConsoleSink(options)
