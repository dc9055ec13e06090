"""The pictures of a campaign's report, as SVG and as plain elements. Pure; the style sheet gives the colours."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from onceonly_proof.campaign.folding import listed, spread, total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly_proof.campaign.values import Result, Round

_WIDTH = 1200
_LEFT = 150  # names of the lanes
_CELL = 18
_BINS = 40
_SEALS = {
    "clean": '<path d="M30 51 l14 14 l27 -31"/>',
    "anomalies": '<path d="M34 34 L66 66 M66 34 L34 66"/>',
    "inconclusive": '<path d="M38 40 q0 -12 12 -12 q13 0 13 11 q0 9 -13 14 v5"/><circle cx="50" cy="71" r="2"/>',
}


def seal(verdict: str) -> str:
    """Draw the verdict's mark."""
    return (
        f'<svg class="seal" viewBox="0 0 100 100" aria-hidden="true"><circle cx="50" cy="50" r="44"/>'
        f"{_SEALS[verdict]}</svg>"
    )


def dot(connector: str) -> str:
    """Return the mark of a connector's colour."""
    return f'<i class="dot {kind(connector)}"></i>'


def kind(connector: str) -> str:
    """Return a connector's class in the style sheet: its name in letters only."""
    return "".join(each if each.isalnum() else "-" for each in connector)


# --- rounds -----------------------------------------------------------------------------------------------


