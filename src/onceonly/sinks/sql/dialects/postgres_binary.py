"""Rows as PostgreSQL's COPY reads them in its binary form, by whole columns. Driver; needs pyarrow.

The server converts nothing then: a value has the very bytes of its column's type. So rows are written in this form only
where each column's type is one of those below; else they are written as texts. Both sides have less to do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onceonly.families.readable import micros
from onceonly.rows.arrow import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from onceonly.sinks.sql.types import Match

HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""The signature, no flags, no extension: PostgreSQL's documentation of COPY, *Binary Format*."""
TAIL: Final = b"\xff\xff"
_DAYS: Final = 10_957  # from 1970-01-01 to 2000-01-01, where PostgreSQL begins to count
_MICROS: Final = _DAYS * 86_400_000_000
_MODIFIER = re.compile(r"\(\d+\)")
_COUNT, _LENGTH, _NULL = ">i2", ">i4", -1


class _Number(NamedTuple):
    """A type of one width: by which of Arrow's a value is made a number, what is taken from it, and its bytes."""

    by: str
    kind: str
    less: int = 0

    def of(self, array: pa.Array) -> npt.NDArray[Any]:
        """Return the values; of nulls, some number."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = micros(array) if pa.types.is_timestamp(array.type) else array.cast(self.by)
        values: npt.NDArray[Any] = np.asarray(pc.fill_null(numbers, 0))
        if values.dtype.kind == "f":
            # Of all NaN, the one that the server makes of a text.
            values = np.where(np.isnan(values), np.nan, values)
        return values - self.less if self.less else values


_NUMBERS: Final[Mapping[str, _Number]] = {
    "smallint": _Number("int16", ">i2"), "integer": _Number("int32", ">i4"), "bigint": _Number("int64", ">i8"),
    "real": _Number("float32", ">f4"), "double precision": _Number("float64", ">f8"),
    "boolean": _Number("uint8", ">u1"), "date": _Number("int32", ">i4", _DAYS),
    "timestamp with time zone": _Number("int64", ">i8", _MICROS),
    "timestamp without time zone": _Number("int64", ">i8", _MICROS),
}  # fmt: skip
_BYTES: Final = frozenset({"text", "character varying", "bytea"})
_OP, _SEQUENCE = "smallint", "bigint"


def kinds_of(match: Match) -> list[str]:
    """Return the types of the columns of rows that are ``shaped``, as PostgreSQL calls them; none if one is not known.

    Pure. A type of somebody's own has another name, and is in doubt: with a search path of one's own, a domain of whole
    numbers can be called date.
    """
    found = [_MODIFIER.sub("", fit.column.declared) for fit in match.fits]
    known = all(each in _NUMBERS or each in _BYTES for each in found)
    if not known or any(fit.column.doubt for fit in match.fits):
        return []
    return found + ([_OP] if match.op else []) + ([_SEQUENCE] if match.sequence else [])


def binary(batch: pa.RecordBatch, kinds: Sequence[str]) -> memoryview:
    """Return rows, without head and tail: how many columns, of each its length, -1 for null, and its bytes. Pure."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    count, large = batch.num_rows, pa.large_binary()
    if not count:
        return memoryview(b"")
    pieces: list[pa.Array] = []
    # What is of one width in all rows, and stands side by side, is laid there by one call.
    beside: list[tuple[str, Any]] = [(_COUNT, batch.num_columns)]
    for kind, array in zip(kinds, batch.columns, strict=True):
        number = _NUMBERS.get(kind)
        if number is not None and not array.null_count:
            beside += [(_LENGTH, np.dtype(number.kind).itemsize), (number.kind, number.of(array))]
            continue
        values = array.cast(large) if number is None else _laid([(number.kind, number.of(array))], count)
        if array.null_count:
            values = pc.if_else(array.is_valid(), values, pa.scalar(None, large))
        beside.append((_LENGTH, pc.fill_null(pc.binary_length(values), _NULL)))
        pieces += [_laid(beside, count), pc.fill_null(values, b"")]
        beside = []
    if beside:
        pieces.append(_laid(beside, count))
    rows = pc.binary_join_element_wise(*pieces, pa.scalar(b"", large))
    places, data = layout(rows)
    return memoryview(data)[int(places[0]) : int(places[-1])]


def _laid(fields: Sequence[tuple[str, Any]], count: int) -> pa.Array:
    """Return the bytes of fields, side by side, for each row."""
    import numpy as np
    import pyarrow as pa

    rows = np.empty(count, np.dtype([(f"f{place}", kind) for place, (kind, _) in enumerate(fields)]))
    for place, (_, values) in enumerate(fields):
        rows[f"f{place}"] = values
    ends = np.arange(count + 1, dtype=np.int64) * rows.dtype.itemsize
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(rows)])
