"""The pictures of a page: bars with least and most, lines over a doubling axis, figures beside aims. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.ratios import is_missed
from onceonly_proof import charts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchmarks.ratios import Asked
    from benchmarks.summary import Line

_WIDTH, _LEFT, _RIGHT, _HEAD = 1000, 210, 120, 44
_ROW, _FOOT = 20, 34
_PANEL, _SIDE = 240, 70
_SMALL_WIDTH, _SMALL_HEIGHT, _SMALL_HEAD = 456, 110, 40
_COLOURS = {"onceonly": charts.BLUE, "spark": charts.ORANGE, "flink": charts.PURPLE}


@charts.styled
def bars(title: str, unit: str, lines: Sequence[Line]) -> Figure:
    """Draw a bar for each line, grouped by work: its median, and a thin line from the least to the most.

    Raises:
        ValueError: there is none.
    """
    if not lines:
        raise ValueError(f"{title}: nothing to draw")
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.work, []).append(line)
    # A row for the name of each group, one for each of its bars, half a one below.
    heads, places, place = [], [], 0.0
    for work, members in groups.items():
        heads.append((place, work))
        places += [place + number for number in range(1, len(members) + 1)]
        place += len(members) + 1.5
    ordered = [line for members in groups.values() for line in members]
    figure = charts.sheet(_WIDTH, round(_HEAD + place * _ROW + _FOOT), f"{title}, {unit}")
    axes = charts.panel(figure, _LEFT, _HEAD, _WIDTH - _LEFT - _RIGHT, place * _ROW)
    colours = [_COLOURS[line.contender.partition("-")[0]] for line in ordered]
    axes.barh(places, [line.median for line in ordered], color=colours)
    axes.hlines(
        places, [line.least for line in ordered], [line.most for line in ordered], charts.INK, linewidth=1
    )
    for at, line in zip(places, ordered, strict=True):
        charts.note(axes, f"{line.median:,.1f}", (max(line.median, line.most), at), (8, -4))
    for at, work in heads:
        charts.note(axes, work, (0, at), (16 - _LEFT, -4), fontweight="bold")
    axes.set_ylim(place - 0.5, -0.5)
    axes.set_yticks(places, [line.contender for line in ordered], color=charts.INK)
    axes.set_xlim(0, max(1, math.ceil(max(line.most for line in ordered))))
    charts.levels(axes.xaxis)
    return figure


@charts.styled
def curve(title: str, unit: str, across: str, points: Mapping[int, float]) -> Figure:
    """Draw one line through points, over an axis on which each mark is a multiple of the one before.

    Raises:
        ValueError: there are less than two points.
    """
    if len(points) < 2:  # noqa: PLR2004  a line has two ends
        raise ValueError(f"{title}: too few points for a line")
    figure = charts.sheet(_WIDTH, _HEAD + _PANEL + 52, f"{title}, {unit}")
    axes = charts.panel(figure, _SIDE, _HEAD, _WIDTH - 2 * _SIDE, _PANEL)
    places = sorted(points)
    axes.set_xscale("log")
    axes.set_xticks(places, [f"{place:,}" for place in places])
    axes.minorticks_off()
    _line(axes, places, [points[place] for place in places], "{:,.1f}")
    axes.set_ylim(0, 1.1 * max(points.values()))
    axes.set_xlabel(across)
    charts.levels(axes.yaxis)
    return figure


@charts.styled
def panels(title: str, shown: Sequence[tuple[Asked, Sequence[float]]]) -> Figure:
    """Draw each figure for itself, two in a row: a line through its values, oldest first, a broken one at its aim."""
    step = _SMALL_HEIGHT + _SMALL_HEAD
    height = _HEAD + math.ceil(len(shown) / 2) * step + 10
    figure = charts.sheet(_WIDTH, height, f"{title}, aims as broken lines")
    for number, (asked, values) in enumerate(shown):
        left, top = 16 + number % 2 * _WIDTH / 2, _HEAD + number // 2 * step + 22
        axes = charts.panel(figure, left, top, _SMALL_WIDTH, _SMALL_HEIGHT)
        axes.set_title(asked.brief, loc="left", fontsize=12, fontweight="bold")
        axes.set_title(asked.bound, loc="right", fontsize=12, color=charts.DIM)
        axes.set(xticks=[], yticks=[])
        if values:
            colours = [charts.ORANGE if is_missed(asked, value) else charts.GREEN for value in values]
            _line(axes, range(len(values)), values, "{:,.3g}", colours)
            axes.axhline(asked.aim, color=charts.GREEN, linewidth=1, linestyle=(0, (5, 4)))
            # Room above the highest for its number.
            axes.set_ylim(0, 1.2 * max(*values, asked.aim))
    return figure


def _line(
    axes: Axes, across: Sequence[int], values: Sequence[float], form: str, colours: Sequence[str] = ()
) -> None:
    """Draw a line with a dot and its figure at each point."""
    axes.plot(across, values, color=charts.BLUE)
    axes.scatter(across, values, 64, colours or charts.BLUE, linewidths=0, zorder=3)
    for place, value in zip(across, values, strict=True):
        charts.note(axes, form.format(value), (place, value), (0, 8), ha="center")
