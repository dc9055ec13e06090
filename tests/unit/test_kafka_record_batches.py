"""Record batches made of columns hold what kafka-python, which shares no code with them, reads back."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from tests.ways import taken

from onceonly.sinks.kafka.records import record_batches
from onceonly.sinks.kafka.records.fields import RECORD_BYTES_MAX, Fields, Row, spelled
from onceonly.sinks.kafka.records.record_batches import BATCH_BYTES, LOOPS, Identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TEXTS = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), TEXTS), max_size=3)
KINDS = [pa.binary(), pa.large_binary(), pa.binary_view()]
BY = Identity(7_000_000_000, 12)


@pytest.fixture(params=["by views", "by a loop"], scope="module", autouse=True)
def _ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways give the same records: neither knows of the other."""
    with taken(LOOPS, by_loops=request.param == "by a loop"):
        yield


def sealed(fields: Fields) -> bytes:
    count = len(fields)
    found, bounds = record_batches.records(fields).make(np.arange(count), np.arange(count))
    assert bounds[0] == 0
    piece = found.slice(0, int(bounds[-1]))
    return b"".join(record_batches.seal([piece], count, by=BY, sequence=3, time_ms=1_700_000_000_123))


def in_pieces(values: Sequence[bytes | None], kind: pa.DataType, begin: int, step: int) -> list[pa.Array]:
    column = pa.array(values, kind)
    return [column.slice(first, step) for first in range(begin, len(column), step)]


def read(batch: bytes) -> list[Any]:
    found = MemoryRecords(batch).next_batch()
    assert found is not None
    assert found.validate_crc()
    return list(found)


@given(
    st.lists(st.tuples(TEXTS, TEXTS, HEADERS), min_size=1, max_size=200),
    st.sets(st.sampled_from(["key", "headers"])),
    st.sampled_from(KINDS),
    st.integers(0, 3),
    st.integers(1, 10),
)
def test_what_is_written_is_what_is_read(
    rows: list[Row],
    present: set[str],
    kind: pa.DataType,
    begin: int,
    cut: int,
) -> None:
    rows = rows[min(begin, len(rows) - 1) :]
    keys, values, headers = zip(*rows, strict=True)
    fields = Fields.of(
        in_pieces([b"before", *values], kind, 1, cut),
        in_pieces([b"before", *keys], kind, 1, cut + 3) if "key" in present else None,
        list(map(spelled, headers)) if "headers" in present else None,
    )
    found = read(sealed(fields))
    assert [each.offset for each in found] == list(range(len(rows)))
    assert {each.timestamp for each in found} == {1_700_000_000_123}
    assert [(each.value, each.key, each.headers) for each in found] == [
        (value, key if "key" in present else None, listed if "headers" in present else [])
        for key, value, listed in rows
    ]


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193])
def test_offsets_are_right_where_their_length_changes(count: int) -> None:
    found = read(sealed(Fields.of([pa.array([b"v"] * count)], None, None)))
    assert [each.offset for each in found] == list(range(count))


@pytest.mark.parametrize("size", [0, 1, 50, 63, 64, 8191, 8192, 1_100_000])
def test_rows_of_every_size_are_read_back(size: int) -> None:
    rows = [b"x" * size, b"", b"y" * size]
    found = read(sealed(Fields.of([pa.array(rows)], [pa.array(rows)], None)))
    assert [(each.key, each.value) for each in found] == list(zip(rows, rows, strict=True))


@given(st.permutations(range(12)), st.integers(0, 12), st.integers(0, 20_000))
def test_rows_are_written_in_the_order_that_is_asked_for(order: list[int], count: int, size: int) -> None:
    values, keys = [b"v" * (size * row % 301) for row in range(12)], [b"%d" % row for row in range(12)]
    rows = np.array(order[: max(count, 1)])
    fields = Fields.of(in_pieces(values, pa.binary(), 0, 5), in_pieces(keys, pa.string(), 0, 7), None)
    found, bounds = record_batches.records(fields).make(rows, np.arange(len(rows)))
    batch = b"".join(record_batches.seal([found], len(rows), by=BY, sequence=0, time_ms=1))
    assert len(found) == bounds[-1]
    assert [(each.key, each.value) for each in read(batch)] == [(keys[row], values[row]) for row in rows]


def test_rows_behind_two_gigabytes_of_others_are_written() -> None:
    begin, size = 2_200_000_000, 100
    memory = np.zeros(begin + 2 * size, np.uint8)  # the system gives only what is touched
    memory[begin:] = np.arange(2 * size)
    bounds = np.array([0, begin, begin + size, begin + 2 * size])
    column = pa.Array.from_buffers(
        pa.large_binary(), 3, [None, pa.py_buffer(bounds), pa.py_buffer(memory)]
    ).slice(1)
    assert [each.value for each in read(sealed(Fields.of([column], None, None)))] == column.to_pylist()


