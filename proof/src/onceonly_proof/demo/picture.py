"""The time line as one HTML file without anything from outside, drawn from the event log.

Above, the whole run: lives of the job, every epoch of both queries, kills, and what a ``read_committed``
consumer saw. Below, for each kill, the last moments before it and the recovery after it, step by step. Every
mark says what it is when the pointer rests on it. Here are the places; the shapes are the renderer's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.view import shapes, style
from onceonly.view.axis import Axis
from onceonly.view.markup import join, tag
from onceonly.view.page import whole
from onceonly.view.values import What
from onceonly.words import n
from onceonly_proof.demo.timeline import Life, Moment, Timeline, Try, build

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onceonly.view.markup import Markup
    from onceonly_proof.demo.follow import Event
    from onceonly_proof.demo.report import Result

_SHEET = Path(__file__).with_name("picture.css")
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
_BARS = {
    "run": "epoch, run",
    "drain": "epoch, drained after recovery",
    "tentative": "epoch, written tentatively",
    "cut": "epoch cut off by a kill",
    "slot": "slot: begun to prepared",
}
_LEGEND = {
    What.VOTE: "VOTE_COMMIT",
    What.DECISION: "GLOBAL_COMMIT, durable",
    What.ABORT: "ABORT, durable",
    What.COMMITTED: "transaction committed",
    What.RECOVERED: "transaction committed by recovery",
    What.SWEPT: "transaction aborted by a sweep",
    What.RECEIPT: "receipt",
}
_MARKS = {
    "handle.committed": (1, What.COMMITTED),
    "handle.resolved": (1, What.RECOVERED),
    "swept": (1, What.SWEPT),
    "receipt.persisted": (2, What.RECEIPT),
}
"""Moments by the row below the slots, and the kind of mark. A link's depends on what it says."""


@dataclass(slots=True)
class _Drawing:
    """The parts of one picture, from the ground up."""

    height: float = 0.0
    parts: list[Markup] = field(default_factory=list)

    def bar(self, kind: str, ends: tuple[float, float], y: float, height: float, note: str) -> None:
        """Add a rectangle."""
        self.parts.append(shapes.bar(f"demo-{kind}", ends[0], y, ends[1] - ends[0], height, note))

    def label(self, words: object, x: float, y: float, kind: str = "dim small") -> None:
        """Add words."""
        self.parts.append(shapes.label(words, x, y, kind))

    def kill(self, number: int, x: float, bottom: float, note: str) -> None:
        """Add where the job was killed, with a way to what is told of it."""
        drawn = tag(
            "g", tag("title", note), shapes.line(x, 18, x, bottom, "demo-kill"),
            tag("circle", cx=f"{x:.1f}", cy=10, r=9), shapes.label(number, x, 13.5, "mid small"), class_="demo-kill",
        )  # fmt: skip
        self.parts.append(tag("a", drawn, href=f"#kill-{number}"))

    def picture(self, told: str) -> Markup:
        """Return the whole, which may be wider than the page: who has no mouse goes to it and moves it."""
        drawn = shapes.picture(told, _WIDTH, self.height, self.parts, has_links=True)
        return tag("div", drawn, class_="oo-scroll", tabindex="0", role="region", aria_label=told)


