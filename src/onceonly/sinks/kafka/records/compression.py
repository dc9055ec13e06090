"""How record batches are compressed, in the frames that Kafka's Java reads. Pure."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import xxhash

from onceonly.sinks.kafka.records.record_batches import PLAIN, Codec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Kafka's numbers, org.apache.kafka.common.record.CompressionType.
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
# What snappy-java's SnappyInputStream reads: versions, then blocks, each behind its length.
_XERIAL = b"\x82SNAPPY\0" + (1).to_bytes(4) + (1).to_bytes(4)
# https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md: version 1, blocks that do not need each other, which is
# all that Kafka's Java reads, and of at most 64 KB, as it writes them. Arrow's frames have blocks that do.
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_FLAGS = b"\x60\x40"
_LZ4_BLOCK_BYTES = 1 << 16
_LZ4_AS_IT_IS = 1 << 31
_LZ4_END = b"\0\0\0\0"
# zlib's largest window, and 16 for gzip's frame.
_GZIP_WINDOW = 31
# Java's default; Arrow's is 1.
_ZSTD_LEVEL = 3


def codec_of(client: Mapping[str, str]) -> Codec:
    """Return the codec that a configuration of librdkafka names."""
    level = client.get("compression.level")
    return codec(client.get("compression.type", "none"), None if level is None else int(level))


def codec(name: str, level: int | None) -> Codec:
    """Return the codec of ``compression.type``, with a level where one is asked for; LZ4 and Snappy have none here."""
    import pyarrow as pa

    if name == "none":
        return PLAIN
    if name == "gzip":
        return Codec(_GZIP, lambda records: _gzip(records, -1 if level is None else level))
    if name == "lz4":
        block = pa.Codec("lz4_raw").compress
        return Codec(_LZ4, lambda records: _lz4_frame(records, block))
    if name == "snappy":
        whole = pa.Codec("snappy").compress
        return Codec(_SNAPPY, lambda records: _xerial_frame(bytes(whole(records))))
    compress = pa.Codec("zstd", _ZSTD_LEVEL if level is None else level).compress
    return Codec(_ZSTD, lambda records: bytes(compress(records)))


def _gzip(records: bytes, level: int) -> bytes:
    # Not Arrow's: what is called level there is how much memory zlib takes.
    work = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    return work.compress(records) + work.flush()


def _xerial_frame(packed: bytes) -> bytes:
    return b"".join((_XERIAL, len(packed).to_bytes(4), packed))


def _lz4_frame(records: bytes, compress: Callable[[Any], Any]) -> bytes:
    checksum = (xxhash.xxh32_intdigest(_LZ4_FLAGS) >> 8) & 0xFF
    frame = [_LZ4_MAGIC, _LZ4_FLAGS, checksum.to_bytes(1)]
    for begin in range(0, len(records), _LZ4_BLOCK_BYTES):
        block = records[begin : begin + _LZ4_BLOCK_BYTES]
        packed = bytes(compress(block))
        if len(packed) < len(block):
            frame += [len(packed).to_bytes(4, "little"), packed]
        else:
            frame += [(len(block) | _LZ4_AS_IT_IS).to_bytes(4, "little"), block]
    return b"".join((*frame, _LZ4_END))
