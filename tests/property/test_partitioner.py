"""librdkafka's ``murmur2_random`` and Java's default partitioner agree on every key."""

from __future__ import annotations

import ctypes
import ctypes.util
from pathlib import Path

import confluent_kafka
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

# From the tests of kafka-clients, UtilsTest.testMurmur2.
GOLDEN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
_WORD = 0xFFFFFFFF


def java_murmur2(data: bytes) -> int:
    """The algorithm of org.apache.kafka.common.utils.Utils.murmur2, as a signed 32-bit number."""
    m = 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & _WORD
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & _WORD
        k = (k ^ k >> 24) * m & _WORD
        h = (h * m & _WORD) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & _WORD
    h = (h ^ h >> 13) * m & _WORD
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


def java_partition(key: bytes, partitions: int) -> int:
    return (java_murmur2(key) & 0x7FFFFFFF) % partitions


def librdkafka() -> ctypes.CDLL:
    """The very library that confluent-kafka writes with."""
    bundled = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    (library,) = bundled.glob("librdkafka*.so*")
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize(("key", "expected"), GOLDEN.items())
def test_this_murmur2_is_javas(key: bytes, expected: int) -> None:
    assert java_murmur2(key) == expected


@given(key=st.binary(max_size=200), partitions=st.integers(1, 1000))
@settings(max_examples=500)
def test_librdkafka_partitions_as_java(key: bytes, partitions: int) -> None:
    partitioner = librdkafka().rd_kafka_msg_partitioner_murmur2_random
    partitioner.restype = ctypes.c_int32
    buffer = ctypes.create_string_buffer(key, max(len(key), 1))
    chosen = partitioner(None, buffer, ctypes.c_size_t(len(key)), ctypes.c_int32(partitions), None, None)
    assert chosen == java_partition(key, partitions)
