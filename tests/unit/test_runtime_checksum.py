"""The checksum depends on the rows and on nothing else."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit import unreadable
from tests.ways import taken

from onceonly.errors import LogError
from onceonly.model import Vote
from onceonly.rows.checksum import LONG_LOOPS, LOOPS, RowChecksum, require_comparable

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture(params=["by numpy", "by a loop"], scope="module", autouse=True)
def _ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways give the same checksum."""
    by_loops = request.param == "by a loop"
    with taken(LOOPS, by_loops=by_loops), taken(LONG_LOOPS, by_loops=by_loops):
        yield


def checksum(*batches: pa.RecordBatch) -> tuple[int, str]:
    total = RowChecksum()
    for batch in batches:
        total.add(batch)
    return total.rows, total.value


def murmurhash64a(data: bytes, seed: int) -> int:
    """MurmurHash64A as in SMHasher's MurmurHash2.cpp, byte by byte."""
    m, mask = 0xC6A4A7935BD1E995, 2**64 - 1
    h = seed ^ (len(data) * m & mask)
    for start in range(0, len(data) - len(data) % 8, 8):
        k = int.from_bytes(data[start : start + 8], "little") * m & mask
        k = (k ^ k >> 47) * m & mask
        h = (h ^ k) * m & mask
    if tail := data[len(data) - len(data) % 8 :]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 47) * m & mask
    return h ^ h >> 47


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
    rows: list[tuple[object, ...]] = [(b"k", "v", 1), (None, None, None)]

    assert checksum(batch(rows)) == (2, "murmur64:a2c25cad7def6a1d")


def test_long_values_stay_hashed_as_decisions_on_disk_were_made_with() -> None:
    values = [bytes(number % 251 for number in range(size)) for size in (129, 240, 241, 1024, 1025, 3000)]
    rows = pa.record_batch({"a": pa.array(values, pa.binary()), "b": pa.array(values[::-1], pa.binary())})

    assert checksum(rows) == (6, "murmur64:504bf2473eb47db4")


@QUICK
@given(
    values=st.lists(st.binary(max_size=40), min_size=1, max_size=6), cut=st.integers(0, 6), wide=st.booleans()
)
def test_values_are_hashed_by_murmurhash64a(values: list[bytes], cut: int, wide: bool) -> None:  # noqa: FBT001  drawn
    column = pa.array(values, pa.large_binary() if wide else pa.binary())
    rows = pa.RecordBatch.from_arrays([column, column], names=["a", "b"]).slice(cut)
    expected = sum(murmurhash64a(value, murmurhash64a(value, 0)) for value in values[cut:])

    assert checksum(rows)[1] == f"murmur64:{expected % 2**64:016x}" or not rows.num_rows


def hashed(value: bytes | None, seed: int) -> int:
    """Short values by MurmurHash64A, long ones by xxh3, and null as a word whose length is left out."""
    if value is None:
        return murmurhash64a(b"onceonly"[::-1], seed ^ 8 * 0xC6A4A7935BD1E995 % 2**64)
    return murmurhash64a(value, seed) if len(value) <= 128 else xxhash.xxh3_64_intdigest(value, seed)


LENGTHS = st.sampled_from([0, 7, 128, 129, 240, 241, 1024, 1025, 3000]) | st.integers(0, 5000)


@QUICK
@given(
    lengths=st.lists(st.none() | LENGTHS, min_size=1, max_size=9),
    cut=st.integers(0, 9),
    wide=st.booleans(),
)
def test_short_long_and_null_values_are_hashed_row_by_row(
    lengths: list[int | None],
    cut: int,
    wide: bool,  # noqa: FBT001  drawn
) -> None:
    values = [None if n is None else bytes((n + i) % 251 for i in range(n)) for n in lengths]
    column = pa.array(values, pa.large_binary() if wide else pa.binary())
    rows = pa.RecordBatch.from_arrays([column, column], names=["a", "b"]).slice(cut)
    expected = sum(hashed(value, hashed(value, 0)) for value in values[cut:])

    assert checksum(rows)[1] == f"murmur64:{expected % 2**64:016x}" or not rows.num_rows


def test_a_batch_of_many_rows_is_the_sum_of_its_rows() -> None:
    values = [b"%0128d" % number for number in range(3_000)] + [b"%0100d" % number for number in range(3_000)]
    expected = sum(murmurhash64a(value, 0) for value in values)

    found = checksum(pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["a"]))
    assert found == (6_000, f"murmur64:{expected % 2**64:016x}")


def test_the_reference_is_the_published_function() -> None:
    assert murmurhash64a(b"", 0) == 0
    assert murmurhash64a(b"hello world", 0) == 0xD3BA2368A832AFCE


@pytest.mark.parametrize("size", [127, 128, 129, 1000])
def test_short_and_long_values_stand_side_by_side(size: int) -> None:
    long, short = b"x" * size, b"x" * 10
    apart = [checksum(batch([row]))[1].rpartition(":")[2] for row in ((long, "", 1), (short, "", 1))]

    assert checksum(batch([(long, "", 1), (short, "", 1)])) == (
        2, f"murmur64:{sum(int(digits, 16) for digits in apart) % 2**64:016x}",
    )  # fmt: skip
    assert checksum(batch([(long, "", 1)])) != checksum(batch([(long[:-1] + b"y", "", 1)]))


def test_a_replay_is_not_compared_with_a_decision_of_another_algorithm() -> None:
    old = Vote(sink="a", epoch=1, slot=0, plan="p", run="r", attempt="1", rows=1, checksum="00ff00ff00ff00ff")
    new = dataclasses.replace(old, checksum="murmur64:00ff00ff00ff00ff")

    require_comparable([])
    require_comparable([new])
    with pytest.raises(LogError, match="00ff00ff00ff00ff, which this version does not know"):
        require_comparable([new, old])


def test_no_rows_sum_to_nothing() -> None:
    assert checksum(batch([])) == (0, "murmur64:" + "0" * 16)


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


@pytest.mark.parametrize("text", [b"abc", b"x" * 300])
def test_a_null_counts_as_a_null_whatever_bytes_stand_behind_it(text: bytes) -> None:
    bounds = pa.array([0, len(text), 2 * len(text)], pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\1"), bounds, pa.py_buffer(text * 2)])
    plain = pa.array([text, None], pa.binary())
    found, expected = (checksum(pa.record_batch({"key": each, "value": each})) for each in (column, plain))
    assert found == expected


@pytest.mark.parametrize("what", unreadable.COLUMNS)
def test_a_value_that_python_cannot_hold_counts_inside_of_others_and_changes_none_beside_it(
    what: str,
) -> None:
    inner = unreadable.COLUMNS[what][1]
    column = pa.StructArray.from_arrays([inner], ["x"])
    both, first, second = (
        checksum(pa.record_batch({"n": each})) for each in (column, column.slice(0, 1), column.slice(1))
    )

    assert both == checksum(
        pa.record_batch({"n": column.slice(0, 1)}), pa.record_batch({"n": column.slice(1)})
    )
    assert first != second


def test_a_time_inside_of_others_counts_as_its_instant_whatever_the_zone_of_the_session() -> None:
    def of(zone: str) -> tuple[int, str]:
        at = pa.array([10**15, None]).cast(pa.timestamp("us", zone))
        pairs = pa.StructArray.from_arrays([at], ["at"])
        lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pairs)
        return checksum(pa.record_batch({"pair": pairs, "list": lists}))

    assert of("UTC") == of("America/New_York")