def write(path: Path, lines: Iterable[Event], *, names: Mapping[str, str], result: Result) -> None:
    """Draw the run into ``path``. ``names`` gives a query's name by its id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(build(lines, names), result), encoding="utf-8")


def draw(timeline: Timeline, result: Result) -> str:
    """Return the page. Pure, but for the style sheet beside this module."""
    title = f"onceonly demo · {result.guarantee}"
    told = f"Audit: {'clean' if result.is_clean else 'not clean'} for {result.guarantee}"
    tone = "good" if result.is_clean else "bad"
    head = tag(
        "header",
        tag("h1", title),
        tag("p", told, class_=f"demo-verdict demo-{tone}"),
        class_="demo-head",
    )
    tiles = tag("dl", (_tile(*each) for each in _tiles(result)), class_="demo-tiles")
    whole_run = _overview(timeline).picture("Time line of the whole run")
    cards = [_card(timeline, number, life) for number, life in enumerate(timeline.kills, 1)]
    body = join(
        head,
        tiles,
        tag("section", tag("h2", "The whole run"), whole_run, _legend()),
        tag(
            "section",
            tag("h2", "Every kill and its recovery"),
            tag("p", "Left of the gap: what the job did last. Right: what its next life did first.", class_="oo-note"),
            cards or tag("p", "There was none."),
        ),
    )  # fmt: skip
    return whole(title, body, css=style.PAGE + _SHEET.read_text(encoding="utf-8").replace("\n", ""))


def _tile(name: str, value: int, tone: str) -> Markup:
    return tag("div", tag("dt", name), tag("dd", f"{value:,}", class_=f"demo-{tone}" if tone else None))


def _legend() -> Markup:
    bars = [tag("li", tag("i", class_=f"demo-{kind}"), name) for kind, name in _BARS.items()]
    marks = [tag("li", shapes.sample(what), name) for what, name in _LEGEND.items()]
    return tag("ul", bars, marks, tag("li", tag("i", class_="demo-kill"), "kill"), class_="oo-legend")


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
    x = Axis([(0.0, end)], _LEFT, _WIDTH - _RIGHT)
    top, drawn = 26.0, _Drawing()
    for life in timeline.lives:
        first = min((each.begin for each in timeline.tries if each.life == life.number), default=life.end)
        name, high = f"life {life.number}", 2 * _LANE + 6
        drawn.bar("starting", (x(life.begin), x(first)), top, high, f"{name} starts")
        drawn.bar("life", (x(first), x(life.end)), top, high, name)
    ends = {life.number: life.end for life in timeline.lives}
    for row, query in enumerate(timeline.queries):
        y = top + row * (_LANE + 6)
        drawn.label(query, _LEFT - 10, y + _LANE / 2 + 4, "end")
        for each in timeline.tries:
            if each.query == query:
                stop = ends[each.life] if each.done is None else each.done
                drawn.bar(_kind(each), (x(each.begin), x(stop)), y + 4, _LANE - 8, _tell(each, stop))
    bottom = top + 2 * (_LANE + 6) + 8
    _visible(drawn, timeline, x, bottom)
    base = bottom + _VISIBLE
    step = next(step for step in _STEPS_S if end / step <= _TICKS_MAX)
    drawn.parts.append(shapes.line(_LEFT, base, _WIDTH - _RIGHT, base))
    for t in range(0, int(end) + 1, step):
        drawn.label(f"{t} s", x(t), base + 18, "mid dim")
    for number, life in enumerate(timeline.kills, 1):
        drawn.kill(number, x(life.end), base, f"kill {number} at {life.step}, {life.end:.1f} s")
    drawn.height = base + 26
    return drawn


def _visible(drawn: _Drawing, timeline: Timeline, x: Axis, top: float) -> None:
    """Draw one curve a topic, on a scale of its own: what matters is when it stands still and that it ends full."""
    for place, name in enumerate(("visible", "records")):
        drawn.label(name, _LEFT - 10, top + _VISIBLE / 2 - 2 + 14 * place, "end dim" if place else "end")
    for place, (topic, points) in enumerate(timeline.visible.items()):
        most = max(count for _, count in points)
        path = f"M{x(0):.1f} {top + _VISIBLE}" + "".join(
            f"H{x(t):.1f}V{top + _VISIBLE - (_VISIBLE - 6) * count / most:.1f}" for t, count in points
        )
        note = f"records of {topic} that a read_committed consumer had seen; {most:,} in the end"
        curve = tag(
            "path", tag("title", note), class_=f"demo-visible {topic}", d=f"{path}H{x(timeline.end):.1f}"
        )
        drawn.parts.append(curve)
        drawn.label(f"{topic} {most:,}", _LEFT + 8, top + 14 + 14 * place, "strong")


# --- one kill ---------------------------------------------------------------------------------------------


def _card(timeline: Timeline, number: int, life: Life) -> Markup:
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
    left = Axis([_panel_before(before, life)], _LEFT, middle)
    right = Axis([_panel_after(after, following)], middle + _GAP, _WIDTH - _RIGHT)
    drawn, y = _Drawing(), 22.0
    for query in timeline.queries:
        own = [(each, left) for each in before if each.query == query]
        own += [(each, right) for each in after if each.query == query]
        slots = sorted({slot for each, _ in own for slot in each.slots})
        drawn.label(query, 0, y + 10, "strong")
        for row in ("epoch", *(f"slot {slot}" for slot in slots), "decision", "commits", "receipt"):
            drawn.label(row, _LEFT - 10, y + 11, "end dim small")
            y += _ROW
            drawn.parts += [
                shapes.line(left_x, y, right_x, y)
                for left_x, right_x in ((_LEFT, middle), (middle + _GAP, _WIDTH - _RIGHT))
            ]
        for each, scale in own:
            _try(drawn, each, scale, y - (len(slots) + 4) * _ROW, slots)
        y += 12
    drawn.kill(number, left(life.end), y - 8, f"SIGKILL at {life.step}")
    down = f"{right.begin - life.end:.1f} s" if following is not None else ""
    drawn.label(down, middle + _GAP / 2, 12, "mid dim small")
    for scale in (left, right) if after else (left,):
        begin = f"{max(scale.begin, 0):.2f} s"
        drawn.label(begin, scale(scale.begin), y + 6)
        drawn.label(f"{scale.end:.2f} s", scale(scale.end), y + 6, "end dim small")
    drawn.height = y + 16
    where = ", ".join(f"{each.query} chk-{each.epoch}" for each in before if each.done is None)
    seen = " · ".join(f"{timeline.visible_at(topic, life.end):,} in {topic}" for topic in timeline.visible)
    hint = f"{life.end:.1f} s · cut off: {where or 'between epochs'} · visible: {seen}"
    told = f"Kill {number} at {life.step}"
    return tag(
        "article",
        tag("h3", f"{number}. {life.step}"),
        tag("p", hint, class_="oo-note"),
        drawn.picture(told),
        id_=f"kill-{number}",
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


def _try(drawn: _Drawing, each: Try, x: Axis, y: float, slots: list[int]) -> None:
    """Draw one try in the rows of its query."""
    end = each.done if each.done is not None else x.end
    drawn.bar(_kind(each), (x(each.begin), x(end)), y + 2, _ROW - 4, _tell(each, end))
    if x(end) - x(each.begin) > _NAME_MIN:
        drawn.label(f"chk-{each.epoch} {each.mode}", x(each.begin) + 4, y + 11, "small demo-name")
    for number, slot in each.slots.items():
        row = y + (1 + slots.index(number)) * _ROW
        until = slot.prepared if slot.prepared is not None else end
        note = f"slot {number}: {'prepared' if slot.prepared is not None else 'not prepared'}"
        # A drain votes without having begun anything.
        if slot.begun <= x.end and (slot.prepared is not None or slot.voted is None):
            drawn.bar("slot", (x(slot.begun), x(until)), row + 4, _ROW - 8, note)
        if slot.voted is not None and slot.voted <= x.end:
            note = f"slot {number}: VOTE_COMMIT, {slot.rows} rows"
            drawn.parts.append(shapes.mark(What.VOTE, x(slot.voted), row + _ROW / 2, note))
    for place, what, moment in _marked(each):
        if moment.t <= x.end:
            note = f"{moment.kind} {moment.note} at {moment.t:.3f} s"
            note = f"slot {moment.slot}: {note}" if moment.slot >= 0 else note
            row = y + (1 + len(slots) + place) * _ROW
            drawn.parts.append(shapes.mark(what, x(moment.t), row + _ROW / 2, note))


def _marked(each: Try) -> Iterator[tuple[int, What, Moment]]:
    """Yield the moments that have a mark, each with its row below the slots and its kind."""
    for moment in each.moments:
        if moment.kind == "link.persisted":
            yield 0, What.DECISION if "COMMIT" in moment.note else What.ABORT, moment
        elif moment.kind in _MARKS:
            yield *_MARKS[moment.kind], moment


def _kind(each: Try) -> str:
    return (each.mode or "run") if each.done is not None else "cut"


def _tell(each: Try, stop: float) -> str:
    rows = sum(int(slot.rows or 0) for slot in each.slots.values())
    end = f"done in {stop - each.begin:.3f} s" if each.done is not None else "cut off"
    mode = each.mode or "not planned yet"
    return f"{each.query} chk-{each.epoch}, {mode}: {n(len(each.slots), 'slot')}, {n(rows, 'row')}, {end}"
