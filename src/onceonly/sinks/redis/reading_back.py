"""The texts of hashes read back as the values that they were written of. An operator's process."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from onceonly.families.keyed.reading_back import Sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from onceonly.families.columns import Type


def sum_of(columns: Sequence[tuple[str, str]]) -> Sum:
    """Return what adds up rows by the texts of their columns."""
    return Sum(columns, _values, kept=lambda _name, kind: "is kept as JSON" if kind.parts else "")


def _values(_name: str, _kind: Type, arrow: pa.DataType, texts: Sequence[bytes | None]) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_decimal(arrow):
        return pa.array([None if each is None else Decimal(each.decode()) for each in texts], arrow)
    found = pa.array(texts, pa.binary())
    return found if pa.types.is_binary(arrow) else found.cast(pa.string()).cast(arrow)
