"""Partitions that rows name: those that are not there are refused at once, whatever takes the rows. Executor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import RecordRefusedError
from onceonly.sinks.kafka.records import columns
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


def refuse_unknown(
    batch: pa.RecordBatch, topic: str | None, first: int, count_of: Callable[[str, int], int]
) -> None:
    """Refuse a row that names a partition which its topic does not have.

    ``first`` is the number of the batch's first row in its slot; ``count_of`` gives how many partitions a topic has,
    which is to be looked up anew where there are fewer than so many. Raises ``RecordRefusedError``.
    """
    partitions = columns.partitions(batch)
    if partitions is None:
        return
    for name, rows in columns.by_topic(batch, topic, first, batch.num_rows):
        named = partitions[rows]
        if (named == columns.BY_KEY).all():
            continue
        count = count_of(name, int(named.max()) + 1)
        wrong = (named < columns.BY_KEY) | (named >= count)
        if wrong.any():
            row = int(rows[wrong.argmax()])
            raise RecordRefusedError(
                f"Row {first + row} of this slot names partition {batch.column('partition')[row]} of topic {name}, "
                f"which has {n(count, 'partition')}, 0 to {count - 1}.",
                next_step="correct the column 'partition'; null leaves the choice to the key",
            )
