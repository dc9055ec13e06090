"""A key goes where Java's default partitioner puts it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as of_kafka_python

from onceonly.sinks.kafka.partitioner import NO_KEY, hashes, murmur2

# From the tests of kafka-clients, UtilsTest.testMurmur2, as numbers without a sign.
JAVA = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}


@pytest.mark.parametrize("key", JAVA)
def test_the_hash_is_javas(key: bytes) -> None:
    assert murmur2(pa.array([key], pa.binary())).tolist() == [JAVA[key] % (1 << 32)]


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
