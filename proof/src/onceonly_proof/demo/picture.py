"""The time line as one HTML file without anything from outside, drawn from the event log.

Above, the whole run: lives of the job, every epoch of both queries, kills, and what a ``read_committed``
consumer saw. Below, for each kill, the last moments before it and the recovery after it, step by step. Every
mark says what it is when the pointer rests on it. Here are the places; ``picture.html.jinja`` has the shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from onceonly_proof.demo.timeline import Life, Moment, Timeline, Try, build
from onceonly_proof.pages import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from onceonly_proof.demo.follow import Event
    from onceonly_proof.demo.report import Result

_WIDTH = 1200.0
_LEFT = 96.0  # names of the lanes
_RIGHT = 12.0
_BEFORE_MAX_S = 2.5
_AFTER_MAX_S = 15.0
_LANE = 46.0
_VISIBLE = 90.0
_ROW = 15.0
_GAP = 64.0
"""Between the panel before a kill and the panel after it."""
_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 3600)
_TICKS_MAX = 16
_NAME_MIN = 60
"""So wide is a try that has room for its name."""
_LEGEND = {
    "run": "epoch, run",
    "drain": "epoch, drained after recovery",
    "tentative": "epoch, written tentatively",
    "cut": "epoch cut off by a kill",
    "slot": "slot: begun to prepared",
    "vote": "VOTE_COMMIT",
    "commit-link": "GLOBAL_COMMIT, durable",
    "abort-link": "ABORT, durable",
    "committed": "transaction committed",
    "recovered": "transaction committed by recovery",
    "swept": "transaction aborted by a sweep",
    "receipt": "receipt",
    "kill": "kill",
}
_MARKS = {
    "handle.committed": (1, "committed"),
    "handle.resolved": (1, "recovered"),
    "swept": (1, "swept"),
    "receipt.persisted": (2, "receipt"),
}
"""Moments by the row below the slots, and the kind of mark. A link's depends on what it says."""


class _Bar(NamedTuple):
    kind: str
    x: float
    y: float
    width: float
    height: float
    note: str


class _Mark(NamedTuple):
    kind: str
    x: float
    y: float
    note: str


class _Label(NamedTuple):
    kind: str
    x: float
    y: float
    text: object


class _Kill(NamedTuple):
    number: int
    x: float
    bottom: float
    note: str


@dataclass(slots=True)
class _Drawing:
    """The parts of one picture, by their shapes. ``lines`` have a height and two ends, ``curves`` kind, note, path."""

    height: float = 0.0
    lines: list[tuple[float, float, float]] = field(default_factory=list)
    bars: list[_Bar] = field(default_factory=list)
    marks: list[_Mark] = field(default_factory=list)
    curves: list[tuple[str, str, str]] = field(default_factory=list)
    labels: list[_Label] = field(default_factory=list)
    kills: list[_Kill] = field(default_factory=list)

    def bar(self, kind: str, ends: tuple[float, float], y: float, height: float, note: str) -> None:
        """Add a rectangle that is wide enough to be seen."""
        self.bars.append(_Bar(kind, ends[0], y, round(max(ends[1] - ends[0], 0.8), 1), height, note))


class _Scale:
    """Seconds to places, cut off at the edges of a panel."""

    def __init__(self, begin: float, end: float, left: float, right: float) -> None:
        self.begin, self.end, self._left, self._right = begin, end, left, right
        self._unit = (right - left) / max(end - begin, 1e-6)

    def __call__(self, t: float) -> float:
        return round(min(max(self._left + (t - self.begin) * self._unit, self._left), self._right), 1)


