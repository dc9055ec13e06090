r"""Arrow's columns as texts: those that databases read, and whole rows as COPY of PostgreSQL reads them. Needs pyarrow.

Written by whole columns, as a loop over rows costs ten times as much. Nothing is rounded: a text says the value itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.families.readable import micros
from onceonly.rows.arrow import may_have

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.sinks.sql.types import Match

_ESCAPED = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_NULL = "\\N"


def time_texts(array: pa.Array) -> pa.Array:
    """Return dates as ``2026-11-27``, times as ``2026-11-27 12:00:00.000000``, with ``+00:00`` if they have a zone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date32(array.type):
        return array.cast(pa.string())
    found = micros(array).cast(pa.timestamp("us")).cast(pa.string())
    return pc.binary_join_element_wise(found, "+00:00", "") if array.type.tz else found


def lines(batch: pa.RecordBatch, match: Match) -> memoryview:
    r"""Return rows as lines of tab-separated texts, nulls as ``\N``."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    doubles = {fit.column.name for fit in match.fits if fit.column.mantissa == 53}  # noqa: PLR2004
    texts = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name in doubles and pa.types.is_float32(array.type):
            array = array.cast(pa.float64())  # noqa: PLW2901
        texts.append(pc.fill_null(_text(array), _NULL))
    ends = pa.array([""] * batch.num_rows, pa.large_string())
    joined = pc.binary_join_element_wise(*texts, pa.scalar("\t", pa.large_string()))
    joined = pc.binary_join_element_wise(joined, ends, pa.scalar("\n", pa.large_string()))
    _, offsets, data = joined.buffers()
    places = np.frombuffer(offsets, np.int64)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(data)[int(places[0]) : int(places[-1])]


def _text(array: pa.Array) -> pa.Array:
    """Return a column's values as they stand between two tabs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if may_have(array, b"\\\t\n\r"):
            for plain, escaped in _ESCAPED:
                array = pc.replace_substring(array, plain, escaped)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _hex(array.cast(pa.large_binary()))
    elif pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        array = time_texts(array)
    return array.cast(pa.large_string())


def _hex(array: pa.Array) -> pa.Array:
    r"""Return bytes as PostgreSQL reads them, ``\x`` and two digits each, the backslash escaped."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data or b"", np.uint8)[places[0] : places[-1]]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.empty(2 * len(raw), np.uint8)
    text[::2], text[1::2] = digits[raw >> 4], digits[raw & 15]
    found = pa.LargeStringArray.from_buffers(
        len(array), pa.py_buffer((2 * (places - places[0])).astype(np.int64)), pa.py_buffer(text)
    )
    large = pa.large_string()
    joined = pc.binary_join_element_wise(pa.scalar("\\\\x", large), found, pa.scalar("", large))
    return (
        pc.if_else(pc.is_valid(array), joined, pa.scalar(None, joined.type)) if array.null_count else joined
    )
