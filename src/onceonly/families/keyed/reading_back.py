"""What a target has of rows, read back as the values that they were written of, and added up. An operator's process.

A sum that is that of what was written proves that all values stand. Another one proves that some do not, but where
``unread`` says that a target keeps such values in another form.
"""

from __future__ import annotations

from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any

from onceonly.families.columns import Type, arrow_of, parse
from onceonly.ports.standing import Held
from onceonly.rows.checksum import RowChecksum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa


class Sum:
    """Adds up rows, by names and Spark types of their columns.

    ``values`` makes a column of what a target has, and raises ``ValueError`` or ``TypeError`` for what none of the type
    is written as; ``kept`` says of a type in what other form the target keeps it; ``unread`` says it of all rows.
    """

    def __init__(
        self,
        columns: Sequence[tuple[str, str]],
        values: Callable[[str, Type, pa.DataType, Sequence[Any]], pa.Array],
        *,
        kept: Callable[[str, Type], str] = lambda _name, _kind: "",
        unread: str = "",
    ) -> None:
        parsed = [(name, spark, parse(spark)) for name, spark in columns]
        whys = (
            kept(name, kind) or ("is of a type that is not read back" if arrow_of(kind) is None else "")
            for name, _, kind in parsed
        )
        found = (f"its column {name} {why}" for (name, *_), why in zip(columns, whys, strict=True) if why)
        self._columns = parsed
        self._values = values
        self._unread = unread or next(found, "")
        self._is_read = not self._unread
        self._wrong: tuple[str, ...] = ()
        self._rows = 0
        self._sum = RowChecksum()

    def held(self) -> Held:
        """Return what they are."""
        checksum = self._sum.value if self._is_read else ""
        return Held(rows=self._rows, wrong=self._wrong, checksum=checksum, unread=self._unread)

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows, by what the target has of their columns."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._rows += len(rows)
        if not self._is_read:
            return
        arrays = []
        for (name, spark, kind), given in zip(self._columns, zip(*rows, strict=True), strict=True):
            arrow = arrow_of(kind)
            try:
                array = self._values(name, kind, arrow, given)
            except (ValueError, TypeError, OverflowError, InvalidOperation):  # Arrow's own are among them
                self._is_read = False
                self._wrong = (f"its {name} has a value that no {spark} is written as: it was changed",)
                return
            if pa.types.is_floating(arrow) and pc.any(pc.is_nan(array)).as_py():
                self._unread = f"its column {name} has NaN, which is written in more ways than one"
            arrays.append(array)
        self._sum.add(pa.RecordBatch.from_arrays(arrays, [name for name, *_ in self._columns]))


def by_version(
    rows: Sequence[tuple[int, Sequence[Any]]], sums: dict[int, Sum], made: Callable[[], Sum]
) -> Mapping[int, Sum]:
    """Add rows to the sums of their versions."""
    parts: dict[int, list[Sequence[Any]]] = {}
    for version, values in rows:
        parts.setdefault(version, []).append(values)
    for version, some in parts.items():
        if version not in sums:
            sums[version] = made()
        sums[version].add(some)
    return sums