def strip(result: Result) -> str:
    """Draw a cell for each round, a lane for each row of the matrix, coloured by verdict."""
    columns = (_WIDTH - _LEFT) // _CELL
    parts, y = [], 0
    for row in result.matrix:
        lane = [
            each
            for each in result.rounds
            if (each.connector, each.guarantee) == (row.connector, row.guarantee)
        ]
        parts.append(
            f'<text class="lane" x="{_LEFT - 14}" y="{y + 11}">{escape(row.connector)}</text>'
            f'<text class="lane dim" x="{_LEFT - 14}" y="{y + 24}">{escape(row.guarantee)}</text>'
        )
        for place, each in enumerate(lane):
            x, down = _LEFT + place % columns * _CELL, y + place // columns * _CELL
            parts.append(
                f'<rect class="cell {each.verdict}" x="{x}" y="{down}" width="{_CELL - 3}" height="{_CELL - 3}" rx="3">'
                f"<title>{escape(_tell(each))}</title></rect>"
            )
        y += max(34, (len(lane) - 1) // columns * _CELL + _CELL) + 8
    return _svg(y, "".join(parts), "Every round, by connector and verdict")


def _tell(each: Round) -> str:
    lines = [
        f"{each.name} · {each.connector}, {each.guarantee}{each.query and f', {each.query}'} · {each.verdict}",
        f"{each.crashes:,} crashes, {each.rows:,} rows, {each.epochs:,} epochs in {each.seconds:.0f} s",
        f"fired: {listed(each.faults) or 'none'}",
        *([f"found: {listed(each.anomalies)}"] if sum(each.anomalies.values()) else []),
        *each.doubts,
    ]
    return "\n".join(lines)


# --- recovery ---------------------------------------------------------------------------------------------


def recovery(result: Result) -> str:
    """Draw how long it took from a death to the first new row."""
    ours = sorted(s for each in result.rounds for s in each.recovery_s)
    if not ours:
        return "<p>No recovery was timed.</p>"
    most = max(ours[-1], 0.001)
    step = _step(most)
    most = step * -(-most // step)  # whole marks
    parts, y = [_histogram("ours", "onceonly", ours, most, 0)], 110
    marks = round(most / step)
    for mark in range(marks + 1):
        x = _LEFT + (_WIDTH - _LEFT - 40) * mark / marks
        parts.append(f'<text class="time" x="{x:.1f}" y="{y + 16}">{mark * step:g} s</text>')
    return _svg(y + 24, "".join(parts), "Recovery times")


def _histogram(name: str, label: str, values: Sequence[float], most: float, y: float) -> str:
    width, height = _WIDTH - _LEFT - 40, 78.0
    counts = [0] * _BINS
    for value in values:
        counts[min(_BINS - 1, int(value / most * _BINS))] += 1
    base, slot = y + 100, width / _BINS
    bars = "".join(
        f'<rect class="{name}" x="{_LEFT + place * slot + 1:.1f}" y="{base - height * count / max(counts):.1f}" '
        f'width="{slot - 2:.1f}" height="{height * count / max(counts):.1f}" rx="2"><title>{count:,} between '
        f"{place * most / _BINS:.2f} and {(place + 1) * most / _BINS:.2f} s</title></rect>"
        for place, count in enumerate(counts)
        if count
    )
    median, worst = spread(values)
    assert median is not None  # noqa: S101  there are values
    assert worst is not None  # noqa: S101  as above
    at = _LEFT + width * median / most
    end = _LEFT + width * worst / most
    return (
        f'<line class="axis" x1="{_LEFT}" x2="{_LEFT + width}" y1="{base}" y2="{base}"/>{bars}'
        f'<line class="median" x1="{at:.1f}" x2="{at:.1f}" y1="{y + 14}" y2="{base}"/>'
        f'<text class="note" x="{at + 5:.1f}" y="{y + 18}">median {median:.1f} s</text>'
        f'<line class="worst" x1="{end:.1f}" x2="{end:.1f}" y1="{base - 22}" y2="{base}"/>'
        f'<text class="lane" x="{_LEFT - 14}" y="{base - 32}">{escape(label)}</text>'
        f'<text class="lane dim" x="{_LEFT - 14}" y="{base - 17}">worst {worst:.1f} s</text>'
        f'<text class="lane dim" x="{_LEFT - 14}" y="{base - 3}">of {len(values):,}</text>'
    )


def _step(most: float) -> float:
    steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600]
    return next((step for step in steps if most / step <= 12), 86_400)  # noqa: PLR2004  marks that have room


# --- faults -----------------------------------------------------------------------------------------------


def faults(result: Result) -> str:
    """Show a bar for each fault, in the connectors' colours, grouped by the first word of its name."""
    armed, fired = result.armed, result.faults
    names = sorted({*armed, *fired})
    if not names:
        return "<p>None was armed.</p>"
    most = max(1, *(max(fired.get(name, 0), armed.get(name, 0)) for name in names))
    connectors = list(dict.fromkeys(row.connector for row in result.matrix))
    by = {
        connector: total(each.faults for each in result.rounds if each.connector == connector)
        for connector in connectors
    }
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition(" ")[0], []).append(name)
    parts = []
    for group, members in sorted(groups.items(), key=lambda each: -len(each[1])):
        rows = "".join(_fault(name, group, result, by, most) for name in members)
        parts.append(f"<div><h3>{escape(group)}</h3>{rows}</div>")
    legend = "".join(f"<span>{dot(connector)}{escape(connector)}</span>" for connector in connectors)
    return f'<p class="legend">{legend}</p><div class="faults">{"".join(parts)}</div>'


def _fault(name: str, group: str, result: Result, by: dict[str, dict[str, int]], most: int) -> str:
    fired, armed = result.faults.get(name, 0), result.armed.get(name, 0)
    bars = "".join(
        f'<i class="{kind(connector)}" style="width:{100 * counts[name] / most:.2f}%" '
        f'title="{escape(connector)}: {counts[name]:,}"></i>'
        for connector, counts in by.items()
        if counts.get(name)
    )
    missing = max(0, armed - fired)
    bars += f'<i class="unfired" style="width:{100 * missing / most:.2f}%"></i>' if missing else ""
    count = f"{fired:,} of {armed:,}" if missing else f"{fired:,}"
    label = name.removeprefix(group).strip() or name
    return (
        f'<div class="fault{" short" if missing else ""}" title="{escape(name)}: armed {armed:,}, fired {fired:,}">'
        f"<span>{escape(label)}</span><div>{bars}</div><b>{count}</b></div>"
    )


def _svg(height: float, content: str, name: str) -> str:
    box = f"0 0 {_WIDTH} {height:.0f}"
    return f'<svg class="wide" viewBox="{box}" role="img" aria-label="{escape(name)}">{content}</svg>'
