"""A view as files for other people's viewers: Perfetto's time line, and ShiViz's who-knew-what. Pure.

Both are projections of the same steps: of the log, and of the event log where it is given (``ONCEONLY_EVENTS``).
"""

from __future__ import annotations

import enum
import json
import math
from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from onceonly.options import without_secrets
from onceonly.view.causes import of_events, of_view
from onceonly.view.telling import moment
from onceonly.view.values import EXECUTORS, Bar, Mark, Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onceonly.view.values import View

_QUERY, _EVENTS = 1, 2
"""The processes of a trace: what the log tells, and what the event log does."""
_SHIVIZ: Final = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"


class Export(enum.StrEnum):
    """Whose file."""

    PERFETTO = "perfetto"
    SHIVIZ = "shiviz"


def export(to: Export, view: View, events: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the file. ``events`` are the lines of the event log that are of the view's query."""
    return perfetto(view, events) if to is Export.PERFETTO else shiviz(view, events)


def perfetto(view: View, events: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a trace in Chrome's JSON, which ui.perfetto.dev opens: a track for each lane, one for each slot.

    What would overlap in a track has one of the same name beside it.
    """
    tracks = _Tracks(_QUERY, f"query {view.query}")
    bars = (*view.bars, *(bar for each in view.epochs for bar in each.bars))
    found = list(_slices(bars, tracks))
    for name, mark in _marks(view):
        if mark.place is not None:
            told = {"told": mark.told, "at": moment(mark.at), "by": mark.by}
            told |= {"file": mark.file, "checksum": mark.checksum}
            found.append(_instant(name, tracks.of(_track(mark)), mark.place, told))
    happened = _Tracks(_EVENTS, "event log")
    for line in events:
        track = happened.of(f"{line['actor']} {line['incarnation']}")
        name = f"{line['kind']} chk-{line['epoch']}" if int(line["epoch"]) >= 0 else str(line["kind"])
        found.append(_instant(name, track, float(line["t"]), dict(line)))
    return json.dumps({"traceEvents": [*tracks.named, *(happened.named if events else ()), *found]})


def shiviz(view: View, events: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a log with vector clocks: its first line is ShiViz's regular expression, its second an empty delimiter."""
    steps = of_events(events) if events else of_view(view)
    lines = [f"{step.told}\n{step.process} {json.dumps(step.clock)}" for step in steps]
    return "\n".join([_SHIVIZ, "", *lines, ""])


class _Tracks:
    """The numbers of a process's tracks, by their names."""

    def __init__(self, process: int, name: str) -> None:
        self._process = process
        self._numbers: dict[str, int] = {}
        self._ends: defaultdict[str, list[float]] = defaultdict(list)
        self.named = [_named("process_name", process, 0, name)]

    def of(self, track: str) -> tuple[int, int]:
        """Return process and track."""
        if track not in self._numbers:
            self._numbers[track] = len(self._numbers) + 1
            self.named.append(_named("thread_name", self._process, self._numbers[track], track))
        return self._process, self._numbers[track]

    def beside(self, track: str, begin: int, end: float) -> tuple[int, int]:
        """Return process and track of a slice, which none before it began after: one in which it overlaps no other."""
        for number in count(1):
            name = track if number == 1 else f"{track} ({number})"
            around = self._ends[name]
            while around and around[-1] <= begin:
                around.pop()
            if not around or end <= around[-1]:
                around.append(end)
                break
        return self.of(name)


def _marks(view: View) -> Iterator[tuple[str, Mark]]:
    for mark in view.marks:
        yield mark.what.value, mark
    for epoch in view.epochs:
        for mark in epoch.marks:
            yield f"{mark.what} {epoch.name}", mark


def _track(of: Mark | Bar) -> str:
    if isinstance(of, Bar) and of.work is Work.RUN:
        return "runs"
    return f"{of.lane}, slot {of.slot}" if of.lane == EXECUTORS and of.slot is not None else of.lane


def _slices(bars: Sequence[Bar], tracks: _Tracks) -> Iterator[dict[str, Any]]:
    """Yield a slice for each bar; one that nobody has seen end is begun, and never ended.

    In a track, one may be within another, but must not overlap it: a viewer would drop it.
    """
    timed = [
        (round(bar.begin * 1e6), math.inf if bar.end is None else round(bar.end * 1e6), bar) for bar in bars
    ]
    for begin, end, bar in sorted(timed, key=lambda each: (each[0], -each[1])):
        process, track = tracks.beside(_track(bar), begin, end)
        lasts = {"ph": "B"} if bar.end is None else {"ph": "X", "dur": end - begin}
        said = {"name": bar.work.value, "ts": begin, "args": {"told": bar.told}}
        yield {**said, **lasts, "pid": process, "tid": track}


def _instant(name: str, track: tuple[int, int], at: float, told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "ph": "i", "s": "t", "ts": round(at * 1e6), "pid": track[0], "tid": track[1],
        "args": {key: _public(value) for key, value in told.items() if value not in {None, ""}},
    }  # fmt: skip


def _public(value: object) -> object:
    """Return a value of the event log, where errors of clients are told as they were."""
    return without_secrets(value) if isinstance(value, str) else value


def _named(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}
