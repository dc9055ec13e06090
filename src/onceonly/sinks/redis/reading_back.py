"""The texts of hashes read back as the values that they were written of, and added up. An operator's process."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from onceonly.families.columns import arrow_of, parse
from onceonly.ports.standing import Held
from onceonly.rows.checksum import RowChecksum

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class Sum:
    """Adds up rows, by names and Spark types of their columns."""

    def __init__(self, columns: Sequence[tuple[str, str]]) -> None:
        parsed = [(name, spark, parse(spark)) for name, spark in columns]
        # What has parts is kept as JSON.
        kinds = [(name, spark, None if kind.parts else arrow_of(kind)) for name, spark, kind in parsed]
        self._columns = [(name, spark, kind) for name, spark, kind in kinds if kind is not None]
        self._unread = next(
            (f"its column {name} is kept as JSON" for name, _, kind in kinds if kind is None), ""
        )
        self._is_read = not self._unread
        self._wrong: tuple[str, ...] = ()
        self._rows = 0
        self._sum = RowChecksum()

    def held(self) -> Held:
        """Return what they are."""
        checksum = self._sum.value if self._is_read else ""
        return Held(rows=self._rows, wrong=self._wrong, checksum=checksum, unread=self._unread)

    def add(self, rows: Sequence[Sequence[bytes | None]]) -> None:
        """Add rows, by the texts of their columns."""
        import pyarrow as pa

        self._rows += len(rows)
        if not self._is_read:
            return
        arrays = []
        for (name, spark, kind), texts in zip(self._columns, zip(*rows, strict=True), strict=True):
            try:
                arrays.append(self._values(name, kind, texts))
            except (pa.ArrowInvalid, InvalidOperation, UnicodeDecodeError):
                self._is_read = False
                self._wrong = (f"its {name} has a text that no {spark} is written as: it was changed",)
                return
        self._sum.add(pa.RecordBatch.from_arrays(arrays, [name for name, *_ in self._columns]))

    def _values(self, name: str, kind: pa.DataType, texts: Sequence[bytes | None]) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_decimal(kind):
            return pa.array([None if each is None else Decimal(each.decode()) for each in texts], kind)
        found = pa.array(texts, pa.binary())
        if pa.types.is_binary(kind):
            return found
        found = found.cast(pa.string()).cast(kind)
        if pa.types.is_floating(kind) and pc.any(pc.is_nan(found)).as_py():
            self._unread = f"its column {name} has NaN, which is written in more ways than one"
        return found
