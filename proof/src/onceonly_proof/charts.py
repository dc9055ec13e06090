"""The house style of every chart: matplotlib's figures as SVG, for light and for dark readers.

The same figure always gives the same bytes. Text stays text, in the reader's own font; places are worked out with the
font that matplotlib brings. Needs matplotlib, of the extra ``demo``: who draws imports this where it is asked to.
"""

from __future__ import annotations

import functools
import io
import re
from html import escape
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.typing import RcKeyType

PAGE, INK, DIM, LINE = "#ffffff", "#1d2126", "#68707a", "#d5d8dc"
BLUE, PURPLE, ORANGE, GREEN, RED = "#4c7dd8", "#9a6bc4", "#d08c2e", "#2f9e62", "#d3261a"
_DARK = {
    PAGE: "#1b1f25",
    INK: "#e6e8eb",
    DIM: "#97a0ab",
    LINE: "#2c323a",
    BLUE: "#5d8ff0",
    PURPLE: "#b48be0",
    ORANGE: "#e3ae43",
    GREEN: "#4fc487",
    RED: "#ff6257",
}
"""What a dark reader sees instead: matplotlib writes colours into each shape, and these rules overrule them."""
_DARKER = "".join(
    f'[style*="{what}: {light}"]{{{what}:{dark}!important}}'
    for light, dark in _DARK.items()
    for what in ("fill", "stroke")
)
_CSS = (
    "svg{color-scheme:light dark}"
    'text{font-family:system-ui,"Segoe UI","Noto Sans",sans-serif!important}'
    f"@media (prefers-color-scheme: dark){{{_DARKER}}}"
)
_STYLE: dict[RcKeyType, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.labelcolor": DIM,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": PAGE,
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "grid.color": LINE,
    "grid.linewidth": 1,
    "lines.linewidth": 2,
    "svg.fonttype": "none",
    "svg.hashsalt": "onceonly",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": DIM,
    "xtick.major.pad": 6,
    "xtick.major.size": 0,
    "ytick.color": DIM,
    "ytick.major.pad": 6,
    "ytick.major.size": 0,
}
_LEVELS_MAX = 4
"""Lines that do not crowd."""
_MARGIN = 16
_P = ParamSpec("_P")
_R = TypeVar("_R")


def styled(draw: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a figure, or write one, in the house style."""

    @functools.wraps(draw)
    def drawn(*args: _P.args, **options: _P.kwargs) -> _R:
        with rc_context(_STYLE):
            return draw(*args, **options)

    return drawn


def sheet(width: int, height: int, title: str = "") -> Figure:
    """Return a figure with nothing but its title; its units are an SVG's."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    figure.set_label(title)
    figure.text(_MARGIN / width, 1 - 26 / height, title, fontsize=15, fontweight="bold")
    return figure


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Return axes at a place of a sheet, counted from its left upper corner."""
    whole, high = (72 * side for side in figure.get_size_inches())
    return figure.add_axes((left / whole, 1 - (top + height) / high, width / whole, height / high))


def note(axes: Axes, text: str, at: tuple[float, float], off: tuple[float, float], **look: Any) -> None:  # noqa: ANN401  matplotlib's own
    """Write a text beside a place of the axes, ``off`` by so much."""
    axes.annotate(text, at, off, textcoords="offset points", annotation_clip=False, **look)


def levels(axis: Axis) -> None:
    """Mark an axis with few lines, at whole and round numbers."""
    axis.set_major_locator(MaxNLocator(_LEVELS_MAX, steps=[1, 2, 5, 10], integer=True))
    axis.set_major_formatter("{x:,.0f}")
    axis.grid(visible=True)


@styled
def svg(figure: Figure) -> str:
    """Return a figure as SVG, without anything from outside. Its label is for those who do not see it."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    # Without the head of a file of its own, and as wide as there is room, it stands in a page, too.
    head, style, rest = re.sub(r"^.*?(?=<svg )", "", written.getvalue(), flags=re.DOTALL).partition(
        "</style>"
    )
    head = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", head)
    head = head.replace("<svg ", f'<svg role="img" aria-label="{escape(str(figure.get_label()))}" ', 1)
    return f"{head}{_CSS}{style}{rest}"
