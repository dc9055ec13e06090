"""The time line of a checkpoint as SVG: lanes for the driver, executors and each sink; idle time folded. Pure."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from onceonly.view import shapes
from onceonly.view.axis import Axis
from onceonly.view.telling import few, moment, took
from onceonly.view.values import DRIVER, EXECUTORS, Bar, Epoch, Mark, View, What, Work
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onceonly.view.markup import Child, Markup

_WIDTH: Final = 1200.0
_RIGHT: Final = 26.0
_TOP: Final = 38.0
_SAID: Final = 12.0
"""Where stands what holds for the whole picture, above the lengths of idle times."""
_DRIVER_HEIGHT: Final = 58.0
_LANE_HEIGHT: Final = 34.0
_TICKS_APART: Final = 110.0
_EPOCHS_MAX: Final = 30
"""With more epochs than that, only marks are drawn that say that something was not as always."""
_SLOTS_MAX: Final = 24
"""With more slots than that, an epoch has one bar for all that write, and marks of some of them."""
_NOTABLE: Final = frozenset({
    What.ABORT, What.SKIPPED, What.DOUBT, What.LOST, What.TRIED, What.BEGAN, What.ENDED, What.CUT, What.BY_HAND,
})  # fmt: skip
_BESIDE: Final = frozenset({What.BARRIER, What.NOTED})
"""Times of the file system, which are in the picture of one epoch."""


def timeline(
    view: View, *, href: Callable[[Epoch], str | None] = lambda _: None, alone: bool = False
) -> Markup:
    """Return the time line of a view's epochs. ``href`` gives the address of an epoch's own picture."""
    return _Timeline(view, href).picture(alone=alone)


def kinds(view: View) -> frozenset[What]:
    """Return of which kinds the time line has marks."""
    found = {mark.what for each in view.epochs for mark in _marks_of(each, is_dense=_is_dense(view))}
    return frozenset(found | {mark.what for mark in view.marks})


def told(view: View) -> str:
    """Say in words what the time line shows."""
    if not view.epochs:
        return "Time line: no epoch yet"
    first, last = view.epochs[0], view.epochs[-1]
    doubt = sum(len(each.in_doubt) for each in view.epochs)
    aborts = sum(each.aborts for each in view.epochs)
    return (
        f"Time line of {first.name} to {last.name} of query {view.query}: {n(len(view.epochs), 'epoch')}, "
        f"{n(doubt, 'transaction')} in doubt, {n(aborts, 'abort')}, idle time folded"
    )


class _Timeline:
    def __init__(self, view: View, href: Callable[[Epoch], str | None]) -> None:
        self._view, self._href = view, href
        left = 24.0 + shapes.CHARACTER * max((len(lane) for lane in view.lanes), default=6)
        # What belongs to no epoch does not stretch the picture: runs are seen as far as epochs are.
        self._axis = Axis(_busy(view), left, _WIDTH - _RIGHT)
        self._is_dense = _is_dense(view)
        self._free = left  # from where on a name does not stand in another one
        self._rows: dict[str, float] = {}
        y = _TOP
        for lane in view.lanes:
            self._rows[lane] = y
            y += _DRIVER_HEIGHT if lane == DRIVER else _LANE_HEIGHT
        self._bottom = y

    def picture(self, *, alone: bool) -> Markup:
        linked = any(self._href(epoch) is not None for epoch in self._view.epochs)
        parts: list[Child] = [*self._lanes(), *self._runs()]
        parts += [
            shapes.link(self._href(epoch), *self._epoch(epoch), told=f"{epoch.name}: {epoch.words}")
            for epoch in self._view.epochs
        ]
        parts += self._marks(self._within(), 12)
        return shapes.picture(
            told(self._view), _WIDTH, self._bottom + 24, parts, has_links=linked, alone=alone
        )

    def _lanes(self) -> Iterator[Child]:
        axis = self._axis
        for number, (lane, y) in enumerate(self._rows.items()):
            height = _DRIVER_HEIGHT if lane == DRIVER else _LANE_HEIGHT
            if number % 2 == 0:
                yield shapes.bar("stripe", 0, y, _WIDTH, height, lane)
            yield shapes.label(lane, axis.left - 12, y + height / 2 + 4, "end")
        for t in axis.ticks(_TICKS_APART) if self._view.epochs else ():
            yield shapes.line(axis(t), _TOP, axis(t), self._bottom)
            yield shapes.label(moment(t)[11:23], axis(t), self._bottom + 16, "mid dim small")
        yield from self._folds()
        if self._is_dense:
            said = f"{n(len(self._view.epochs), 'epoch')}: only what was not as always has a mark"
            yield shapes.label(said, _WIDTH - 8, _SAID, "end dim small")
        elif any(len(_drawn(each)) < len(each.marks) for each in self._view.epochs):
            said = f"no epoch has more than {_SLOTS_MAX} marks of a kind in a lane: the others are left out"
            yield shapes.label(said, _WIDTH - 8, _SAID, "end dim small")
        if axis.begin:
            yield shapes.label(f"{moment(axis.begin)[:10]} UTC", 8, _SAID, "dim small")

    def _folds(self) -> Iterator[Child]:
        """Draw where idle time is folded; how long it was, where that does not stand in the one before."""
        free = 0.0
        for fold in self._axis.folds:
            for x in (fold.left, fold.right):
                yield shapes.line(x, _TOP, x, self._bottom, "idle")
            idle, middle = f"idle {took(fold.seconds)}", (fold.left + fold.right) / 2
            half = shapes.CHARACTER * len(idle) / 2
            if fold.right - fold.left > 4 * shapes.CHARACTER and middle - half >= free:
                yield shapes.label(idle, middle, _TOP - 8, "mid dim small")
                free = middle + half

    def _runs(self) -> Iterator[Child]:
        for bar in self._view.bars:
            end = self._axis.end if bar.end is None else bar.end
            if end >= self._axis.begin and bar.begin <= self._axis.end:
                yield self._bar(bar, self._rows[DRIVER] + 4, 16)

    def _epoch(self, epoch: Epoch) -> Iterator[Child]:
        bars = _bars(epoch)
        slots = sorted({(bar.slot, bar.sink) for bar in bars if bar.slot is not None})
        for bar in bars:
            y = self._rows[bar.lane]
            if bar.lane == EXECUTORS:
                high = (_LANE_HEIGHT - 10) / (len(slots) if bar.slot is not None else 1)
                row = slots.index((bar.slot, bar.sink)) if bar.slot is not None else 0
                yield self._bar(bar, y + 5 + row * high, max(high - 1, 1))
            elif bar.lane == DRIVER:
                yield self._bar(bar, y + 30, 14)
            else:
                yield self._bar(bar, y + 9, _LANE_HEIGHT - 18)
        yield from self._marks(_marks_of(epoch, is_dense=self._is_dense), 38)
        begin = _begin(epoch)
        if begin is not None and self._axis(begin) >= self._free:
            yield shapes.label(epoch.name, self._axis(begin) - 4, self._rows[DRIVER] + 56, "small dim")
            self._free = self._axis(begin) + shapes.CHARACTER * (len(epoch.name) + 1)

    def _marks(self, marks: Iterable[Mark], height: float) -> Iterator[Child]:
        """Draw marks; those of the driver at a height of its lane, votes in the row of their slots."""
        x = self._axis.left
        for mark in marks:
            if mark.place is not None:
                x = self._axis(mark.place)
            elif mark.what is What.DOUBT:
                x = self._axis.right + 8
            y = self._rows[mark.lane] + (height if mark.lane == DRIVER else _LANE_HEIGHT / 2)
            yield shapes.mark(mark.what, x, y, said(mark), known=mark.at is not None, skewed=mark.skewed)

    def _within(self) -> list[Mark]:
        """Return the marks of no epoch that were while the epochs were."""
        begin, end = self._axis.begin, self._axis.end
        return [
            mark
            for mark in self._view.marks
            if mark.place is not None and begin - 60 <= mark.place <= end + 60
        ]

    def _bar(self, bar: Bar, y: float, height: float) -> Markup:
        left = self._axis(bar.begin)
        right = self._axis.right + 8 if bar.end is None else self._axis(bar.end)
        return shapes.bar(bar.work.name.lower(), left, y, right - left, height, bar.told)


def said(mark: Mark) -> str:
    """Return all that is known of a mark, in a sentence or a few."""
    parts = [mark.told, f"at {moment(mark.at)}" if mark.at is not None else "when is not known"]
    parts += ["its clock contradicts the order of the log"] if mark.skewed else []
    parts += [mark.by, f"checksum {mark.checksum}" if mark.checksum else "", mark.file]
    return "; ".join(filter(None, parts))


def _is_dense(view: View) -> bool:
    return len(view.epochs) > _EPOCHS_MAX


def _marks_of(epoch: Epoch, *, is_dense: bool) -> list[Mark]:
    return [
        mark for mark in _drawn(epoch) if mark.what not in _BESIDE and (mark.what in _NOTABLE or not is_dense)
    ]


def _drawn(epoch: Epoch) -> list[Mark]:
    return few(epoch.marks, _SLOTS_MAX)


def _bars(epoch: Epoch) -> list[Bar]:
    """Return the bars of an epoch: of very many slots, one that is as long as all of them."""
    writing = [bar for bar in epoch.bars if bar.lane == EXECUTORS]
    if len(writing) <= _SLOTS_MAX:
        return list(epoch.bars)
    unheard = sum(bar.work is Work.UNHEARD for bar in writing)
    done = "written and prepared" + (f", but {unheard}, of which nothing more was heard" if unheard else "")
    whole = Bar(
        work=Work.WRITING,
        lane=EXECUTORS,
        told=f"{n(len(writing), 'transaction')} of {epoch.name} {done}",
        begin=min(bar.begin for bar in writing),
        end=max(bar.end or bar.begin for bar in writing),
    )
    return [whole, *(bar for bar in epoch.bars if bar.lane != EXECUTORS)]


def _begin(epoch: Epoch) -> float | None:
    return min((mark.place for mark in epoch.marks if mark.place is not None), default=None)


def _busy(view: View) -> Iterator[tuple[float, float]]:
    """Yield when something was going on: not between the last step of a run that was cut off and the next run."""
    begins = sorted(bar.begin for bar in view.bars)
    for epoch in view.epochs:
        # What Spark has noted behind it is not drawn; of a copied checkpoint that is as late as the copy.
        places = [m.place for m in epoch.marks if m.place is not None and m.what is not What.NOTED]
        places += [bar.end or bar.begin for bar in epoch.bars]
        places += [bar.begin for bar in epoch.bars]
        places.sort()
        first = 0
        for number, (before, after) in enumerate(pairwise(places), 1):
            if bisect_right(begins, before) != bisect_right(begins, after):
                yield places[first], before
                first = number
        if places:
            yield places[first], places[-1]
