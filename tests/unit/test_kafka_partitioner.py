"""A key goes where Java's default partitioner puts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as of_kafka_python
from tests.ways import taken

from onceonly.sinks.kafka.records.partitioner import LOOPS, NO_KEY, hashes, murmur2, order

if TYPE_CHECKING:
    from collections.abc import Iterator

# From the tests of kafka-clients, UtilsTest.testMurmur2, as numbers without a sign.
JAVA = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}


@pytest.fixture(params=["by numpy", "by a loop"], scope="module", autouse=True)
def _ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways put keys into the same partitions."""
    with taken(LOOPS, by_loops=request.param == "by a loop"):
        yield


@pytest.mark.parametrize("key", JAVA)
def test_the_hash_is_javas(key: bytes) -> None:
    column = pa.array([key], pa.binary())
    assert murmur2(column).tolist() == [JAVA[key] % (1 << 32)]
    assert hashes(column).tolist() == [JAVA[key] & 0x7FFFFFFF]


@given(
    st.lists(st.none() | st.binary(max_size=40)),
    st.integers(0, 5),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_a_column_of_keys_is_hashed_as_its_keys_are_one_by_one(
    keys: list[bytes | None], offset: int, kind: pa.DataType
) -> None:
    column = pa.array(keys, kind).slice(min(offset, len(keys)))
    found = zip(column.to_pylist(), murmur2(column).tolist(), hashes(column).tolist(), strict=True)
    for key, hashed, positive in found:
        if key is None:
            assert positive == NO_KEY
        else:
            assert hashed == of_kafka_python(key) % (1 << 32)
            assert positive == of_kafka_python(key) & 0x7FFFFFFF


@given(st.lists(st.integers(0, 300), min_size=1, max_size=200))
def test_rows_of_a_partition_keep_their_order(partitions: list[int]) -> None:
    found = order(np.array(partitions))
    assert found.tolist() == sorted(range(len(partitions)), key=lambda row: partitions[row])


def test_a_null_has_no_partition_whatever_bytes_stand_behind_it() -> None:
    bounds, valid = np.array([0, 3, 6], np.int32), np.array([0b01], np.uint8)
    column = pa.Array.from_buffers(
        pa.binary(), 2, [*map(pa.py_buffer, (valid, bounds)), pa.py_buffer(b"abcabc")]
    )
    assert hashes(column).tolist() == [JAVA[b"abc"] & 0x7FFFFFFF, NO_KEY]
