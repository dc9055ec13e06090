"""Records as rows, and records that hold many: those that the Kinesis Producer Library (KPL) has packed. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

SCHEMA = (
    ("value", "binary"),
    ("partitionKey", "string"),
    ("sequenceNumber", "string"),
    ("subSequenceNumber", "int"),
    ("shardId", "string"),
    ("approximateArrivalTimestamp", "timestamp"),
)
"""The columns, by name and Spark's type. ``subSequenceNumber`` is a row's place in its record."""
DDL = ", ".join(f"{name} {kind}" for name, kind in SCHEMA)
_BATCH_ROWS = 10_000
_MAGIC, _DIGEST_BYTES = b"\xf3\x89\x9a\xc2", 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def batches(
    records: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    aggregated: bool,
    within: Mapping[str, tuple[int, int]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of records, shard by shard, in the order of each.

    ``within`` are the first and the last hash key of shards of which messages with other keys are left out.
    """
    import pyarrow as pa

    kinds = (pa.binary(), pa.string(), pa.string(), pa.int32(), pa.string(), pa.timestamp("us", "UTC"))
    schema = pa.schema([(name, kind) for (name, _), kind in zip(SCHEMA, kinds, strict=True)])
    for shard in sorted(records):
        rows = [
            (data, key, record["SequenceNumber"], place, shard, record["ApproximateArrivalTimestamp"])
            for record in records[shard]
            for place, (key, data, at) in enumerate(unpacked(record) if aggregated else [_whole(record)])
            if at is None or not within or shard not in within or _is_in(key, at, within[shard])
        ]
        for first in range(0, len(rows), _BATCH_ROWS):
            columns = zip(*rows[first : first + _BATCH_ROWS], strict=True)
            arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def is_aggregate(record: Mapping[str, Any]) -> bool:
    """Say whether a record looks like an aggregate."""
    return bytes(record["Data"]).startswith(_MAGIC)


def unpacked(record: Mapping[str, Any]) -> list[tuple[str, bytes, str | None]]:
    """Return partition key, data and explicit hash key of each message in a record.

    Its own where it is no aggregate, with None; a message without such a hash key has an empty one.

    An aggregate begins with four bytes of its own, and ends with the MD5 of what lies between, a protocol buffer.
    """
    data: bytes = record["Data"]
    body = data[len(_MAGIC) : -_DIGEST_BYTES]
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    if not data.startswith(_MAGIC) or data[-_DIGEST_BYTES:] != digest:
        return [_whole(record)]
    try:
        keys: list[str] = []
        hashes: list[str] = []
        found: list[tuple[int, bytes, int | None]] = []
        for field, value in _fields(body):
            if field == 1:
                keys.append(bytes(value).decode())
            elif field == 2:  # noqa: PLR2004  an explicit hash key
                hashes.append(bytes(value).decode())
            elif field == 3:  # noqa: PLR2004  a message
                told = dict(_fields(bytes(value)))
                found.append((int(told[1]), bytes(told[3]), told.get(2)))
        return [(keys[key], value, "" if at is None else hashes[at]) for key, value, at in found]
    except (IndexError, KeyError, UnicodeDecodeError, ValueError, TypeError):
        return [_whole(record)]  # what looks like one by chance


def _whole(record: Mapping[str, Any]) -> tuple[str, bytes, None]:
    return record["PartitionKey"], record["Data"], None


def _is_in(key: str, explicit: str, within: tuple[int, int]) -> bool:
    low, high = within
    digest = hashlib.md5(key.encode(), usedforsecurity=False)
    return low <= (int(explicit) if explicit.isdecimal() else int(digest.hexdigest(), 16)) <= high


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protocol buffer: number, and bytes or a whole number.

    Raises ``IndexError``, ``ValueError``.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if size is None:
            if kind != _BYTES:
                raise ValueError(kind)
            size, at = _varint(data, at)
        if at + size > len(data):
            raise IndexError(at)
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004  the last one
            return value, at
