"""The options of the console sink, those of Spark's own."""

from __future__ import annotations

from onceonly.options import Option, boolean, whole

ROWS_MAX = 1000
"""Rows travel through the driver's decision log: a few to look at, not a result."""
WIDTH = 20  # as Dataset.show


def _width(text: str) -> int:
    """Return the width of a cell in characters, 0 for whole values."""
    return whole(text) if text.strip().isdecimal() else WIDTH * boolean(text)


DECLARED = (
    Option(
        name="numRows",
        doc="how many rows of each slot are shown",
        default="20",
        read=whole,
        choices=range(ROWS_MAX + 1),
    ),
    Option(
        name="truncate",
        doc="whether, or after how many characters, a value is cut",
        default="true",
        read=_width,
        form="true, false, or a number of characters",
    ),
)
