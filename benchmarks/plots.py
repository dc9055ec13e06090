"""The pictures of a page, as SVG: bars with least and most, lines over a doubling axis, figures beside aims. Pure."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from benchmarks.ratios import is_missed
from onceonly_proof.campaign import svg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.ratios import Asked
    from benchmarks.summary import Line

_WIDTH, _LEFT, _RIGHT, _HEAD = 1000, 210, 120, 44
_BAR, _GAP, _FOOT = 16, 10, 34
_PANEL, _SIDE = 240, 70
_SMALL_WIDTH, _SMALL_HEIGHT, _SMALL_HEAD = 480, 110, 30
_STYLE = """
svg { color-scheme: light dark; font: 12px system-ui, "Segoe UI", "Noto Sans", sans-serif; }
.page { fill: #ffffff; } text { fill: #1d2126; } .dim { fill: #68707a; } .axis { stroke: #d5d8dc; }
.name { font-size: 15px; font-weight: 600; } .group { font-weight: 600; } .middle { text-anchor: middle; }
.end { text-anchor: end; } .onceonly { fill: #4c7dd8; } .spark { fill: #d08c2e; } .flink { fill: #9a6bc4; }
.spread { stroke: #1d2126; } .line { fill: none; stroke: #4c7dd8; stroke-width: 2; }
.aim { stroke: #2f9e62; stroke-dasharray: 5 4; } .reached { fill: #2f9e62; } .missed { fill: #d08c2e; }
@media (prefers-color-scheme: dark) {
.page { fill: #1b1f25; } text { fill: #e6e8eb; } .dim { fill: #97a0ab; } .axis { stroke: #2c323a; }
.onceonly { fill: #5d8ff0; } .spark { fill: #e3ae43; } .flink { fill: #b48be0; } .spread { stroke: #e6e8eb; }
.line { stroke: #5d8ff0; } .aim { stroke: #4fc487; } .reached { fill: #4fc487; } .missed { fill: #e3ae43; }
}
"""


def bars(title: str, unit: str, lines: Sequence[Line]) -> str:
    """Draw a bar for each line, grouped by work: its median, and a thin line from the least to the most.

    Raises:
        ValueError: there is none.
    """
    if not lines:
        raise ValueError(f"{title}: nothing to draw")
    most = max(1, math.ceil(max(line.most for line in lines)))
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.work, []).append(line)
    parts, y = [], _HEAD + 4
    for work, members in groups.items():
        parts.append(f'<text class="group" x="16" y="{y + 12}">{escape(work)}</text>')
        y += _BAR + 4
        for line in members:
            parts.append(_bar(line, y, most))
            y += _BAR + 4
        y += _GAP
    axis = "".join(_level(value, most, y) for value in svg.levels(most))
    head = f'<text class="name" x="16" y="26">{escape(title)}, {escape(unit)}</text>'
    return svg.picture(_WIDTH, y + _FOOT, title, f"{head}{axis}{''.join(parts)}", _STYLE)


def curve(title: str, unit: str, across: str, points: Mapping[int, float]) -> str:
    """Draw one line through points, over an axis on which each mark is a multiple of the one before.

    Raises:
        ValueError: there are less than two points.
    """
    if len(points) < 2:  # noqa: PLR2004  a line has two ends
        raise ValueError(f"{title}: too few points for a line")
    most = max(1, math.ceil(max(points.values())))
    base, width = _HEAD + _PANEL, _WIDTH - 2 * _SIDE
    first, last = math.log(min(points)), math.log(max(points))
    places = [
        (_SIDE + width * (math.log(x) - first) / (last - first), base - _PANEL * y / most, x, y)
        for x, y in sorted(points.items())
    ]
    levels = "".join(
        f'<line class="axis" x1="{_SIDE}" x2="{_WIDTH - _SIDE}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="dim end" x="{_SIDE - 8}" y="{y + 4:.1f}">{value:,}</text>'
        for value, y in ((value, base - _PANEL * value / most) for value in svg.levels(most))
    )
    marks = "".join(
        f'<circle class="onceonly" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        f'<text class="middle" x="{x:.1f}" y="{y - 9:.1f}">{value:,.1f}</text>'
        f'<text class="dim middle" x="{x:.1f}" y="{base + 18}">{count:,}</text>'
        for x, y, count, value in places
    )
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in places)
    head = f'<text class="name" x="16" y="26">{escape(title)}, {escape(unit)}</text>'
    foot = f'<text class="dim middle" x="{_WIDTH / 2:.0f}" y="{base + 38}">{escape(across)}</text>'
    line = f'<polyline class="line" points="{path}"/>'
    return svg.picture(_WIDTH, base + 52, title, f"{head}{levels}{line}{marks}{foot}", _STYLE)


def panels(title: str, shown: Sequence[tuple[Asked, Sequence[float]]]) -> str:
    """Draw each figure for itself, two in a row: a line through its values, oldest first, a broken one at its aim."""
    height = _HEAD + math.ceil(len(shown) / 2) * (_SMALL_HEIGHT + _SMALL_HEAD + _GAP) + _GAP
    parts = [f'<text class="name" x="16" y="26">{escape(title)}, aims as broken lines</text>']
    for number, (asked, values) in enumerate(shown):
        x = 16 + number % 2 * _WIDTH / 2
        y = _HEAD + number // 2 * (_SMALL_HEIGHT + _SMALL_HEAD + _GAP)
        parts.append(f'<g transform="translate({x:.0f} {y})">{_panel(asked, values)}</g>')
    return svg.picture(_WIDTH, height, title, "".join(parts), _STYLE)


def _panel(asked: Asked, values: Sequence[float]) -> str:
    head = (
        f'<text class="group" x="0" y="14">{escape(asked.brief)}</text>'
        f'<text class="dim end" x="{_SMALL_WIDTH - 30}" y="14">{escape(asked.bound)}</text>'
    )
    if not values:
        return head
    # Room above the highest for its number.
    most = max(*values, asked.aim) * 1.2
    width, base = _SMALL_WIDTH - 60, _SMALL_HEAD + _SMALL_HEIGHT - 12
    step = width / max(1, len(values) - 1)

    def height(value: float) -> float:
        return base - (_SMALL_HEIGHT - 12) * value / most

    places = [(10 + step * number, height(value), value) for number, value in enumerate(values)]
    marks = "".join(
        f'<circle class="{"missed" if is_missed(asked, value) else "reached"}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        f'<text class="middle" x="{x:.1f}" y="{y - 8:.1f}">{value:,.3g}</text>'
        for x, y, value in places
    )
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
    level = height(asked.aim)
    return (
        f'{head}<line class="axis" x1="0" x2="{width + 20}" y1="{base}" y2="{base}"/>'
        f'<line class="aim" x1="0" x2="{width + 20}" y1="{level:.1f}" y2="{level:.1f}"/>'
        f'<polyline class="line" points="{path}"/>{marks}'
    )


def _bar(line: Line, y: int, most: int) -> str:
    end, low, high = (_x(value, most) for value in (line.median, line.least, line.most))
    middle, kind = y + _BAR / 2, line.contender.partition("-")[0]
    told = f"{line.contender}: median {line.median:,.1f}, {line.least:,.1f} to {line.most:,.1f} of {line.runs} runs"
    return (
        f"<g><title>{escape(told)}</title>"
        f'<text class="end" x="{_LEFT - 8}" y="{y + 12}">{escape(line.contender)}</text>'
        f'<rect class="{escape(kind)}" x="{_LEFT}" y="{y}" width="{end - _LEFT:.1f}" height="{_BAR}" rx="2"/>'
        f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'
        f'<text x="{max(end, high) + 8:.1f}" y="{y + 12}">{line.median:,.1f}</text></g>'
    )


def _level(value: int, most: int, bottom: int) -> str:
    x = _x(value, most)
    return (
        f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{_HEAD}" y2="{bottom}"/>'
        f'<text class="dim middle" x="{x:.1f}" y="{bottom + 16}">{value:,}</text>'
    )


def _x(value: float, most: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / most
