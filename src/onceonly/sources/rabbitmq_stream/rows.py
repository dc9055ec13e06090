"""Messages as rows. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from onceonly.families.rabbitmq import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from onceonly.sources.rabbitmq_stream.messages import Message

SCHEMA = (
    ("value", "binary"),
    ("offset", "bigint"),
    ("id", "string"),
    ("exchange", "string"),
    ("routingKey", "string"),
    ("headers", "map<string,string>"),
    ("timestamp", "timestamp"),
)
"""The columns, by name and Spark's type. ``id`` and ``timestamp`` are the publisher's, null where it sets none."""
DDL = ", ".join(f"{name} {kind}" for name, kind in SCHEMA)
_BATCH_ROWS = 5_000
_MICROSECONDS = 1_000_000
_SECONDS_MAX = (1 << 63) // _MICROSECONDS - 1


def batches(messages: Iterable[Message]) -> Iterator[pa.RecordBatch]:
    """Yield messages as rows, in their order."""
    import pyarrow as pa

    kinds = (
        pa.binary(), pa.int64(), pa.string(), pa.string(), pa.string(), pa.map_(pa.string(), pa.string()),
        pa.timestamp("us", "UTC"),
    )  # fmt: skip
    schema = pa.schema([(name, kind) for (name, _), kind in zip(SCHEMA, kinds, strict=True)])
    given = iter(messages)
    while rows := [_row(each) for each in islice(given, _BATCH_ROWS)]:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _row(message: Message) -> tuple[Any, ...]:
    seconds = message.timestamp
    return (
        message.value,
        message.offset,
        None if message.id is None else text_of(message.id),
        text_of(message.exchange),
        text_of(message.routing_key),
        [(text_of(name), value) for name, value in message.headers],
        None if seconds is None or seconds > _SECONDS_MAX else seconds * _MICROSECONDS,
    )
