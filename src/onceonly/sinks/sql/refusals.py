"""Which rows a table will never take, found by whole columns before they are staged. Needs pyarrow.

Executor; on the driver again where the table has changed since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.families.changes import OPS, PASS_OVER, UPSERT
from onceonly.families.readable import DAYS, MICROS, micros, unreadable
from onceonly.ports import Refused
from onceonly.rows.arrow import may_have

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import pyarrow as pa

    from onceonly.sinks.sql.types import Fit, Match

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

_UNKNOWN = -1
_INDEXED_BYTES, _INDEX_ROW_BYTES = 800, 2_600
"""Of one value, and of all that an index has of a row."""
_YEAR_MICROS = 31_556_952_000_000
_MEND = "mend the row, or filter it out"


def refused(batch: pa.RecordBatch, match: Match) -> list[Refused]:
    """Return the rows that the table will never take, in order, each once."""
    import numpy as np

    found: dict[int, Refused] = {}

    def note(mask: Mask, code: str, why: str, next_step: str = _MEND) -> None:
        for row in np.flatnonzero(mask).tolist():
            found.setdefault(row, Refused(row=row, code=code, why=why, next_step=next_step))

    written = others = np.ones(batch.num_rows, bool)
    if match.op:
        told = ops(batch[match.op])
        why = f"its column {match.op} says neither insert, update nor delete"
        note(told == _UNKNOWN, "NO_OP", why, "say one of " + ", ".join(OPS))
        written, others = told > PASS_OVER, told == UPSERT
    for name in (*match.key, *([match.sequence] if match.sequence else [])):
        what = "its key is null in" if name in match.key else "what says how new it is is null in"
        note(_nulls(batch[name]) & written, "NULL_KEY", f"{what} the column {name}")
    for fit in match.fits:
        where = written if fit.source in match.key else others
        column = batch[fit.source]
        if fit.column.required:
            note(_nulls(column) & where, "NULL", f"{_told(fit)} takes no null")
        for mask, code, why in _wrong(column, fit):
            note(mask & where, code, f"{_told(fit)}: {why}")
    return [found[row] for row in sorted(found)]


def is_doubtful(batch: pa.RecordBatch, match: Match) -> bool:
    """Say whether a value that fits may be refused all the same.

    It is longer than an index may take, alone or with others, which depends on how that packs it; has letters that a
    charset may not; or is a key that the table may take for another one.
    """
    import pyarrow.compute as pc

    lengths = [pc.max(pc.binary_length(batch[name])).as_py() or 0 for name in match.indexed]
    is_long = any(length > _INDEXED_BYTES for length in lengths) or sum(lengths) > _INDEX_ROW_BYTES
    plain = (pc.all(pc.string_is_ascii(batch[name])).as_py() is not False for name in match.lettered)
    alike = (pc.any(pc.match_substring_regex(batch[name], part)).as_py() for name, part in match.alike)
    return is_long or any(alike) or not all(plain)


def is_large(batch: pa.RecordBatch, match: Match) -> bool:
    """Say whether a row has so many bytes that the server may refuse it whatever its columns take."""
    import pyarrow.compute as pc

    if batch.nbytes <= match.table.large:
        return False
    size = 0
    for fit in match.fits:
        array = batch[fit.source]
        if fit.given.kind in {"text", "binary"}:
            size += pc.max(pc.binary_length(array)).as_py() or 0
        elif fit.given.kind == "nested":
            size += max(array.slice(row, 1).nbytes for row in range(len(array)))
    return size > match.table.large


def ops(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Return what each row's ``op`` says, as one of the numbers above."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    places = pc.index_in(pc.ascii_lower(array), pa.array(list(OPS), array.type))
    meanings: np.ndarray[Any, np.dtype[np.int8]] = np.array([*OPS.values(), _UNKNOWN], np.int8)
    return meanings.take(np.asarray(pc.fill_null(places, len(OPS))))


def _told(fit: Fit) -> str:
    return f"the column {fit.column.name} ({fit.column.declared})"


def _wrong(array: pa.Array, fit: Fit) -> Iterator[tuple[Mask, str, str]]:
    """Yield what is wrong with which values of a column."""
    import pyarrow.compute as pc

    column, kind = fit.column, fit.given.kind
    if kind in {"int", "decimal", "float"}:
        yield from _wrong_numbers(array, fit)
    elif kind == "text":
        yield from _wrong_texts(array, fit)
    elif kind == "nested":
        for row, code, why in unreadable(array):
            yield _places([row], array), code, f"a value in it {why}"
    elif kind == "binary" and column.length is not None:
        yield (
            _mask(pc.greater(pc.binary_length(array), column.length)), "TOO_LONG",
            f"more than {column.length} bytes",
        )  # fmt: skip
    elif kind in {"date", "instant", "local"}:
        yield from _wrong_times(array, fit)


def _wrong_numbers(array: pa.Array, fit: Fit) -> Iterator[tuple[Mask, str, str]]:
    import pyarrow.compute as pc

    column, kind = fit.column, fit.given.kind
    if kind == "int" and column.low is not None and column.high is not None:
        bound = 2 ** (fit.given.size - 1)
        if column.low > -bound or column.high < bound - 1:
            low, high = max(column.low, -bound), min(column.high, bound - 1)
            outside = pc.or_(pc.less(array, low), pc.greater(array, high))
            yield _mask(outside), "OUT_OF_RANGE", f"the number is not between {column.low} and {column.high}"
    elif kind == "decimal" and column.digits is not None and fit.given.size - fit.given.scale > column.digits:
        outside = pc.greater_equal(pc.abs(array), _power(column.digits))
        yield (
            _mask(outside),
            "OUT_OF_RANGE",
            f"the number has more than {column.digits} digits before the point",
        )
    elif kind == "float":
        if column.no_nan:
            yield _mask(pc.is_nan(array)), "NOT_A_NUMBER", "it keeps no NaN"
        if column.no_infinity:
            yield _mask(pc.is_inf(array)), "NOT_A_NUMBER", "it keeps no infinity"


def _wrong_texts(array: pa.Array, fit: Fit) -> Iterator[tuple[Mask, str, str]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = fit.column
    wrong = [row for row, _, _ in unreadable(array)]
    if wrong:
        bad = _places(wrong, array)
        yield bad, "NOT_UTF8", "its bytes are no UTF-8"
        array = pc.if_else(pa.array(bad), pa.scalar("", array.type), array)
    if column.no_nul and may_have(array, b"\0"):
        yield (
            _mask(pc.match_substring(array, "\0")),
            "NUL",
            "the server keeps no texts with the character NUL",
        )
    # No text has more characters than bytes, and bytes are counted already.
    if column.length is not None and (pc.max(pc.binary_length(array)).as_py() or 0) > column.length:
        yield (
            _mask(pc.greater(pc.utf8_length(array), column.length)), "TOO_LONG",
            f"more than {column.length} characters",
        )  # fmt: skip
    if column.octets is not None:
        longer = pc.greater(pc.binary_length(array), column.octets)
        yield _mask(longer), "TOO_LONG", f"more than {column.octets} bytes"
    if column.form:
        yield (
            _mask(pc.invert(pc.match_substring_regex(array, column.form))),
            "NOT_OF_FORM",
            "it is of another form",
        )


def _places(rows: list[int], array: pa.Array) -> Mask:
    """Return which values have these places."""
    import numpy as np

    return np.isin(np.arange(len(array)), rows)


def _wrong_times(array: pa.Array, fit: Fit) -> Iterator[tuple[Mask, str, str]]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    column, is_date, scale = fit.column, fit.given.kind == "date", fit.column.scale
    low, high = DAYS if is_date else MICROS
    numbers = array.cast(pa.int32()) if is_date else micros(array)
    outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    yield _mask(outside), "OUT_OF_RANGE", "it is not between the years 1 and 9999"
    if not is_date and column.low is not None and column.high is not None:
        outside = pc.or_(pc.less(numbers, column.low), pc.greater(numbers, column.high))
        years = f"{1970 + column.low // _YEAR_MICROS} and {1970 + column.high // _YEAR_MICROS}"
        yield _mask(outside), "OUT_OF_RANGE", f"the column keeps times between {years}"
    if not is_date and scale is not None and scale < 6:  # noqa: PLR2004
        counts = np.asarray(pc.fill_null(numbers, 0))
        yield counts % 10 ** (6 - scale) != 0, "TOO_FINE", f"it keeps {scale} digits of a second"


def _nulls(array: pa.Array) -> Mask:
    import numpy as np
    import pyarrow.compute as pc

    return np.asarray(pc.is_null(array)) if array.null_count else np.zeros(len(array), bool)


def _mask(found: pa.Array) -> Mask:
    """Return which are true; null is not."""
    import numpy as np
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(found, False))  # noqa: FBT003


def _power(digits: int) -> pa.Scalar:
    """Return the smallest number that has more digits."""
    from decimal import Decimal

    import pyarrow as pa

    return pa.scalar(Decimal(10**digits), pa.decimal128(digits + 1, 0))
