"""The time line as one HTML file without anything from outside, drawn from the event log.

Above, the whole run: lives of the job, every epoch of both queries, kills, and what a ``read_committed``
consumer saw. Below, for each kill, the last moments before it and the recovery after it, step by step. Every
mark says what it is when the pointer rests on it.
"""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from onceonly_proof.demo.timeline import Life, Moment, Timeline, Try, build

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from onceonly_proof.demo.follow import Event
    from onceonly_proof.demo.report import Result

_WIDTH = 1200.0
_LEFT = 96.0  # names of the lanes
_RIGHT = 12.0
_BEFORE_MAX_S = 2.5
_AFTER_MAX_S = 15.0
_ROW = 15.0
_GAP = 64.0
"""Between the panel before a kill and the panel after it."""
_LEGEND = (
    ("run", "epoch, run"),
    ("drain", "epoch, drained after recovery"),
    ("tentative", "epoch, written tentatively"),
    ("cut", "epoch cut off by a kill"),
    ("slot", "slot: begun to prepared"),
    ("vote", "VOTE_COMMIT"),
    ("commit-link", "GLOBAL_COMMIT, durable"),
    ("abort-link", "ABORT, durable"),
    ("committed", "transaction committed"),
    ("recovered", "transaction committed by recovery"),
    ("swept", "transaction aborted by a sweep"),
    ("receipt", "receipt"),
)


def write(path: Path, lines: Iterable[Event], *, names: Mapping[str, str], result: Result) -> None:
    """Draw the run into ``path``. ``names`` gives a query's name by its id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(build(lines, names), result), encoding="utf-8")


def draw(timeline: Timeline, result: Result) -> str:
    """Return the page. Pure, but for the style sheet, which is read from beside this module."""
    style = resources.files("onceonly_proof.demo").joinpath("picture.css").read_text(encoding="utf-8")
    cards = "".join(_card(timeline, number, life) for number, life in enumerate(timeline.kills, 1))
    title = f"onceonly demo · {result.guarantee}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{style}</style></head><body>
<header><h1>{escape(title)}</h1>{_verdict(result)}</header>
{_tiles(result)}
<section><h2>The whole run</h2>{_overview(timeline)}{_legend()}</section>
<section><h2>Every kill and its recovery</h2>
<p class="hint">Left of the gap: what the job did last. Right: what its next life did first.</p>
{cards or "<p>There was none.</p>"}</section>
</body></html>
"""


# --- the head ---------------------------------------------------------------------------------------------


def _verdict(result: Result) -> str:
    word, kind = ("clean", "good") if result.is_clean else ("not clean", "bad")
    return f'<p class="verdict {kind}">Audit: {word} for {escape(result.guarantee)}</p>'


