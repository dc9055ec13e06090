"""The checksum depends on the rows and on nothing else."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceonly.runtime.checksum import RowChecksum

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None)
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.string()), ("count", pa.int64())])
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=4),
        st.none() | st.text(max_size=4),
        st.none() | st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=8,
)


def checksum(*batches: pa.RecordBatch) -> tuple[int, str]:
    total = RowChecksum()
    for batch in batches:
        total.add(batch)
    return total.rows, total.value


def batch(rows: list[tuple[object, ...]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema
    )


@QUICK
@given(rows=ROWS, data=st.data())
def test_neither_order_nor_batches_matter(rows: list[tuple[object, ...]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))

    assert checksum(batch(rows)) == checksum(batch(shuffled[:cut]), batch(shuffled[cut:]))


@QUICK
@given(rows=ROWS.filter(bool), other=ROWS.filter(bool))
def test_other_rows_have_another_checksum(
    rows: list[tuple[object, ...]], other: list[tuple[object, ...]]
) -> None:
    if sorted(map(repr, rows)) != sorted(map(repr, other)):
        assert checksum(batch(rows)) != checksum(batch(other))


def test_a_row_twice_is_not_the_row_once() -> None:
    row = (b"k", "v", 1)

    assert checksum(batch([row, row])) != checksum(batch([row]))


def test_null_is_not_empty_and_columns_are_not_interchangeable() -> None:
    rows = [(None, "", 1), (b"", None, 1), (b"", "", 1), (b"a", "", 1), (b"", "a", 1)]

    assert len({checksum(batch([row])) for row in rows}) == len(rows)


def test_the_algorithm_stays_what_decisions_on_disk_were_made_with() -> None:
    assert checksum(batch([(b"k", "v", 1), (None, None, None)])) == (2, "590838f696bcf477")


def test_no_rows_sum_to_nothing() -> None:
    assert checksum(batch([])) == (0, "0" * 16)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float64(), 0.1),
        (pa.bool_(), True),
        (pa.date32(), dt.date(2013, 1, 1)),
        (pa.timestamp("us", "UTC"), dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
        (pa.decimal128(10, 2), decimal.Decimal("1.50")),
        (pa.list_(pa.int32()), [1, 2]),
        (pa.struct([("a", pa.int32())]), {"a": 1}),
        (pa.large_string(), "v"),
        (pa.large_binary(), b"v"),
    ],
    ids=str,
)
def test_every_type_that_spark_sends_is_taken(kind: pa.DataType, value: object) -> None:
    schema = pa.schema([("x", kind)])

    assert checksum(batch([(value,)], schema)) != checksum(batch([(None,)], schema))
