"""Draws what alignment is for: counts per window of an aligned and of an unaligned run, beside what went in.

Pure: it draws what was measured, and simulates nothing. A window's bar is as high as its count; what is counted too
often is red and stands on top, what is missing is hollow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onceonly.words import n
from onceonly_proof import charts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _LEFT, _RIGHT = 1000, 64, 16
_PANEL, _HEAD, _FOOT = 190, 52, 34
_LABELS_MAX = 20
"""More windows than this have no room for a name or a figure each."""
_ROOM = 34
"""Above the highest bar, for a figure and a kill's dashes."""
_SEEN_MIN = 3.0
"""A difference is never drawn thinner, or one row of a thousand would not be seen."""
_OVER: Mapping[str, Any] = {"color": charts.RED}
_MISSING: Mapping[str, Any] = {"fill": False, "edgecolor": charts.ORANGE, "linestyle": "--"}
_LEGEND = "Bars: rows counted. Red: counted more often than they went in. Dashes: the job was killed in this window."


class Window(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One window of a run: how many rows went in, and what stands in the output in the end."""

    name: str
    expected: int
    counted: int
    killed: bool = False
    """Whether the job died while this window was open."""


class Series(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run, window by window in their order."""

    name: str
    windows: tuple[Window, ...]

    @property
    def over(self) -> int:
        """How often a row was counted once more than it went in."""
        return sum(max(0, each.counted - each.expected) for each in self.windows)

    @property
    def missing(self) -> int:
        """How many rows were not counted."""
        return sum(max(0, each.expected - each.counted) for each in self.windows)


@charts.styled
def draw(aligned: Series, unaligned: Series) -> Figure:
    """Draw both runs under one scale. Pure.

    Raises:
        ValueError: a run without a window.
    """
    runs = (aligned, unaligned)
    if not all(run.windows for run in runs):
        raise ValueError("a run without a window cannot be drawn")
    most = max(1, *(max(each.expected, each.counted) for run in runs for each in run.windows))
    step = _HEAD + _PANEL + _FOOT
    figure = charts.sheet(_WIDTH, len(runs) * step + 24)
    figure.set_label("; ".join(f"{run.name}: {_told(run)}" for run in runs))
    for place, run in enumerate(runs):
        axes = charts.panel(figure, _LEFT, place * step + _HEAD, _WIDTH - _LEFT - _RIGHT, _PANEL)
        _panel(axes, run, most)
    figure.text(_LEFT / _WIDTH, 12 / (len(runs) * step + 24), _LEGEND, color=charts.DIM)
    return figure


def _panel(axes: Axes, run: Series, most: int) -> None:
    """Draw a run: what is right of each window, then what is too much or missing on top of it."""
    high = most * _PANEL / (_PANEL - _ROOM)
    unit = high / _PANEL
    places = range(len(run.windows))
    right = [min(each.expected, each.counted) for each in run.windows]
    tips = [max(abs(each.counted - each.expected), _SEEN_MIN * unit) for each in run.windows]
    over = [place for place, each in enumerate(run.windows) if each.counted > each.expected]
    missing = [place for place, each in enumerate(run.windows) if each.counted < each.expected]
    axes.bar(places, right, 0.72, color=charts.BLUE, label="right")
    for label, which, shape in (("over", over, _OVER), ("missing", missing, _MISSING)):
        axes.bar(
            which, [tips[each] for each in which], 0.72, [right[each] for each in which], label=label, **shape
        )
        for place in which if len(places) <= _LABELS_MAX else ():
            off = run.windows[place].counted - run.windows[place].expected
            look = {"ha": "center", "color": charts.RED if off > 0 else charts.ORANGE, "fontweight": "bold"}
            charts.note(axes, f"{off:+,}", (place, right[place] + tips[place]), (0, 4), **look)
    for place in (place for place, each in enumerate(run.windows) if each.killed):
        tip = right[place] + (tips[place] + 16 * unit if place in {*over, *missing} else 0)
        axes.vlines(place, tip, high, color=charts.RED, linewidth=1, linestyle=(0, (2, 3)), label="kill")
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(0, high)
    charts.levels(axes.yaxis)
    shown = places if len(places) <= _LABELS_MAX else (places[0], places[-1])
    axes.set_xticks(shown, [run.windows[each].name for each in shown])
    axes.set_title(run.name, loc="left", pad=22, fontsize=15, fontweight="bold")
    tone = charts.RED if run.over or run.missing else charts.GREEN
    axes.set_title(_told(run), loc="right", pad=22, fontsize=12, color=tone)


def _told(run: Series) -> str:
    rows, kills = sum(each.expected for each in run.windows), sum(each.killed for each in run.windows)
    found = [f"{run.over:,} counted twice"] if run.over else []
    found += [f"{run.missing:,} missing"] if run.missing else []
    where = n(kills, "window")
    return f"{n(rows, 'row')}, killed in {where}: {', '.join(found) or 'each row counted once'}"
