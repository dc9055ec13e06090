"""What pictures that stand alone have in common: their frame, for light and dark readers, and their axes. Pure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEVELS_MAX = 4
"""Lines that do not crowd."""


def picture(width: int, height: int, told: str, content: str, style: str) -> str:
    """Return a whole SVG. ``told`` is for those who do not see it; ``style`` colours its classes and names ``page``."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(told)}"><style>{style}</style>'
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>{content}</svg>\n'
    )


def levels(most: int) -> Sequence[int]:
    """Return round numbers from 0 up to ``most``, few enough to be read."""
    step = next(
        step
        for power in range(15)
        for step in (10**power, 2 * 10**power, 5 * 10**power)
        if most / step <= _LEVELS_MAX
    )
    return range(0, most + 1, step)
