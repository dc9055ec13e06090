"""Rows of a table read back with the types that they were written with, and added up. An operator's process.

A sum that is that of what was written proves that all values stand. Another one proves that some do not, but where
``Sum.unread`` says that a table keeps such values in another form. Needs pyarrow.
"""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any

from onceonly.rows.checksum import RowChecksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from onceonly.sinks.sql.types import Fit, Given, Match

ROWS = 1_000
"""So many at a time: of each, text and bytes may be long."""
_TIMES = ("date", "instant", "local")
_OWN = {"text": str, "binary": bytes}
"""Python's types of what is compared byte by byte."""
_MAKERS = ("the trigger ", "the rule ", "the encoding ")
"""How a doubt begins that names what may give other values than it was given."""


def unread(match: Match, names: Sequence[str]) -> str:
    """Say why rows cannot be read back as they were written; empty where they can. Pure."""
    fits = {fit.source: fit for fit in match.fits}
    for name in names:
        fit = fits.get(name)
        why = "is not written" if fit is None else _unread(fit)
        if why:
            return f"its column {name} {why}"
    return ""


def _unread(fit: Fit) -> str:
    column, declared = fit.column, fit.column.declared.lower()
    if fit.given.kind == "nested" or declared.startswith("json"):
        return "is kept as JSON, which may be spelled in another way"
    if declared == "uuid":
        return "is kept as a uuid, which has no capitals"
    if column.doubt.startswith("blanks"):
        return f"is {column.declared}, to which blanks are added"
    return ""


def kind_of(given: Given) -> pa.DataType:
    """Return the type of Arrow's with which Spark's rows come."""
    import pyarrow as pa

    if given.kind == "decimal":
        return pa.decimal128(given.size, given.scale)
    if given.kind == "int":
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[given.size]
    return {
        "bool": pa.bool_(), "float": pa.float32() if given.size == 32 else pa.float64(), "text": pa.string(),  # noqa: PLR2004
        "binary": pa.binary(), "date": pa.date32(), "instant": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
    }[given.kind]  # fmt: skip


class Sum:
    """Adds up rows of a table. ``unread`` says why the sum may be another one though nobody has changed a value."""

    def __init__(self, match: Match, names: Sequence[str], *, signs_zero: bool) -> None:
        self.unread = next(
            (
                f"{doubt} may have changed what was written"
                for doubt in match.table.doubts
                if doubt.startswith(_MAKERS)
            ),
            "",
        )
        self.wrong: list[str] = []
        self._rows = 0
        self._sum = RowChecksum()
        self._fits = [fit for name in names for fit in match.fits if fit.source == name]
        self._signs_zero = signs_zero

    @property
    def rows(self) -> int:
        """How many were read."""
        return self._rows

    @property
    def checksum(self) -> str:
        """The sum of all; empty where a value could not be one of those that were written."""
        return self._sum.value if self._rows == self._sum.rows else ""

    def add(self, rows: int, columns: Sequence[Sequence[Any] | pa.Array]) -> None:
        """Add rows, by the columns of the match in its order, as values of Python's or Arrow's."""
        import pyarrow as pa

        is_whole = self.checksum != ""
        self._rows += rows
        if not is_whole:
            return  # no more is learned, but how many there are
        arrays = []
        for fit, values in zip(self._fits, columns, strict=True):
            try:
                arrays.append(self._exact(fit, values))
            except pa.ArrowNotImplementedError as error:
                self.unread = f"its column {fit.source} is not read back: {error}"
                return
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, decimal.InvalidOperation):
                if fit.given.kind in _TIMES:
                    self.unread = f"its column {fit.source} has a time that cannot be read"
                    return
                if not self.unread:
                    self.wrong.append(
                        f"its column {fit.column.name} has a value that no {fit.given} is written as: it was changed"
                    )
                return
        self._sum.add(pa.RecordBatch.from_arrays(arrays, [fit.source for fit in self._fits]))

    def _exact(self, fit: Fit, values: Sequence[Any] | pa.Array) -> pa.Array:
        """Return a column's values with the type that was written. Raises Arrow's errors for what is none of it."""
        import pyarrow as pa

        kind = kind_of(fit.given)
        found = values if isinstance(values, pa.Array) else _array(values, fit.given, kind)
        is_number = fit.given.kind == "bool" and pa.types.is_integer(found.type)
        if is_number and not set(found.unique().to_pylist()) <= {0, 1, None}:
            message = "neither 0 nor 1"
            raise pa.ArrowInvalid(message)
        if fit.given.kind == "date" and pa.types.is_integer(found.type):
            found = found.cast(pa.int32())
        exact = found.cast(kind)
        if fit.given.kind == "float":
            self._look_at_floats(fit, found, exact)
        return exact

    def _look_at_floats(self, fit: Fit, found: pa.Array, exact: pa.Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pc.any(pc.is_nan(exact)).as_py():
            self.unread = (
                self.unread or f"its column {fit.source} has NaN, which is written in more ways than one"
            )
        elif pc.any(pc.not_equal(exact.cast(pa.float64()), found.cast(pa.float64()))).as_py():
            message = "more digits than the type has"
            raise pa.ArrowInvalid(message)
        if not self._signs_zero and pc.any(pc.equal(exact, pa.scalar(0, exact.type))).as_py():
            self.unread = self.unread or f"its column {fit.source} has a zero, whose sign is not kept"


def _array(values: Sequence[Any], given: Given, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if given.kind == "decimal":
        return pa.array([None if each is None else decimal.Decimal(each) for each in values], kind)
    if given.kind in _TIMES and any(isinstance(each, str) for each in values):
        return pa.array([None if each is None else str(each) for each in values], pa.string())
    own = _OWN.get(given.kind)
    if own is not None and not {type(each) for each in values} <= {own, type(None)}:
        message = f"no {own.__name__}"  # bytes and texts would become each other
        raise pa.ArrowInvalid(message)
    return pa.array(values)


def fixed(values: Iterable[bytes | None], kind: str, more: int = 0) -> pa.Array:
    """Return numbers that came as bytes of one length (numpy's ``kind``), each with ``more`` added."""
    import numpy as np
    import pyarrow as pa

    listed = list(values)
    zero = bytes(np.dtype(kind).itemsize)
    found: npt.NDArray[Any] = np.frombuffer(b"".join(each or zero for each in listed), kind)
    if more:
        found = found.astype(np.int64) + more
    mask: npt.NDArray[np.bool_] = np.array([each is None for each in listed], bool)
    return pa.array(found.astype(found.dtype.newbyteorder("=")), mask=mask)
