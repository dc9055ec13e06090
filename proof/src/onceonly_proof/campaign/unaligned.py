"""Draws what alignment is for: counts per window of an aligned and of an unaligned run, beside what went in.

Pure: it draws what was measured, and simulates nothing. The SVG needs nothing from outside and is light or dark as its
reader likes. A window's bar is as high as its count; what is counted too often is red and stands on top, what is
missing is hollow.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import msgspec

from onceonly_proof.campaign import svg

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _LEFT, _RIGHT = 1000, 64, 16
_PANEL, _HEAD, _FOOT = 190, 52, 34
_LABELS_MAX = 20
"""More windows than this have no room for a name or a figure each."""
_SEEN_MIN = 3.0
"""A difference is never drawn thinner, or one row of a thousand would not be seen."""
_LEGEND = "Bars: rows counted. Red: counted more often than they went in. Dashes: the job was killed in this window."
_STYLE = """
svg { color-scheme: light dark; font: 12px system-ui, "Segoe UI", "Noto Sans", sans-serif; }
.page { fill: #ffffff; } text { fill: #1d2126; } .dim { fill: #68707a; } .axis { stroke: #d5d8dc; }
.right { fill: #4c7dd8; } .over { fill: #d3261a; } .missing { fill: none; stroke: #b7791f; stroke-dasharray: 3 2; }
.name { font-size: 15px; font-weight: 600; } .more { fill: #d3261a; font-weight: 600; } .less { fill: #b7791f; }
.good { fill: #23864f; } .bad { fill: #d3261a; } .middle { text-anchor: middle; } .end { text-anchor: end; }
.kill { stroke: #d3261a; stroke-dasharray: 2 3; }
@media (prefers-color-scheme: dark) {
.page { fill: #1b1f25; } text { fill: #e6e8eb; } .dim { fill: #97a0ab; } .axis { stroke: #2c323a; }
.right { fill: #5d8ff0; } .over, .more, .bad { fill: #ff6257; } .less { fill: #e3ae43; } .missing { stroke: #e3ae43; }
.good { fill: #48b67a; } .kill { stroke: #ff6257; }
}
"""


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


def draw(aligned: Series, unaligned: Series) -> str:
    """Return the picture of both runs under one scale. Pure.

    Raises:
        ValueError: a run without a window.
    """
    runs = (aligned, unaligned)
    if not all(run.windows for run in runs):
        raise ValueError("a run without a window cannot be drawn")
    most = max(1, *(max(each.expected, each.counted) for run in runs for each in run.windows))
    step = _HEAD + _PANEL + _FOOT
    panels = "".join(_panel(run, most, place * step) for place, run in enumerate(runs))
    height = len(runs) * step + 24
    told = "; ".join(f"{run.name}: {_sum(run)}" for run in runs)
    legend = f'<text class="dim" x="{_LEFT}" y="{height - 12}">{_LEGEND}</text>'
    return svg.picture(_WIDTH, height, told, f"{panels}{legend}", _STYLE)


def _panel(run: Series, most: int, top: float) -> str:
    base, unit = top + _HEAD + _PANEL, (_PANEL - 34) / most  # room for a figure and a kill's dashes
    slot = (_WIDTH - _LEFT - _RIGHT) / len(run.windows)
    tone = "bad" if run.over or run.missing else "good"
    grid = "".join(_level(count, base - unit * count) for count in svg.levels(most))
    bars = "".join(
        _bar(each, _LEFT + place * slot, slot, base, unit) for place, each in enumerate(run.windows)
    )
    names = _names(run.windows, slot, base) if len(run.windows) <= _LABELS_MAX else _ends(run.windows, base)
    return (
        f'<text class="name" x="{_LEFT}" y="{top + 26}">{escape(run.name)}</text>'
        f'<text class="{tone} end" x="{_WIDTH - _RIGHT}" y="{top + 26}">{escape(_sum(run))}</text>'
        f"{grid}{bars}{names}"
    )


def _sum(run: Series) -> str:
    rows, kills = sum(each.expected for each in run.windows), sum(each.killed for each in run.windows)
    found = [f"{run.over:,} counted twice"] if run.over else []
    found += [f"{run.missing:,} missing"] if run.missing else []
    where = "1 window" if kills == 1 else f"{kills:,} windows"
    return f"{rows:,} rows, killed in {where}: {', '.join(found) or 'each row counted once'}"


def _bar(each: Window, x: float, slot: float, base: float, unit: float) -> str:
    """Draw a window: what is right, then what is too much or missing on top of it."""
    width, left = max(slot * 0.72, 0.8), x + slot * 0.14
    right, off = min(each.expected, each.counted), each.counted - each.expected
    tall, tip = unit * right, max(unit * abs(off), _SEEN_MIN) if off else 0.0
    note = f"{each.name}: {each.expected:,} went in, {each.counted:,} counted"
    parts = [
        f'<rect class="right" x="{left:.1f}" y="{base - tall:.1f}" width="{width:.1f}" height="{tall:.1f}"/>'
    ]
    figure = _figure(off, x + slot / 2, base - tall - tip, slot)
    if each.killed:
        at, end = f"{x + slot / 2:.1f}", base - tall - tip - (16 if figure else 0)
        parts.append(f'<line class="kill" x1="{at}" x2="{at}" y1="{base - _PANEL:.1f}" y2="{end:.1f}"/>')
        note += ", the job was killed meanwhile"
    if off:
        shape = "over" if off > 0 else "missing"
        parts.append(
            f'<rect class="{shape}" x="{left:.1f}" y="{base - tall - tip:.1f}" width="{width:.1f}" height="{tip:.1f}"/>'
        )
    return f"<g><title>{escape(note)}</title>{''.join(parts)}{figure}</g>"


def _figure(off: int, x: float, y: float, slot: float) -> str:
    if not off or slot < (_WIDTH - _LEFT - _RIGHT) / _LABELS_MAX:
        return ""
    kind = "more" if off > 0 else "less"
    return f'<text class="{kind} middle" x="{x:.1f}" y="{y - 4:.1f}">{off:+,}</text>'


def _level(count: int, y: float) -> str:
    line = f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text class="dim end" x="{_LEFT - 8}" y="{y + 4:.1f}">{count:,}</text>'


def _names(windows: Sequence[Window], slot: float, base: float) -> str:
    places = ((_LEFT + (place + 0.5) * slot, escape(each.name)) for place, each in enumerate(windows))
    return "".join(
        f'<text class="dim middle" x="{x:.1f}" y="{base + 16:.1f}">{name}</text>' for x, name in places
    )


def _ends(windows: Sequence[Window], base: float) -> str:
    return (
        f'<text class="dim" x="{_LEFT}" y="{base + 16:.1f}">{escape(windows[0].name)}</text>'
        f'<text class="dim end" x="{_WIDTH - _RIGHT}" y="{base + 16:.1f}">{escape(windows[-1].name)}</text>'
    )
