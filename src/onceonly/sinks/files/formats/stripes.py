"""Values that ORC files of pyarrow's do not give back in Spark. Executor; needs pyarrow.

Both sides keep times before 1970, and days before the Gregorian calendar, in their own way, and the files do not say
which: Spark fails on the one, and reads another day for the other.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from onceonly.errors import RecordRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_FIRST_DAY = date(1582, 10, 15)
_FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def check(batch: pa.RecordBatch, *, who: str) -> None:
    """Raise ``RecordRefusedError`` where a value would not come back."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for leaf in _leaves(column):
            day = pa.types.is_date(leaf.type)
            if not day and not pa.types.is_timestamp(leaf.type):
                continue
            first, shown = (_FIRST_DAY, str(_FIRST_DAY)) if day else (_FIRST_TIME, "1970")
            if pc.any(pc.less(leaf, pa.scalar(first, leaf.type))).as_py():
                raise RecordRefusedError(
                    f"{who}: a value of the column {name} is before {shown}, and Spark would not read it back from an "
                    "orc file.",
                    next_step="see to the values of this column, or set format to parquet; the rows stay in the source",
                )


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Return the arrays of plain values, what lies in nulls left out."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_struct(kind):
        for each in array.flatten():
            yield from _leaves(each)
    elif pa.types.is_map(kind):
        for each in (array.keys, array.items):  # of the whole array, also where this is a slice of it
            yield from _leaves(pa.ListArray.from_arrays(array.offsets, each))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(array.flatten())
    else:
        yield array
