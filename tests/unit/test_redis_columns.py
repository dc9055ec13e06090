"""Columns of the Redis sink: what a script is told of some rows is what these rows hold."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from onceonly.sinks.redis.columns import Column
from onceonly.sinks.redis.types import texts

if TYPE_CHECKING:
    from collections.abc import Sequence

WORDS = ["", "a", None, "ä€", "x" * 300, None, "end"]


def held(column: Column, first: int, last: int) -> list[bytes | None]:
    """Take apart what a script is told, as it does."""
    name, nulls, packed, data = column.arguments(first, last)
    assert name == "c"
    ends: Sequence[int] = struct.unpack(f"<{last - first + 1}i", packed)
    assert (ends[0], ends[-1]) == (0, len(data) if last > first else 0)
    return [
        None if nulls[row : row + 1] == b"\1" else data[ends[row] : ends[row + 1]]
        for row in range(last - first)
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("skipped", [0, 3])
def test_each_part_of_a_column_holds_its_own_texts(kind: pa.DataType, skipped: int) -> None:
    wanted = [None if word is None else word.encode() for word in WORDS][skipped:]
    column = Column.of("c", texts(pa.array(WORDS, pa.string()).cast(kind).slice(skipped)))
    for first in range(len(wanted)):
        for last in range(first, len(wanted) + 1):
            assert held(column, first, last) == wanted[first:last]
            assert column.size(first, last) == sum(len(word or b"") for word in wanted[first:last])


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.int64(), pa.list_(pa.string())])
def test_a_column_of_nothing_has_no_texts(kind: pa.DataType) -> None:
    assert held(Column.of("c", texts(pa.nulls(3, kind))), 0, 3) == [None] * 3


def test_a_column_without_nulls_says_so_in_no_byte() -> None:
    assert Column.of("c", texts(pa.array([1, 22]))).arguments(0, 2)[1:] == (
        b"", struct.pack("<3i", 0, 1, 3), b"122",
    )  # fmt: skip
