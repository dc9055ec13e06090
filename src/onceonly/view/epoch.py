"""One epoch as SVG, from plan to receipt: a row for the driver and for each slot of each sink. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceonly.view import shapes
from onceonly.view.axis import Axis
from onceonly.view.telling import few, moment, took
from onceonly.view.timeline import said
from onceonly.view.values import DRIVER, Epoch, Mark, What, Work
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.view.markup import Child, Markup

_WIDTH: Final = 1200.0
_RIGHT: Final = 40.0
_ROW: Final = 26.0
_TOP: Final = 34.0
_SLOTS_MAX: Final = 64
_MARKS_MAX: Final = 100
"""So many of a kind at most: a query that was started again and again has an ABORT for each start."""
_ORDER: Final = (What.DOUBT, What.LOST, What.TRIED)
"""Slots that are drawn first where there are too many."""


def epoch(found: Epoch, *, alone: bool = False) -> Markup:
    """Return the picture of one epoch."""
    return _Picture(found).picture(alone=alone)


class _Picture:
    def __init__(self, found: Epoch) -> None:
        self._found = found
        slots = dict.fromkeys((mark.sink, mark.slot) for mark in found.marks if mark.slot is not None)
        bad = {(mark.sink, mark.slot) for mark in found.marks if mark.what in _ORDER}
        ordered = sorted(slots, key=lambda slot: slot not in bad)[:_SLOTS_MAX]
        self._left_out = len(slots) - len(ordered)
        self._rows: dict[tuple[str, int | None], float] = {
            key: _TOP + _ROW * number
            for number, key in enumerate(
                [("", None), *sorted(ordered, key=lambda slot: (slot[0], slot[1] or 0))]
            )
        }
        names = [f"{sink} slot {slot}" for sink, slot in self._rows]
        left = 24 + shapes.CHARACTER * max(map(len, names))
        places = [
            mark.place for mark in found.marks if mark.place is not None and mark.what is not What.NOTED
        ]
        busy = [(min(places), max(places))] if places else []
        self._axis = Axis(busy, left, _WIDTH - _RIGHT)

    def picture(self, *, alone: bool) -> Markup:
        found = self._found
        bottom = _TOP + _ROW * len(self._rows)
        told = f"{found.name}, {found.words}: its steps, from plan to receipt"
        parts: list[Child] = [*self._lanes(bottom), *self._bars(), *self._marks()]
        if self._left_out:
            parts.append(
                shapes.label(f"{n(self._left_out, 'more slot is')} not drawn", 8, bottom + 34, "dim")
            )
        return shapes.picture(told, _WIDTH, bottom + (44 if self._left_out else 26), parts, alone=alone)

    def _lanes(self, bottom: float) -> Iterator[Child]:
        axis = self._axis
        for number, ((sink, slot), y) in enumerate(self._rows.items()):
            name = DRIVER if slot is None else f"{sink} slot {slot}"
            if number % 2 == 0:
                yield shapes.bar("stripe", 0, y, _WIDTH, _ROW, name)
            yield shapes.label(name, axis.left - 12, y + _ROW / 2 + 4, "end")
        for t in axis.ticks(110) if axis.begin else ():
            yield shapes.line(axis(t), _TOP, axis(t), bottom)
            yield shapes.label(f"+{took(t - axis.begin)}", axis(t), bottom + 16, "mid dim small")
        if axis.begin:
            yield shapes.label(f"from {moment(axis.begin)}", axis.left, 14, "dim small")

    def _bars(self) -> Iterator[Child]:
        # The event log tells of each transaction when it was committed; the log of all of them together.
        ends = {
            (mark.sink, mark.slot): mark.place
            for mark in self._found.marks
            if mark.what is What.COMMITTED and mark.at is not None
        }
        for bar in self._found.bars:
            # A sink's commits are of all its slots that are drawn.
            own = [key for key in self._rows if key[0] == bar.sink and bar.slot in {None, key[1]}]
            for key in own:
                left = self._axis(bar.begin)
                end = (ends.get(key) if bar.work is Work.COMMITTING else None) or bar.end
                right = self._axis.right + 8 if end is None else self._axis(end)
                y = self._rows[key] + 8
                yield shapes.bar(bar.work.name.lower(), left, y, right - left, _ROW - 16, bar.told)

    def _marks(self) -> Iterator[Child]:
        x, free = self._axis.left, 0.0
        drawn = [mark for mark in self._found.marks if (mark.sink, mark.slot) in self._rows]
        for mark in few(drawn, _MARKS_MAX):
            key = (mark.sink, mark.slot)
            x = self._place(mark, x)
            yield shapes.mark(
                mark.what,
                x,
                self._rows[key] + _ROW / 2,
                said(mark),
                known=mark.at is not None,
                skewed=mark.skewed,
            )
            if mark.slot is None and mark.what is not What.NOTED:
                name = f"{mark.what} {mark.record.rpartition(' ')[2]}".strip()
                if x >= free:
                    yield shapes.label(name, x, _TOP - 6, "mid small")
                    free = x + shapes.CHARACTER * (len(name) + 1)

    def _place(self, mark: Mark, before: float) -> float:
        if mark.place is not None:
            return self._axis(mark.place) + (14 if mark.what is What.NOTED else 0)
        return self._axis.right + 8 if mark.what is What.DOUBT else before
