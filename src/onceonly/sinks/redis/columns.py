"""Columns as the script that puts rows takes them: not a thing for each value, but Arrow's own bytes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.rows.arrow import layout

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The texts of a column: ``ends`` are where they end in ``data``, and where the first begins, before them.

    ``nulls`` has a byte for each, 1 where there is none; it is empty where each has one.
    """

    name: str
    nulls: bytes
    ends: Any
    data: memoryview

    @classmethod
    def of(cls, name: str, texts: pa.Array) -> Column:
        """Return what an array of strings or binary holds; no text of it is copied."""
        ends, data = layout(texts)
        return cls(
            name=name,
            nulls=texts.is_null().to_numpy(zero_copy_only=False).tobytes() if texts.null_count else b"",
            ends=ends,
            data=memoryview(data if data is not None else b""),
        )

    def size(self, first: int, last: int) -> int:
        """Return how many bytes the texts of some rows have together."""
        return int(self.ends[last] - self.ends[first])

    def arguments(self, first: int, last: int) -> tuple[str, bytes, bytes, bytes]:
        """Return what a script is told of the rows from ``first`` to before ``last``; see there."""
        ends = self.ends[first : last + 1]
        return (
            self.name,
            self.nulls[first:last],
            (ends - ends[0]).astype("<i4").tobytes(),
            bytes(self.data[ends[0] : ends[-1]]),
        )
