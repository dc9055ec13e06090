"""Values that no reader of a target's could read: texts that are no UTF-8, days and times of years beyond 1 to 9999.

Spark has them, as by ``cast(x'ff' AS STRING)`` or ``make_date(20000, 1, 1)``, and hands them over as they are. Times
are those of UTC, whatever the session's zone: who makes them Python's has to do so in UTC. Any process; needs pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.rows.arrow import in_utc

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

# Years 1 to 9999, which Spark and every server know: in days, and in microseconds since 1970.
DAYS = (-719_162, 2_932_896)
MICROS = (DAYS[0] * 86_400_000_000, (DAYS[1] + 1) * 86_400_000_000 - 1)


def micros(array: pa.Array) -> pa.Array:
    """Return times as whole microseconds since 1970, in UTC or without a zone."""
    import pyarrow as pa

    return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())


def unreadable(column: pa.Array) -> Iterator[tuple[int, str, str]]:
    """Yield the places of such values, also inside of others; a word for each, and what is wrong with it."""
    import pyarrow as pa

    column = in_utc(column)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        pass
    else:
        if not _is_far(column):
            return
    for row, value in enumerate(column):
        try:
            value.as_py()
        except UnicodeDecodeError:
            yield row, "NOT_UTF8", "has bytes that are no UTF-8"
        except (OverflowError, ValueError):
            yield row, "OUT_OF_RANGE", "is not between the years 1 and 9999"


def _is_far(column: pa.Array) -> bool:
    """Say whether a value, or one inside of it, is of another year; perhaps of one that a slice leaves out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, column.type
    if types.is_timestamp(kind) or types.is_date32(kind):
        low, high = DAYS if types.is_date32(kind) else MICROS
        found = pc.min_max(column.cast(pa.int32()) if types.is_date32(kind) else micros(column)).as_py()
        return found["min"] is not None and (found["min"] < low or found["max"] > high)
    if types.is_struct(kind):
        return any(_is_far(column.field(place)) for place in range(kind.num_fields))
    if types.is_map(kind):
        return _is_far(column.keys) or _is_far(column.items)
    return bool(types.is_nested(kind)) and _is_far(column.values)
