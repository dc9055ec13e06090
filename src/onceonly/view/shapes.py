"""Shapes of SVG: marks, bars, arrows, words, and the picture around them. Pure.

Each kind of mark has a shape of its own, so that colour never says anything alone. Attributes and classes only: a page
with a strict policy for styles shows them as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceonly.view import style
from onceonly.view.markup import Child, Markup, tag, text
from onceonly.view.values import What, Work

if TYPE_CHECKING:
    from collections.abc import Iterable

CHARACTER: Final = 6.4
"""How wide a character of a label is, about."""

_PATHS: Final = {
    What.BARRIER: "M-1 7V-7L6 -3.5L-1 0",
    What.PLAN: "M-4.5 -4.5H4.5V4.5H-4.5Z",
    What.VOTE: "M0 -5.5L5.5 0L0 5.5L-5.5 0Z",
    What.DECISION: "M-5.5 -5.5H5.5V5.5H-5.5Z",
    What.ABORT: "M-5 -5H5V5H-5ZM-5 -5L5 5M5 -5L-5 5",
    What.SKIPPED: "M-5 -5H5V5H-5ZM-5 0H5",
    What.LOST: "M0 -6A6 6 0 1 1 0 6A6 6 0 1 1 0 -6ZM-3.5 -3.5L3.5 3.5M3.5 -3.5L-3.5 3.5",
    What.COMMITTED: "M0 -5A5 5 0 1 1 0 5A5 5 0 1 1 0 -5Z",
    What.RECOVERED: "M0 -6A6 6 0 1 1 0 6A6 6 0 1 1 0 -6ZM0 -3A3 3 0 1 1 0 3A3 3 0 1 1 0 -3Z",
    What.SWEPT: "M0 -5A5 5 0 1 1 0 5A5 5 0 1 1 0 -5ZM-2.5 0H2.5",
    What.DOUBT: "M0 -6.5A6.5 6.5 0 1 1 0 6.5A6.5 6.5 0 1 1 0 -6.5Z",
    What.TRIED: "M0 -6A6 6 0 1 1 0 6A6 6 0 1 1 0 -6ZM0 -6V6",
    What.RECEIPT: "M-4 -6.5H4V6.5L2 5L0 6.5L-2 5L-4 6.5Z",
    What.NOTED: "M-3 -6V6M2 -6V6",
    What.BEGAN: "M-4 -5.5L6 0L-4 5.5Z",
    What.ENDED: "M-4.5 -4.5H4.5V4.5H-4.5ZM-1.5 -1.5H1.5V1.5H-1.5Z",
    What.CUT: "M-5.5 -5.5L5.5 5.5M5.5 -5.5L-5.5 5.5",
    What.BY_HAND: "M0 -6.5L5.6 -3.2V3.2L0 6.5L-5.6 3.2V-3.2Z",
    What.FOLDED: "M-4 -3H4M-4 0H4M-4 3H4",
    What.HEARD: "M0 -3.5A3.5 3.5 0 1 1 0 3.5A3.5 3.5 0 1 1 0 -3.5Z",
}
_SIGNS: Final = {What.DOUBT: "?"}


def mark(what: What, x: float, y: float, told: str, *, known: bool = True, skewed: bool = False) -> Markup:
    """Return a mark with what it says to a pointer that rests on it. One whose time is not known has broken lines."""
    sign = _SIGNS.get(what)
    return tag(
        "g",
        tag("title", told),
        tag("path", d=_PATHS[what]),
        tag("text", sign, y=3.2) if sign else None,
        tag("text", "!", class_="skew", x=7, y=-5) if skewed else None,
        class_=f"m {what.name.lower()}{'' if known else ' unknown'}",
        transform=f"translate({_n(x)} {_n(y)})",
    )


def bar(kind: str, x: float, y: float, width: float, height: float, told: str) -> Markup:
    """Return a bar that is wide enough to be seen; one that nobody knows the end of has broken lines alone."""
    unheard = kind == Work.UNHEARD.name.lower()
    return tag(
        "rect", tag("title", told), class_=f"b {kind}", x=_n(x), y=_n(y), width=_n(max(width, 1.2)), height=_n(height),
        rx=1.5, fill="none" if unheard else None, stroke_dasharray="2 3" if unheard else None,
    )  # fmt: skip


def label(words: object, x: float, y: float, kind: str = "") -> Markup:
    """Return words; ``kind`` is of end, mid, dim, strong, small."""
    return tag("text", text(words), class_=kind or None, x=_n(x), y=_n(y))


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> Markup:
    """Return a line."""
    return tag("line", class_=kind, x1=_n(x1), y1=_n(y1), x2=_n(x2), y2=_n(y2))


def arrow(begin: tuple[float, float], end: tuple[float, float], told: str, *, kind: str = "") -> Markup:
    """Return an arrow, which says what goes from the one place to the other."""
    (x1, y1), (x2, y2) = begin, end
    length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 0.001)
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    left = (x2 - 8 * dx - 4 * dy, y2 - 8 * dy + 4 * dx)
    right = (x2 - 8 * dx + 4 * dy, y2 - 8 * dy - 4 * dx)
    head = f"M{_n(x2)} {_n(y2)}L{_n(left[0])} {_n(left[1])}L{_n(right[0])} {_n(right[1])}Z"
    return tag(
        "g",
        tag("title", told),
        tag("path", class_=f"arrow {kind}".strip(), d=f"M{_n(x1)} {_n(y1)}L{_n(x2)} {_n(y2)}"),
        tag("path", class_="head", d=head),
    )


def link(href: str | None, *children: Child, told: str = "") -> Markup | list[Child]:
    """Return children as a link to somewhere, or alone where it leads nowhere."""
    return list(children) if href is None else tag("a", *children, href=href, aria_label=told or None)


def picture(
    told: str,
    width: float,
    height: float,
    parts: Iterable[Child],
    *,
    has_links: bool = False,
    alone: bool = False,
) -> Markup:
    """Return the whole SVG; ``told`` is for those who do not see it.

    ``alone`` makes it a file of its own, with the style in it. One with links in it is a group, as what is an image has
    nothing in it that could be gone to.
    """
    return tag(
        "svg",
        style.sheet(style.PICTURE) if alone else None,
        None if has_links else tag("title", told),
        tag("rect", class_="ground", width=_n(width), height=_n(height)),
        *parts,
        class_="oo",
        viewBox=f"0 0 {_n(width)} {_n(height)}",
        xmlns="http://www.w3.org/2000/svg" if alone else None,
        role="group" if has_links else "img",
        aria_label=told,
    )


def sample(what: What) -> Markup:
    """Return a mark for a legend."""
    sign = _SIGNS.get(what)
    drawn = tag(
        "g",
        tag("path", d=_PATHS[what]),
        tag("text", sign, y=3.2) if sign else None,
        class_=f"m {what.name.lower()}",
    )
    return tag("svg", drawn, class_="oo", viewBox="-9 -9 18 18", aria_hidden="true")


def _n(value: float) -> str:
    """Return a number of an SVG: a tenth of a unit is less than anybody sees."""
    return f"{value:.1f}".removesuffix(".0")
