"""What Cassandra and OpenSearch have of a row is read back as the values that were written, or is said not to be."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from cassandra import util

from onceonly.families.keyed.reading_back import Sum
from onceonly.ports.standing import Held
from onceonly.rows.checksum import RowChecksum
from onceonly.sinks.cassandra import types as cassandra
from onceonly.sinks.opensearch import types as opensearch

NOW = dt.datetime(2026, 11, 27, 16, 30, 0, 123456, tzinfo=dt.UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC)
ID = str(uuid.uuid4())
PARTS = pa.struct([("a", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
DOCUMENTS: dict[str, pa.Array] = {
    "boolean": pa.array([True, False, None]),
    "bigint": pa.array([-(2**63), 2**63 - 1, None]),
    "float": pa.array([0.1, -0.0, None], pa.float32()),
    "double": pa.array([0.1, 5e-324, 1e22, None]),
    "decimal(38,7)": pa.array([Decimal("0.0000001"), Decimal("-12345678901.5"), None], pa.decimal128(38, 7)),
    "string": pa.array(["", "☃𝄞", None]),
    "binary": pa.array([b"", b"\0\xff", None]),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "timestamp": pa.array([NOW, dt.datetime(1, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "Asia/Tokyo")),
    "timestamp_ntz": pa.array([NOW.replace(tzinfo=None), None], pa.timestamp("us")),
    "array<double>": pa.array([[1.0, None], [], None]),
    "struct<a:int,at:timestamp>": pa.array([{"a": 1, "at": NOW}, {"a": None, "at": None}, None], PARTS),
}
ROWS: dict[tuple[str, str], pa.Array] = {
    ("tinyint", "bigint"): pa.array([-128, 127, None], pa.int8()),
    ("float", "double"): pa.array([0.1, -0.0, float("inf"), None], pa.float32()),
    ("decimal(5,2)", "decimal"): pa.array([Decimal("1.20"), None], pa.decimal128(5, 2)),
    ("decimal(20,0)", "varint"): pa.array([Decimal(10**19), None], pa.decimal128(20, 0)),
    ("string", "text"): pa.array(["", "☃", None]),
    ("string", "uuid"): pa.array([ID, None]),
    ("binary", "blob"): pa.array([b"", b"\0\xff", None]),
    ("boolean", "boolean"): pa.array([True, None]),
    ("date", "date"): pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    ("timestamp", "timestamp"): pa.array([LAST, dt.datetime(1, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    ("array<string>", "frozen<list<text>>"): pa.array([["b", "a"], [], None]),
}  # fmt: skip


def added(column: pa.Array) -> str:
    total = RowChecksum()
    total.add(pa.RecordBatch.from_arrays([column], ["c"]))
    return total.value


@pytest.mark.parametrize("spark", DOCUMENTS)
def test_documents_are_read_back_as_they_were_written(spark: str) -> None:
    column = DOCUMENTS[spark]
    documents = opensearch.documents(pa.RecordBatch.from_arrays([column], ["c"]))
    found = Sum([("c", spark)], opensearch.back)
    for each in documents:
        found.add([[json.loads(msgspec.json.encode(each))["c"]]])
    assert found.held() == Held(rows=len(column), checksum=added(column))


@pytest.mark.parametrize(
    ("spark", "value"),
    [("bigint", "1"), ("bigint", True), ("int", 1 << 40), ("boolean", 1), ("double", "x"), ("date", "x"),
     ("decimal(5,2)", "1.505"), ("timestamp", 7), ("binary", "?"), ("string", 1), ("array<int>", 1),
     ("struct<a:int>", [])],
)  # fmt: skip
def test_a_document_with_what_none_is_written_as_was_changed(spark: str, value: object) -> None:
    found = Sum([("c", spark)], opensearch.back)
    found.add([[value]])
    held = found.held()
    assert (held.rows, held.checksum) == (1, "")
    assert f"its c has a value that no {spark} is written as" in held.wrong[0]


def of_the_driver(value: Any, cql: str) -> Any:  # noqa: ANN401  a value of a row
    """Return what the client's driver makes of a value that it was given."""
    if value is None:
        return None
    if cql == "timestamp":  # as it comes: by a float
        return util.datetime_from_timestamp(value / 1000.0)
    return util.Date(value - 2**31) if cql == "date" else value


@pytest.mark.parametrize(("spark", "cql"), ROWS)
def test_rows_of_a_table_are_read_back_as_they_were_written(spark: str, cql: str) -> None:
    column = ROWS[spark, cql]
    found = Sum([("c", spark)], cassandra.back, kept=lambda _name, _kind: cassandra.kept(cql))
    found.add([[of_the_driver(each, cql)] for each in cassandra.values(column, cql)])
    assert found.held() == Held(rows=len(column), checksum=added(column))


@pytest.mark.parametrize("cql", ["set<text>", "frozen<list<frozen<set<int>>>>", "map<text, int>"])
def test_what_does_not_keep_its_order_is_counted(cql: str) -> None:
    found = Sum([("c", "array<string>")], cassandra.back, kept=lambda _name, _kind: cassandra.kept(cql))
    found.add([[["a"]]])
    assert (found.held().rows, found.held().checksum) == (1, "")
    assert "does not keep the order" in found.held().unread


def test_a_number_beyond_its_type_was_changed() -> None:
    found = Sum([("c", "tinyint")], cassandra.back)
    found.add([[1000]])
    assert "no tinyint is written as" in found.held().wrong[0]