def write(path: Path, lines: Iterable[Event], *, names: Mapping[str, str], result: Result) -> None:
    """Draw the run into ``path``. ``names`` gives a query's name by its id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(build(lines, names), result), encoding="utf-8")


def draw(timeline: Timeline, result: Result) -> str:
    """Return the page. Pure, but for the templates, which are read from beside this module."""
    return render(
        "onceonly_proof.demo",
        "picture.html.jinja",
        result=result,
        tiles=_tiles(result),
        width=_WIDTH,
        overview=_overview(timeline),
        legend=_LEGEND,
        cards=[_card(timeline, number, life) for number, life in enumerate(timeline.kills, 1)],
    )


def _tiles(result: Result) -> list[tuple[str, int, str]]:
    audit, done = result.audit, result.transactions
    must_be_zero = {
        "missing": audit.missing,
        "duplicated": audit.duplicated,
        f"wrong windows of {audit.windows:,}": audit.wrong_windows,
    }
    counts = {
        "kills": sum(result.kills.values()),
        "epochs": sum(result.epochs.values()),
        "transactions committed": done.committed,
        "recovered": done.recovered,
        "aborted": done.aborted,
        "seconds": round(result.seconds),
    }
    return [
        ("events", audit.events, ""),
        *((name, value, "bad" if value else "good") for name, value in must_be_zero.items()),
        *((name, value, "") for name, value in counts.items()),
    ]


# --- the whole run ----------------------------------------------------------------------------------------


def _overview(timeline: Timeline) -> _Drawing:
    end = max(timeline.end, 0.001)
    x = _Scale(0.0, end, _LEFT, _WIDTH - _RIGHT)
    top, drawn = 26.0, _Drawing()
    for life in timeline.lives:
        first = min((each.begin for each in timeline.tries if each.life == life.number), default=life.end)
        name, high = f"life {life.number}", 2 * _LANE + 6
        drawn.bar("starting", (x(life.begin), x(first)), top, high, f"{name} starts")
        drawn.bar("life", (x(first), x(life.end)), top, high, name)
    ends = {life.number: life.end for life in timeline.lives}
    for row, query in enumerate(timeline.queries):
        y = top + row * (_LANE + 6)
        drawn.labels.append(_Label("lane", _LEFT - 10, y + _LANE / 2 + 4, query))
        for each in timeline.tries:
            if each.query == query:
                stop = ends[each.life] if each.done is None else each.done
                drawn.bar(_kind(each), (x(each.begin), x(stop)), y + 4, _LANE - 8, _tell(each, stop))
    bottom = top + 2 * (_LANE + 6) + 8
    _visible(drawn, timeline, x, bottom)
    base = bottom + _VISIBLE
    step = next(step for step in _STEPS_S if end / step <= _TICKS_MAX)
    drawn.lines.append((base, _LEFT, _WIDTH - _RIGHT))
    drawn.labels += [_Label("time", x(t), base + 18, f"{t} s") for t in range(0, int(end) + 1, step)]
    drawn.kills = [
        _Kill(number, x(life.end), base, f"kill {number} at {life.step}, {life.end:.1f} s")
        for number, life in enumerate(timeline.kills, 1)
    ]
    drawn.height = base + 26
    return drawn


def _visible(drawn: _Drawing, timeline: Timeline, x: _Scale, top: float) -> None:
    """Draw one curve a topic, on a scale of its own: what matters is when it stands still and that it ends full."""
    for place, name in enumerate(("visible", "records")):
        kind = "lane dim" if place else "lane"
        drawn.labels.append(_Label(kind, _LEFT - 10, top + _VISIBLE / 2 - 2 + 14 * place, name))
    for place, (topic, points) in enumerate(timeline.visible.items()):
        most = max(count for _, count in points)
        path = f"M{x(0)} {top + _VISIBLE}" + "".join(
            f"H{x(t)}V{top + _VISIBLE - (_VISIBLE - 6) * count / most:.1f}" for t, count in points
        )
        note = f"records of {topic} that a read_committed consumer had seen; {most:,} in the end"
        drawn.curves.append((f"visible {topic}", note, f"{path}H{x(timeline.end)}"))
        name = f"{topic} {most:,}"
        drawn.labels.append(_Label(f"visible-name {topic}", _LEFT + 8, top + 14 + 14 * place, name))


# --- one kill ---------------------------------------------------------------------------------------------


def _card(timeline: Timeline, number: int, life: Life) -> dict[str, object]:
    """Draw the moments around a kill: rows are the steps of each query's epoch, in the protocol's order."""
    following = next((each for each in timeline.lives if each.number == life.number + 1), None)
    before = [each for query in timeline.queries for each in timeline.tries_in(life.number, query)[-1:]]
    after = [
        each
        for query in timeline.queries
        for each in timeline.tries_in(life.number + 1, query)[:1]
        if following is not None
    ]
    middle = _LEFT + (_WIDTH - _LEFT - _RIGHT - _GAP) / 2
    left = _Scale(*_panel_before(before, life), _LEFT, middle)
    right = _Scale(*_panel_after(after, following), middle + _GAP, _WIDTH - _RIGHT)
    drawn, y = _Drawing(), 22.0
    for query in timeline.queries:
        own = [(each, left) for each in before if each.query == query]
        own += [(each, right) for each in after if each.query == query]
        slots = sorted({slot for each, _ in own for slot in each.slots})
        drawn.labels.append(_Label("query", 0, y + 10, query))
        for row in ("epoch", *(f"slot {slot}" for slot in slots), "decision", "commits", "receipt"):
            drawn.labels.append(_Label("row", _LEFT - 10, y + 11, row))
            y += _ROW
            drawn.lines += [(y, _LEFT, middle), (y, middle + _GAP, _WIDTH - _RIGHT)]
        for each, scale in own:
            _try(drawn, each, scale, y - (len(slots) + 4) * _ROW, slots)
        y += 12
    drawn.kills.append(_Kill(number, left(life.end), y - 8, f"SIGKILL at {life.step}"))
    down = f"{right.begin - life.end:.1f} s" if following is not None else ""
    drawn.labels.append(_Label("gap", middle + _GAP / 2, 12, down))
    for scale in (left, right) if after else (left,):
        begin = f"{max(scale.begin, 0):.2f} s"
        drawn.labels.append(_Label("time start", scale(scale.begin), y + 6, begin))
        drawn.labels.append(_Label("time stop", scale(scale.end), y + 6, f"{scale.end:.2f} s"))
    drawn.height = y + 16
    where = ", ".join(f"{each.query} chk-{each.epoch}" for each in before if each.done is None)
    seen = " · ".join(f"{timeline.visible_at(topic, life.end):,} in {topic}" for topic in timeline.visible)
    hint = f"{life.end:.1f} s · cut off: {where or 'between epochs'} · visible: {seen}"
    return {"number": number, "step": life.step, "hint": hint, "parts": drawn}


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


def _try(drawn: _Drawing, each: Try, x: _Scale, y: float, slots: list[int]) -> None:
    """Draw one try in the rows of its query."""
    end = each.done if each.done is not None else x.end
    drawn.bar(_kind(each), (x(each.begin), x(end)), y + 2, _ROW - 4, _tell(each, end))
    if x(end) - x(each.begin) > _NAME_MIN:
        drawn.labels.append(_Label("name", x(each.begin) + 4, y + 11, f"chk-{each.epoch} {each.mode}"))
    for number, slot in each.slots.items():
        row = y + (1 + slots.index(number)) * _ROW
        until = slot.prepared if slot.prepared is not None else end
        note = f"slot {number}: {'prepared' if slot.prepared is not None else 'not prepared'}"
        # A drain votes without having begun anything.
        if slot.begun <= x.end and (slot.prepared is not None or slot.voted is None):
            drawn.bar("slot", (x(slot.begun), x(until)), row + 4, _ROW - 8, note)
        if slot.voted is not None and slot.voted <= x.end:
            note = f"slot {number}: VOTE_COMMIT, {slot.rows} rows"
            drawn.marks.append(_Mark("vote", x(slot.voted), row + _ROW / 2, note))
    for place, kind, moment in _marked(each):
        if moment.t <= x.end:
            note = f"{moment.kind} {moment.note} at {moment.t:.3f} s"
            note = f"slot {moment.slot}: {note}" if moment.slot >= 0 else note
            row = y + (1 + len(slots) + place) * _ROW
            drawn.marks.append(_Mark(kind, x(moment.t), row + _ROW / 2, note))


def _marked(each: Try) -> Iterator[tuple[int, str, Moment]]:
    """Yield the moments that have a mark, each with its row below the slots and its kind."""
    for moment in each.moments:
        if moment.kind == "link.persisted":
            yield 0, "commit-link" if "COMMIT" in moment.note else "abort-link", moment
        elif moment.kind in _MARKS:
            yield *_MARKS[moment.kind], moment


def _kind(each: Try) -> str:
    return (each.mode or "run") if each.done is not None else "cut"


def _tell(each: Try, stop: float) -> str:
    rows = sum(int(slot.rows or 0) for slot in each.slots.values())
    end = f"done in {stop - each.begin:.3f} s" if each.done is not None else "cut off"
    mode = each.mode or "not planned yet"
    return f"{each.query} chk-{each.epoch}, {mode}: {len(each.slots)} slots, {rows:,} rows, {end}"
