"""Rows of an Arrow batch as an array of librdkafka's messages: pointers into the batch, no object per row. Executor.

The columns are those of ``columns``; what a row may hold and how it is refused is said there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.sinks.kafka import columns
from onceonly.sinks.kafka.librdkafka import PARTITION_BY_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

# rd_kafka_message_t; its size and offsets are compared with the ctypes structure's in the tests.
_FIELDS = [
    ("err", "i4"),
    ("rkt", "u8"),
    ("partition", "i4"),
    ("payload", "u8"),
    ("len", "u8"),
    ("key", "u8"),
    ("key_len", "u8"),
    ("offset", "i8"),
    ("_private", "u8"),
]
# A value that is empty and not null needs an address, too, though nothing is read from it.
_EMPTY = b"\0"


@dataclass(frozen=True, slots=True)
class Messages:
    """Rows for one topic, in their order. Valid as long as it lives, as it holds the memory that it points into."""

    topic: str
    array: npt.NDArray[np.void]
    by_row: bool
    """Some row names its partition."""
    held: tuple[object, ...]


def dtype() -> np.dtype[np.void]:
    """Give the numpy type of ``rd_kafka_message_t``."""
    import numpy as np

    return np.dtype(_FIELDS, align=True)


def messages(batch: pa.RecordBatch, topic: str | None, first: int, mark: int) -> Iterator[Messages]:
    """Give the rows of a batch topic by topic; ``mark`` comes back with each delivery report.

    ``first`` is the number of the batch's first row in this slot. Rows keep their order within a topic.
    Raises ``RecordRefusedError`` for a row without a topic.
    """
    import numpy as np

    array = np.zeros(batch.num_rows, dtype())
    held: list[object] = [batch]
    array["payload"], array["len"] = _pointers(batch, "value", held)
    if "key" in batch.schema.names:
        array["key"], array["key_len"] = _pointers(batch, "key", held)
    array["partition"] = PARTITION_BY_KEY
    by_row = False
    if "partition" in batch.schema.names:
        # As in Spark, a null partition leaves the choice to the key.
        column = batch.column(batch.schema.get_field_index("partition"))
        by_row = column.null_count < len(column)
        array["partition"] = column.fill_null(PARTITION_BY_KEY).to_numpy(zero_copy_only=False)
    array["_private"] = mark
    if topic is not None:
        yield Messages(topic, array, by_row, tuple(held))
        return
    names, codes = columns.topic_codes(batch, first)
    for code, name in enumerate(names):
        yield Messages(name, array[codes == code], by_row, tuple(held))


def _pointers(batch: pa.RecordBatch, name: str, held: list[object]) -> tuple[Any, Any]:
    """Give address and length of each value; address 0 where it is null."""
    import numpy as np
    import pyarrow as pa

    column = batch.column(batch.schema.get_field_index(name))
    if not _is_plain(column.type):
        column = column.cast(pa.large_binary())
    _, offsets, data = column.buffers()
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    empty = pa.py_buffer(_EMPTY)
    held += [column, empty]
    count = len(column)
    if not count:
        return 0, 0
    ends = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32)
    ends = ends[column.offset : column.offset + count + 1].astype(np.int64)
    base = (data.address if data is not None else 0) or empty.address
    addresses, lengths = base + ends[:-1], np.diff(ends)
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        addresses, lengths = np.where(valid, addresses, 0), np.where(valid, lengths, 0)
    return addresses, lengths


def _is_plain(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return any(
        check(kind)
        for check in (
            pa.types.is_binary,
            pa.types.is_string,
            pa.types.is_large_binary,
            pa.types.is_large_string,
        )
    )