def _tiles(result: Result) -> str:
    audit, done = result.audit, result.transactions
    tiles = [
        ("events", audit.events, ""),
        ("missing", audit.missing, "zero"),
        ("duplicated", audit.duplicated, "zero"),
        (f"wrong windows of {audit.windows:,}", audit.wrong_windows, "zero"),
        ("kills", sum(result.kills.values()), ""),
        ("epochs", sum(result.epochs.values()), ""),
        ("transactions committed", done.committed, ""),
        ("recovered", done.recovered, ""),
        ("aborted", done.aborted, ""),
        ("seconds", round(result.seconds), ""),
    ]
    cells = (
        f'<div class="{_tone(kind, value)}"><b>{value:,}</b><span>{escape(name)}</span></div>'
        for name, value, kind in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _tone(kind: str, value: int) -> str:
    if kind != "zero":
        return ""
    return "bad" if value else "good"


def _legend() -> str:
    items = (f'<span><i class="{kind}"></i>{escape(name)}</span>' for kind, name in _LEGEND)
    return f'<p class="legend">{"".join(items)}<span><i class="kill"></i>kill</span></p>'


# --- the whole run ----------------------------------------------------------------------------------------


def _overview(timeline: Timeline) -> str:
    end = max(timeline.end, 0.001)
    x = _Scale(0.0, end, _LEFT, _WIDTH - _RIGHT)
    top, lane = 26.0, 46.0
    parts: list[str] = []
    for life in timeline.lives:
        first = min((each.begin for each in timeline.tries if each.life == life.number), default=life.end)
        parts.append(
            _rect("starting", x(life.begin), x(first), top, lane * 2 + 6, f"life {life.number} starts")
        )
        parts.append(_rect("life", x(first), x(life.end), top, lane * 2 + 6, f"life {life.number}"))
    for row, query in enumerate(timeline.queries):
        y = top + row * (lane + 6)
        parts.append(_label(y + lane / 2, query))
        for each in timeline.tries:
            if each.query == query:
                stop = each.done if each.done is not None else _end_of(timeline, each.life)
                parts.append(_rect(_kind(each), x(each.begin), x(stop), y + 4, lane - 8, _tell(each, stop)))
    bottom = top + 2 * (lane + 6) + 8
    height = 90.0
    parts.append(_visibility(timeline, x, bottom, height))
    base = bottom + height
    parts.append(_axis(x, end, base))
    for number, life in enumerate(timeline.kills, 1):
        at = x(life.end)
        parts.append(
            f'<a href="#kill-{number}"><g class="kill"><line x1="{at:.1f}" x2="{at:.1f}" y1="18" y2="{base:.0f}"/>'
            f'<circle cx="{at:.1f}" cy="11" r="9"/><text x="{at:.1f}" y="14.5">{number}</text>'
            f"<title>kill {number} at {escape(life.step)}, {life.end:.1f} s</title></g></a>"
        )
    return _svg(base + 26, "".join(parts), "Time line of the whole run")


def _visibility(timeline: Timeline, x: _Scale, top: float, height: float) -> str:
    parts = [_label(top + height / 2 - 6, "visible"), _label(top + height / 2 + 8, "records", "dim")]
    # One curve a topic, each on a scale of its own: what matters is when it stands still and that it ends full.
    for topic, points in timeline.visible.items():
        most = max(count for _, count in points)
        path = [f"M{x(0):.1f} {top + height:.1f}"]
        for t, count in points:
            path.append(f"H{x(t):.1f}V{top + height - (height - 6) * count / most:.1f}")
        path.append(f"H{x(timeline.end):.1f}")
        note = f"records of {topic} that a read_committed consumer had seen; {most:,} in the end"
        shape = "".join(path)
        parts.append(
            f'<path class="visible {escape(topic)}" d="{shape}"><title>{escape(note)}</title></path>'
        )
        last = top + 14 + 14 * list(timeline.visible).index(topic)
        parts.append(
            f'<text class="visible-name {escape(topic)}" x="{_LEFT + 8}" y="{last:.1f}">{escape(topic)} {most:,}</text>'
        )
    return "".join(parts)


def _axis(x: _Scale, end: float, y: float) -> str:
    step = next(step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 3600) if end / step <= 16)  # noqa: PLR2004
    marks = (
        f'<line class="tick" x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{y:.1f}" y2="{y + 5:.1f}"/>'
        f'<text class="time" x="{x(t):.1f}" y="{y + 18:.1f}">{t} s</text>'
        for t in range(0, int(end) + 1, step)
    )
    return (
        f'<line class="tick" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>{"".join(marks)}'
    )


# --- one kill ---------------------------------------------------------------------------------------------


