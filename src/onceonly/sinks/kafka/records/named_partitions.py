"""Partitions that rows name: those that are not there are refused at once, whatever takes the rows. Executor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import RecordRefusedError
from onceonly.sinks.kafka.records import columns

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_COLUMN = "partition"


def refuse_unknown(
    batch: pa.RecordBatch, topic: str | None, first: int, count_of: Callable[[str, int], int]
) -> None:
    """Refuse a row that names a partition which its topic does not have.

    ``first`` is the number of the batch's first row in its slot; ``count_of`` gives how many partitions a topic has,
    which is to be looked up anew where there are fewer than so many. Raises ``RecordRefusedError``.
    """
    index = batch.schema.get_field_index(_COLUMN)
    if index < 0 or batch.column(index).null_count == batch.num_rows:
        return
    named = batch.column(index)
    import pyarrow.compute as pc

    topics = None if topic is not None else batch.column(batch.schema.get_field_index("topic"))
    names = [topic] if topics is None else pc.unique(topics).to_pylist()
    for name in names:
        if name is None:
            continue  # refused as a row without a topic
        if topics is not None:
            columns.check_topic(name)
        mine = named if topics is None else pc.if_else(pc.equal(topics, name), named, None)
        least, most = pc.min_max(mine).as_py().values()
        if most is None:
            continue
        count = count_of(name, most + 1)
        if least >= 0 and most < count:
            continue
        wrong = pc.or_(pc.less(mine, 0), pc.greater_equal(mine, count)).fill_null(False)  # noqa: FBT003
        row = wrong.index(True).as_py()
        raise RecordRefusedError(
            f"Row {first + row} of this slot names partition {mine[row].as_py()} of topic {name}, which has {count} "
            f"partitions, 0 to {count - 1}.",
            next_step="correct the column 'partition'; null leaves the choice to the key",
        )
