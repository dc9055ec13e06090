"""The event log, ordered for drawing: lives of the job, tries at epochs, what became visible. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onceonly_proof.demo.follow import Event

# Kinds that stand for one moment of a try; slots and the try's own begin and end are kept apart.
_MOMENTS = {
    "link.persisted",
    "handle.committed",
    "handle.resolved",
    "receipt.persisted",
    "swept",
}


@dataclass(slots=True)
class Slot:
    """One attempt at one slot; times in seconds since the picture's beginning."""

    begun: float
    prepared: float | None = None
    voted: float | None = None
    rows: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of the protocol in a try."""

    kind: str
    t: float
    note: str
    slot: int = -1


@dataclass(slots=True)
class Try:
    """One try at an epoch, from its resolution to ``epoch.done``, or to the end of the job's life."""

    query: str
    epoch: int
    life: int
    begin: float
    planned: float | None = None
    mode: str = ""
    done: float | None = None
    slots: dict[int, Slot] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)


@dataclass(slots=True)
class Life:
    """One life of the job's process."""

    number: int
    begin: float
    end: float = 0.0
    step: str = ""
    """Where it was killed; empty if it ended by itself."""


@dataclass(slots=True)
class Timeline:
    """All of it. ``queries`` in the order of drawing."""

    queries: list[str]
    end: float = 0.0
    lives: list[Life] = field(default_factory=list)
    tries: list[Try] = field(default_factory=list)
    visible: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    @property
    def kills(self) -> list[Life]:
        """The lives that were ended by a kill."""
        return [life for life in self.lives if life.step]

    def tries_in(self, life: int, query: str) -> list[Try]:
        """Return a query's tries in one life, in their order."""
        return [each for each in self.tries if each.life == life and each.query == query]

    def visible_at(self, topic: str, t: float) -> int:
        """Say how many records of a topic had been seen at a moment."""
        points = self.visible.get(topic, [])
        place = bisect_right([at for at, _ in points], t)
        return points[place - 1][1] if place else 0


def build(lines: Iterable[Event], names: Mapping[str, str]) -> Timeline:
    """Put the event log in order. ``names`` gives a query's name by its id."""
    ordered = sorted(lines, key=lambda line: (float(line["t"]), int(line["seq"])))
    timeline = Timeline(queries=list(names.values()))
    zero = float(ordered[0]["t"]) if ordered else 0.0
    life = _LifeBuilder(timeline)
    for line in ordered:
        t = float(line["t"]) - zero
        timeline.end = t
        kind = str(line["kind"])
        if kind == "job.started":
            life.begin(t)
        elif kind in {"job.killed", "job.exited"}:
            life.end(t, str(line["step"]) if kind == "job.killed" else "")
        elif kind == "visible":
            timeline.visible.setdefault(str(line["sink"]), []).append((t, int(line["count"])))
        elif line["query"] in names and timeline.lives:
            life.add(names[line["query"]], kind, t, line)
    if timeline.lives and not timeline.lives[-1].end:
        life.end(timeline.end, "")
    return timeline


class _LifeBuilder:
    """Puts the events of one life of the job after another where they belong."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._tries: dict[str, Try] = {}
        # What is resolved, claimed and swept before an epoch is planned belongs to the try that follows,
        # though it may speak of the epoch before or after it.
        self._before: dict[str, list[tuple[int, Moment]]] = {}

    def begin(self, t: float) -> None:
        self._timeline.lives.append(Life(len(self._timeline.lives) + 1, t))
        self._tries.clear()
        self._before.clear()

    def end(self, t: float, step: str) -> None:
        for query, waiting in self._before.items():
            if waiting:
                epoch, first = waiting[0]
                moments = [moment for _, moment in waiting]
                self._append(Try(query, epoch, self._timeline.lives[-1].number, first.t, moments=moments))
        self._before.clear()
        if self._timeline.lives:
            self._timeline.lives[-1].end, self._timeline.lives[-1].step = t, step

    def add(self, query: str, kind: str, t: float, line: Event) -> None:
        now, epoch = self._tries.get(query), int(line["epoch"])
        if kind == "epoch.planned":
            moments = [moment for _, moment in self._before.pop(query, [])]
            begin = moments[0].t if moments else t
            number = self._timeline.lives[-1].number
            mode = str(line["mode"])
            self._append(Try(query, epoch, number, begin, planned=t, mode=mode, moments=moments))
        elif kind in _MOMENTS:
            note = str(line.get("link") or line.get("outcome") or line.get("transaction") or "")
            moment = Moment(kind, t, note, int(line["slot"]))
            if now is None or now.done is not None:
                self._before.setdefault(query, []).append((epoch, moment))
            else:
                now.moments.append(moment)
        elif now is not None and now.epoch == epoch:
            _step(now, kind, t, line)

    def _append(self, new: Try) -> None:
        self._tries[new.query] = new
        self._timeline.tries.append(new)


def _step(now: Try, kind: str, t: float, line: Event) -> None:
    if kind == "epoch.done":
        now.done = t
    elif kind == "slot.begun":
        now.slots[int(line["slot"])] = Slot(t)
    elif kind in {"slot.prepared", "slot.voted"}:
        slot = now.slots.setdefault(int(line["slot"]), Slot(t))
        if kind == "slot.prepared":
            slot.prepared = t
        else:
            slot.voted, slot.rows = t, str(line.get("rows", ""))