def _card(timeline: Timeline, number: int, life: Life) -> str:
    """Draw the moments around a kill: rows are the steps of each query's epoch, in the protocol's order."""
    following = next((each for each in timeline.lives if each.number == life.number + 1), None)
    before = [each for query in timeline.queries for each in timeline.tries_in(life.number, query)[-1:]]
    after: list[Try] = []
    if following is not None:
        after = [
            each for query in timeline.queries for each in timeline.tries_in(following.number, query)[:1]
        ]
    left = _panel_before(before, life)
    right = _panel_after(after, following)
    width = _WIDTH - _LEFT - _RIGHT - _GAP
    middle = _LEFT + width * 0.5
    x_before = _Scale(*left, _LEFT, middle)
    x_after = _Scale(*right, middle + _GAP, _WIDTH - _RIGHT)
    parts, y = [], 22.0
    for query in timeline.queries:
        slots = sorted({slot for each in (*before, *after) if each.query == query for slot in each.slots})
        rows = ["epoch", *(f"slot {slot}" for slot in slots), "decision", "commits", "receipt"]
        parts.append(f'<text class="query" x="0" y="{y + 10:.1f}">{escape(query)}</text>')
        for place, row in enumerate(rows):
            parts.append(_row(y + place * _ROW, row, middle))
        for each, scale, stop in (
            *((each, x_before, left[1]) for each in before),
            *((each, x_after, right[1]) for each in after),
        ):
            if each.query == query:
                parts.append(_try(each, scale, stop, y, slots))
        y += len(rows) * _ROW + 12
    kill = x_before(life.end)
    parts.append(
        f'<g class="kill"><line x1="{kill:.1f}" x2="{kill:.1f}" y1="16" y2="{y - 8:.1f}"/>'
        f'<circle cx="{kill:.1f}" cy="9" r="8"/><text x="{kill:.1f}" y="12.5">{number}</text>'
        f"<title>SIGKILL at {escape(life.step)}</title></g>"
    )
    down = f"{right[0] - life.end:.1f} s" if following is not None else ""
    parts.append(f'<text class="gap" x="{middle + _GAP / 2:.1f}" y="12">{down}</text>')
    parts.append(_span(x_before, left, y) + (_span(x_after, right, y) if after else ""))
    where = ", ".join(f"{each.query} chk-{each.epoch}" for each in before if each.done is None)
    seen = " · ".join(f"{timeline.visible_at(topic, life.end):,} in {topic}" for topic in timeline.visible)
    return (
        f'<article id="kill-{number}"><h3><span>{number}</span> {escape(life.step)}</h3>'
        f'<p class="hint">{life.end:.1f} s · cut off: {escape(where) or "between epochs"} · visible: {escape(seen)}</p>'
        f"{_svg(y + 16, ''.join(parts), f'Kill {number} at {life.step}')}</article>"
    )


def _panel_before(tries: list[Try], life: Life) -> tuple[float, float]:
    begins = [each.begin for each in tries]
    begin = max(min(begins, default=life.end - 1), life.end - _BEFORE_MAX_S)
    return begin - 0.05, life.end


def _panel_after(tries: list[Try], life: Life | None) -> tuple[float, float]:
    if not tries or life is None:
        return (0.0, 1.0) if life is None else (life.begin, life.end)
    begin = min(each.begin for each in tries)
    end = max(each.done if each.done is not None else life.end for each in tries)
    return begin - 0.05, min(end, begin + _AFTER_MAX_S) + 0.05


def _try(each: Try, x: _Scale, stop: float, y: float, slots: list[int]) -> str:
    """Draw one try in the rows of its query."""
    end = each.done if each.done is not None else stop
    parts = [_rect(_kind(each), x(each.begin), x(end), y + 2, _ROW - 4, _tell(each, end))]
    if x(end) - x(each.begin) > 60:  # noqa: PLR2004  room for the name
        parts.append(
            f'<text class="name" x="{x(each.begin) + 4:.1f}" y="{y + 11:.1f}">chk-{each.epoch} {each.mode}</text>'
        )
    rows = {slot: y + (1 + place) * _ROW for place, slot in enumerate(slots)}
    for number, slot in each.slots.items():
        if slot.begun > stop:
            continue
        until = slot.prepared if slot.prepared is not None else end
        note = f"slot {number}: {'prepared' if slot.prepared is not None else 'not prepared'}"
        if slot.prepared is not None or slot.voted is None:  # a drain votes without having begun anything
            parts.append(_rect("slot", x(slot.begun), x(until), rows[number] + 4, _ROW - 8, note))
        if slot.voted is not None and slot.voted <= stop:
            parts.append(
                _mark("vote", x(slot.voted), rows[number], f"slot {number}: VOTE_COMMIT, {slot.rows} rows")
            )
    lines = y + (1 + len(slots)) * _ROW
    for moment in each.moments:
        place, kind = _place(moment)
        if kind and moment.t <= stop:
            note = f"{moment.kind} {moment.note} at {moment.t:.3f} s"
            note = f"slot {moment.slot}: {note}" if moment.slot >= 0 else note
            parts.append(_mark(kind, x(moment.t), lines + place * _ROW, note))
    return "".join(parts)