def test_records_of_several_calls_make_one_batch() -> None:
    pieces = []
    for first, values in ((0, [b"a", b"b"]), (2, [b"c"] * 100), (102, [b"d"])):
        rows = np.arange(len(values))
        found, bounds = record_batches.records(Fields.of([pa.array(values)], None, None)).make(
            rows, first + rows
        )
        pieces.append(found.slice(0, int(bounds[-1])))
    batch = b"".join(record_batches.seal(pieces, 103, by=BY, sequence=0, time_ms=1))
    assert [each.value for each in read(batch)] == [b"a", b"b", *[b"c"] * 100, b"d"]


def test_the_head_says_who_wrote_and_which_rows() -> None:
    batch = sealed(Fields.of([pa.array([b"a", b"b"])], None, None))
    (
        base,
        length,
        leader,
        version,
        _,
        attributes,
        last,
        first_time,
        last_time,
        producer,
        epoch,
        sequence,
        count,
    ) = struct.unpack_from(">qiibIhiqqqhii", batch)
    assert (base, length, leader, version) == (0, len(batch) - 12, -1, 2)
    assert (attributes, last, count, sequence) == (0x10, 1, 2, 3)
    assert (first_time, last_time) == (1_700_000_000_123,) * 2
    assert Identity(producer, epoch) == BY


@given(st.lists(st.tuples(TEXTS, TEXTS, HEADERS), min_size=1, max_size=20))
def test_a_record_is_never_longer_than_said(
    rows: list[Row],
) -> None:
    fields = Fields.of_rows(rows)
    _, bounds = record_batches.records(fields).make(np.arange(len(rows)), np.full(len(rows), 2**31 - 1))
    assert (np.diff(bounds) <= fields.sizes + RECORD_BYTES_MAX).all()
    assert BATCH_BYTES == 61


@given(st.lists(st.tuples(TEXTS, TEXTS, HEADERS), min_size=1, max_size=20))
def test_records_that_are_not_sent_yet_can_be_read_back(
    rows: list[Row],
) -> None:
    fields = Fields.of_rows(rows)
    found, bounds = record_batches.records(fields).make(np.arange(len(rows)), np.arange(len(rows)))
    assert list(record_batches.rows([found.slice(0, int(bounds[-1]))], len(rows))) == rows


def test_a_sequence_number_begins_anew_after_the_highest() -> None:
    assert record_batches.next_sequence(2**31 - 1, 1) == 0
    assert record_batches.next_sequence(2**31 - 10, 20) == 10
    assert record_batches.next_sequence(5, 3) == 8


@given(
    st.lists(st.tuples(TEXTS, TEXTS, HEADERS), min_size=1, max_size=20),
    st.lists(st.sampled_from([0, 63, 64, 8191, 8192, 1 << 20, 1 << 27, 2**31 - 1]), min_size=20, max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_views_and_loops_make_the_same_records(
    rows: list[Row],
    deltas: list[int],
    has_keys: bool,  # noqa: FBT001  drawn
    has_headers: bool,  # noqa: FBT001  drawn
) -> None:
    from onceonly.sinks.kafka.records import record_loops, record_views

    keys, values, headers = zip(*rows, strict=True)
    fields = Fields.of(
        in_pieces(values, pa.binary(), 0, 7),
        in_pieces(keys, pa.large_binary(), 0, 5) if has_keys else None,
        list(map(spelled, headers)) if has_headers else None,
    )
    order, places = np.arange(len(rows))[::-1], np.array(deltas[: len(rows)])
    found, bounds = record_loops.Records(fields).make(order, places)
    expected, others = record_views.Records(fields).make(order, places)
    assert found.to_pybytes() == expected.to_pybytes()[: int(others[-1])]
    assert bounds.tolist() == others.tolist()
    assert (np.diff(bounds) <= fields.sizes[order] + RECORD_BYTES_MAX).all()


def with_bytes_behind_nulls() -> pa.Array:
    """Four texts, of which Arrow says that two are null, and has bytes of them."""
    bounds, valid = np.array([0, 3, 6, 8, 20], np.int32), np.array([0b1001], np.uint8)
    return pa.Array.from_buffers(
        pa.binary(), 4, [*map(pa.py_buffer, (valid, bounds)), pa.py_buffer(b"x" * 20)]
    )


def test_null_is_null_whatever_bytes_stand_behind_it() -> None:
    column = with_bytes_behind_nulls()
    found = read(sealed(Fields.of([column], [column], None)))
    assert [(each.key, each.value) for each in found] == [
        (text, text) for text in (b"xxx", None, None, b"x" * 12)
    ]
