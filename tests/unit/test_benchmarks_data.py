"""The input is known without being kept, so what came out can be counted."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks import data
from benchmarks.reading import Partition, missing_and_again, wrong_windows
from benchmarks.values import RECORD_BYTES


def partition(*numbers: int) -> Partition:
    found = np.array(numbers, np.int64)
    return Partition(np.arange(len(numbers), dtype=np.int64), found, Counter())


@pytest.mark.parametrize("size", RECORD_BYTES.values())
def test_a_record_has_its_length_and_says_its_number_and_time(size: int) -> None:
    pool = data.fillers(size)
    for number in (0, 7, 4_999_999):
        value = data.value(number, 1_767_225_600_000_123, pool[number % len(pool)])
        assert len(value) + len(data.key(number, 2)) == size
        assert data.number_of(value) == number
        assert data.stamp_us_of(value) == 1_767_225_600_000_123
    assert pool == data.fillers(size)


def test_each_partition_has_every_key() -> None:
    for number in (0, 1):
        keys = {data.key(each, 2) for each in range(number, 2 * data.APPS, 2)}
        assert len(keys) == data.APPS


@pytest.mark.parametrize(("records", "partitions"), [(8_000, 2), (8_001, 2), (9_999, 3)])
def test_windows_count_every_record_once(records: int, partitions: int) -> None:
    expected = data.expected_windows(records, partitions)
    assert sum(int(row.rsplit(b",", 1)[1]) for row in expected) == records
    begins = {row.split(b",")[1] for row in expected}
    assert min(begins) <= b"2026-01-01 00:00:00.000"


def test_a_record_that_is_not_there_and_one_that_is_there_twice_are_counted() -> None:
    assert missing_and_again([partition(0, 2, 4), partition(1, 3)], 5) == (0, 0)
    assert missing_and_again([partition(0, 2), partition(1, 3)], 5) == (1, 0)
    assert missing_and_again([partition(0, 2, 4, 4, 4), partition(1, 3)], 5) == (0, 2)
    # One for the other is both.
    assert missing_and_again([partition(0, 2, 2), partition(1, 3)], 5) == (1, 1)


def test_a_record_that_was_never_written_is_one_too_much() -> None:
    assert missing_and_again([partition(0, 1, 2, 99)], 3) == (0, 1)


def test_a_window_with_a_wrong_count_is_missing_and_too_much() -> None:
    expected = Counter([b"app000,w,5", b"app001,w,5"])
    nothing = np.array([], np.int64)

    def out(*rows: bytes) -> list[Partition]:
        return [Partition(nothing, nothing, Counter(rows))]

    assert wrong_windows(out(b"app000,w,5", b"app001,w,5"), expected) == (0, 0)
    assert wrong_windows(out(b"app000,w,5", b"app001,w,4"), expected) == (1, 1)
    assert wrong_windows(out(b"app000,w,5", b"app001,w,5", b"app001,w,5"), expected) == (0, 1)