def _place(moment: Moment) -> tuple[int, str]:
    """Return the row below the slots, and the kind of mark; none for what the slots' votes show already."""
    if moment.kind == "link.persisted":
        return 0, "commit-link" if "COMMIT" in moment.note else "abort-link"
    kinds = {"handle.committed": "committed", "handle.resolved": "recovered", "swept": "swept"}
    if moment.kind in kinds:
        return 1, kinds[moment.kind]
    return 2, "receipt" if moment.kind == "receipt.persisted" else ""


# --- pieces -----------------------------------------------------------------------------------------------


class _Scale:
    """Seconds to places, cut off at the edges of a panel."""

    def __init__(self, begin: float, end: float, left: float, right: float) -> None:
        self._begin, self._left, self._right = begin, left, right
        self._unit = (right - left) / max(end - begin, 1e-6)

    def __call__(self, t: float) -> float:
        return min(max(self._left + (t - self._begin) * self._unit, self._left), self._right)


def _svg(height: float, content: str, name: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(name)}">{content}</svg>'
    )


def _rect(kind: str, left: float, right: float, y: float, height: float, note: str) -> str:
    width = max(right - left, 0.8)
    return (
        f'<rect class="{kind}" x="{left:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">'
        f"<title>{escape(note)}</title></rect>"
    )


def _mark(kind: str, x: float, y: float, note: str) -> str:
    """Draw one moment: links as squares, votes as diamonds, the others as dots."""
    middle = y + _ROW / 2
    if kind in {"commit-link", "abort-link", "receipt"}:
        shape = f'<rect class="{kind}" x="{x - 4:.1f}" y="{middle - 5:.1f}" width="8" height="10" rx="1">'
        return f"{shape}<title>{escape(note)}</title></rect>"
    if kind == "vote":
        points = f"{x:.1f},{middle - 5:.1f} {x + 5:.1f},{middle:.1f} {x:.1f},{middle + 5:.1f} {x - 5:.1f},{middle:.1f}"
        return f'<polygon class="vote" points="{points}"><title>{escape(note)}</title></polygon>'
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{middle:.1f}" r="4"><title>{escape(note)}</title></circle>'
    )


def _label(y: float, text: str, kind: str = "") -> str:
    return f'<text class="lane {kind}" x="{_LEFT - 10}" y="{y + 4:.1f}">{escape(text)}</text>'


def _row(y: float, name: str, middle: float) -> str:
    line = y + _ROW
    ends = ((_LEFT, middle), (middle + _GAP, _WIDTH - _RIGHT))
    grid = (
        f'<line class="grid" x1="{a:.1f}" x2="{b:.1f}" y1="{line:.1f}" y2="{line:.1f}"/>' for a, b in ends
    )
    return f'{"".join(grid)}<text class="row" x="{_LEFT - 10}" y="{y + 11:.1f}">{escape(name)}</text>'


def _span(x: _Scale, panel: tuple[float, float], y: float) -> str:
    return (
        f'<text class="time start" x="{x(panel[0]):.1f}" y="{y + 6:.1f}">{max(panel[0], 0):.2f} s</text>'
        f'<text class="time stop" x="{x(panel[1]):.1f}" y="{y + 6:.1f}">{panel[1]:.2f} s</text>'
    )


def _kind(each: Try) -> str:
    return (each.mode or "run") if each.done is not None else "cut"


def _tell(each: Try, stop: float) -> str:
    rows = sum(int(slot.rows or 0) for slot in each.slots.values())
    end = f"done in {stop - each.begin:.3f} s" if each.done is not None else "cut off"
    mode = each.mode or "not planned yet"
    return f"{each.query} chk-{each.epoch}, {mode}: {len(each.slots)} slots, {rows:,} rows, {end}"


def _end_of(timeline: Timeline, number: int) -> float:
    return next(life.end for life in timeline.lives if life.number == number)
