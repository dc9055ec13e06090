"""What is compressed is read back by libraries that share no frame with ours; by a broker, see ``test_kafka_rows``."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from onceonly.sinks.kafka.records import compression
from onceonly.sinks.kafka.records.record_batches import PLAIN

SIZES = [0, 1, 1000, 65_535, 65_536, 65_537, 300_000]


def texts(size: int) -> list[bytes]:
    """Return one that gets smaller, and one that does not."""
    return [(b"event," * (size // 6 + 1))[:size], random.Random(7).randbytes(size)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "level"), [("gzip", None), ("gzip", 9), ("zstd", None), ("zstd", 3), ("lz4", None), ("lz4", 9)]
)
def test_compressed_bytes_are_read_back(name: str, level: int | None, size: int) -> None:
    found = compression.codec(name, level)
    assert found.compress is not None
    for text in texts(size):
        packed = found.compress(text)
        assert not text or bytes(pa.Codec(name).decompress(packed, len(text))) == text


@pytest.mark.parametrize("size", SIZES)
def test_snappy_is_one_block_in_the_frame_of_java(size: int) -> None:
    found = compression.codec("snappy", None)
    assert found.compress is not None
    for text in texts(size):
        packed = found.compress(text)
        assert packed[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
        assert int.from_bytes(packed[16:20]) == len(packed) - 20
        assert not text or bytes(pa.Codec("snappy").decompress(packed[20:], len(text))) == text


def test_a_block_of_lz4_needs_no_other() -> None:
    found = compression.codec("lz4", None)
    assert found.compress is not None
    assert found.compress(b"x")[4] & 0x20


def test_nothing_is_done_where_nothing_is_asked() -> None:
    assert compression.codec("none", None) is PLAIN
