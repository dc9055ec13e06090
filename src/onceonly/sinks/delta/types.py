"""How values stand in a Delta log: partition values as texts, statistics as JSON. Executor; needs pyarrow.

As the Delta protocol has them; what readers could take for another value is left out of the statistics, which only
save them work.
"""

from __future__ import annotations

import contextlib
import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from onceonly.errors import RecordRefusedError
from onceonly.families.loaded import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

_TEXT_MAX = 32
_LAST = "\U0010ffff"
_MS = 1000


class DeltaLayout(Layout):
    """Files without the partition columns, whose values the log has; statistics of the first ``indexed`` columns."""

    def __init__(self, schema: pa.Schema, partition_by: Sequence[str], indexed: int) -> None:
        from pyarrow import types

        super().__init__(schema)
        self.left_out = tuple(partition_by)
        self._content = [name for name in schema.names if name not in partition_by]
        first = self._content[:indexed] if indexed >= 0 else self._content
        # Of a column with parts, the log wants a figure for each part, and reads nothing where there is one for all.
        self._indexed = [name for name in first if not types.is_nested(schema.field(name).type)]

    def keys(self, rows: pa.RecordBatch) -> Mapping[str, pa.Array]:
        return {name: self._key(name, rows.column(name)) for name in self.left_out}

    def text(self, value: Any) -> str | None:  # noqa: ANN401  whatever a key is
        return partition_text(value)

    def content(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.select(self._content)

    def notes(self) -> Statistics:
        return Statistics(self._indexed)

    def _key(self, name: str, column: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        is_text = pa.types.is_string(column.type)
        if is_text and not self.schema.field(name).nullable and pc.any(pc.equal(column, "")).as_py():
            raise RecordRefusedError(
                f"the empty text stands for null in a partition of a Delta table, and its column {name} is NOT NULL",
                next_step="change the value before it is written; the rows stay in the source",
            )
        return column


def partition_text(value: Any) -> str | None:  # noqa: ANN401  whatever a key is
    """Write a partition value; null, and the empty text, which Delta takes for it, are None. Pure."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, datetime):
        plain = value.replace(tzinfo=None)
        # With a zone the moment is meant: in UTC, and it says so.
        return (
            f"{plain.isoformat('T', 'microseconds')}Z"
            if value.tzinfo
            else plain.isoformat(" ", "microseconds")
        )
    return value.isoformat() if isinstance(value, date) else str(value)


class Statistics:
    """What the log says of the values of one file: how many rows, nulls, and between which bounds the values are."""

    def __init__(self, names: Sequence[str]) -> None:
        self._nulls = dict.fromkeys(names, 0)
        self._least: dict[str, Any] = {}
        self._most: dict[str, Any] = {}
        self._unbounded: set[str] = set()
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        import pyarrow.compute as pc

        self._rows += rows.num_rows
        for name in self._nulls:
            column = rows.column(name)
            self._nulls[name] += column.null_count
            if name in self._unbounded or column.null_count == len(column):
                continue
            if not _has_bounds(column):
                self._unbounded.add(name)
                continue
            try:
                found = pc.min_max(column).as_py()
            except (ValueError, OverflowError):  # a year that Python does not know
                self._unbounded.add(name)
                continue
            self._least[name] = min(found["min"], self._least.get(name, found["min"]))
            self._most[name] = max(found["max"], self._most.get(name, found["max"]))

    def text(self) -> str:
        bounded = [name for name in self._least if name not in self._unbounded]
        return json.dumps(
            {
                "numRecords": self._rows,
                "minValues": {name: _bound(self._least[name], is_least=True) for name in bounded},
                "maxValues": {name: _bound(self._most[name], is_least=False) for name in bounded},
                "nullCount": self._nulls,
            },
            separators=(",", ":"),
            ensure_ascii=False,
        )


def _has_bounds(column: pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc
    from pyarrow import types

    kind = column.type
    if types.is_floating(kind):
        # NaN is larger than all, and infinity is no number of JSON's.
        return bool(pc.all(pc.is_finite(column)).as_py())
    zoned = types.is_timestamp(kind) and kind.tz is not None
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_date(kind) or zoned)


def _bound(value: Any, *, is_least: bool) -> Any:  # noqa: ANN401  a number or a text
    if isinstance(value, str):
        return value if len(value) <= _TEXT_MAX else value[:_TEXT_MAX] + ("" if is_least else _LAST)
    if isinstance(value, datetime):
        # Readers know milliseconds: down for the least, up for the greatest.
        rest = value.microsecond % _MS
        with contextlib.suppress(OverflowError):  # in the last millisecond of the year 9999
            value -= timedelta(microseconds=rest if is_least or not rest else rest - _MS)
        return value.replace(tzinfo=None).isoformat("T", "milliseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value
