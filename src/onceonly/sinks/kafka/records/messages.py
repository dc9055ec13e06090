"""Rows of an Arrow batch as an array of librdkafka's messages: pointers into the batch, no object per row. Executor.

The columns are those of ``columns``; what a row may hold and how it is refused is said there.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from onceonly.rows.arrow import is_plain, layout
from onceonly.sinks.kafka.producers.librdkafka import PARTITION_BY_KEY, Message
from onceonly.sinks.kafka.records import columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

# A value that is empty and not null needs an address, too, though nothing is read from it.
_EMPTY = b"\0"


@dataclass(frozen=True, slots=True)
class Messages:
    """Rows for one topic or one of its partitions, in their order.

    Valid as long as it lives, as it holds the memory that it points into.
    """

    topic: str
    partition: int
    """Of all of them; -1 leaves it to the key."""
    array: npt.NDArray[np.void]
    held: tuple[object, ...]


@functools.cache
def dtype() -> np.dtype[np.void]:
    """Return the numpy type of ``rd_kafka_message_t``."""
    import numpy as np

    # numpy's types say nothing of structures, which become such records.
    return cast("np.dtype[np.void]", np.dtype(Message))


def messages(batch: pa.RecordBatch, topic: str | None, first: int, mark: int) -> Iterator[Messages]:
    """Yield the rows of a batch topic by topic, and partition by partition where rows name theirs.

    ``mark`` comes back with each delivery report; ``first`` is the number of the batch's first row in this slot. Rows
    for one partition keep their order. Either all rows name a partition or none does. Raises ``RecordRefusedError`` for
    a row without a topic.

    librdkafka could take the partition from each message; but then it adds one that it does not know yet to the
    transaction by the number -1, which the broker refuses, and loses the memory of rows that it refuses itself (2.16).
    """
    import numpy as np

    array = np.zeros(batch.num_rows, dtype())
    held: list[object] = [batch]
    array["payload"], array["len"] = _pointers(batch, "value", held)
    if "key" in batch.schema.names:
        array["key"], array["key_len"] = _pointers(batch, "key", held)
    array["_private"] = mark
    names, codes = ([topic], None) if topic is not None else columns.topic_codes(batch, first)
    partitions = columns.partitions(batch)
    for code, name in enumerate(names):
        here = slice(None) if codes is None else codes == code
        if partitions is None:
            yield Messages(name, PARTITION_BY_KEY, array[here], tuple(held))
            continue
        of_topic, rows = partitions[here], array[here]
        for partition in np.unique(of_topic).tolist():
            yield Messages(name, partition, rows[of_topic == partition], tuple(held))


def _pointers(batch: pa.RecordBatch, name: str, held: list[object]) -> tuple[Any, Any]:
    """Return address and length of each value; address 0 where it is null."""
    import numpy as np
    import pyarrow as pa

    column = batch.column(batch.schema.get_field_index(name))
    if not is_plain(column.type):
        column = column.cast(pa.large_binary())
    empty = pa.py_buffer(_EMPTY)
    held += [column, empty]
    if not len(column):
        return 0, 0
    bounds, data = layout(column)
    base = (data.address if data is not None else 0) or empty.address
    addresses, lengths = base + bounds[:-1], bounds[1:] - bounds[:-1]
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        addresses, lengths = np.where(valid, addresses, 0), np.where(valid, lengths, 0)
    return addresses, lengths
