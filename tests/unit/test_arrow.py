"""Arrow's batches, put together into larger ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.executor.slot import in_larger
from onceonly.rows.arrow import at_each_byte, may_have

if TYPE_CHECKING:
    from collections.abc import Iterator


def _of(*counts: int) -> list[pa.RecordBatch]:
    """Batches of so many rows of 8 bytes, numbered through."""
    begins = [sum(counts[:place]) for place in range(len(counts))]
    return [
        pa.record_batch({"n": pa.array(range(begin, begin + count), pa.int64())})
        for begin, count in zip(begins, counts, strict=True)
    ]


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 30), st.integers(1, 300))
def test_every_row_comes_once_and_in_order(counts: list[int], rows: int, size: int) -> None:
    found = [batch["n"].to_pylist() for batch in in_larger(_of(*counts), rows=rows, size=size)]

    assert [number for batch in found for number in batch] == list(range(sum(counts)))
    assert all(found)


@pytest.mark.parametrize(
    ("counts", "larger"),
    [
        ([], []),
        ([0, 0], []),
        ([0, 2, 0], [2]),
        ([2, 2, 2, 2, 2, 2, 2], [2, 6, 6]),
        ([2, 1, 3, 0, 1, 3], [2, 5, 3]),
        ([2, 50, 1], [2, 50, 1]),
    ],
    ids=str,
)
def test_batches_come_once_they_have_enough_rows(counts: list[int], larger: list[int]) -> None:
    assert [batch.num_rows for batch in in_larger(_of(*counts), rows=5, size=1 << 30)] == larger


def test_batches_come_once_they_have_enough_bytes() -> None:
    assert [batch.num_rows for batch in in_larger(_of(1, 3, 3, 3, 3), rows=100, size=48)] == [1, 6, 6]


def test_the_first_rows_are_waited_for_by_nobody() -> None:
    asked: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for place, batch in enumerate(_of(0, 1, 1, 1)):
            asked.append(place)
            yield batch

    larger = in_larger(batches(), rows=100, size=1 << 30)
    assert next(larger).num_rows == 1
    assert asked == [0, 1]
    assert next(larger).num_rows == 2


def test_a_batch_that_is_large_enough_is_given_as_it_is() -> None:
    given_ones = _of(1, 9)
    found = list(in_larger(given_ones, rows=5, size=1 << 30))
    assert all(one is other for one, other in zip(found, given_ones, strict=True))


def test_words_are_read_at_every_offset() -> None:
    data = np.arange(11, dtype=np.uint8)
    assert [word.to_bytes(8, "little") for word in at_each_byte(data).tolist()] == [
        bytes(range(first, first + 8)) for first in range(4)
    ]
    assert len(at_each_byte(data, 4)) == 8
    assert len(at_each_byte(data[:7])) == 0


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
@given(
    values=st.lists(st.none() | st.text("ab\0", max_size=3), max_size=6),
    first=st.integers(0, 6),
    count=st.integers(0, 6),
)
def test_a_byte_is_found_in_what_a_slice_holds_and_nowhere_else(
    kind: pa.DataType, values: list[str | None], first: int, count: int
) -> None:
    column = pa.array(values).cast(kind).slice(first, count)
    assert may_have(column, b"\0b") == any(
        each is not None and {"\0", "b"} & set(each) for each in values[first : first + count]
    )
