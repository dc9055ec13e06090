"""Small multiples over time: rows, and the seconds of each phase, as SVG. Pure.

Where the log does not tell when each epoch was over, or clocks contradict it, they are over the epochs, and say so.
However many epochs there are, a picture has at most so many columns: of the epochs in one, the least, the median and
the most are drawn. What is not known leaves a gap.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from onceonly.view import shapes
from onceonly.view.axis import Axis
from onceonly.view.telling import moment
from onceonly.view.values import COMMIT, What
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onceonly.view.axis import Fold
    from onceonly.view.markup import Child, Markup
    from onceonly.view.values import Epoch, View

_WIDTH: Final = 590.0
_HEIGHT: Final = 126.0
_LEFT: Final = 14.0
_RIGHT: Final = 14.0
_TOP: Final = 36.0
_COLUMNS_MAX: Final = 180
_PLACES_MIN: Final = 12
_IDLE_MIN_S: Final = 60.0
_IDLE_MEDIANS: Final = 20
_SHARED: Final = "dark: the median, light: the most"
"""What colours say where a column is of several epochs."""
_ENDS: Final = frozenset({What.DECISION, What.ABORT, What.SKIPPED, What.RECEIPT, What.FOLDED})
BEHIND: Final = "behind the sources' end as each epoch ended, in offsets"
BEHIND_S: Final = "age of the oldest place in a source at which each epoch began"


class _Scale(NamedTuple):
    """Where the epochs are: of ``width`` places, one for each of them. ``ends`` name the first and the last place."""

    places: Sequence[int]
    width: int
    ends: tuple[str, str]
    said: str
    folds: Sequence[Fold] = ()


class _Newest(NamedTuple):
    """The newest epoch of which a figure is known."""

    name: str
    value: float


class _Column(NamedTuple):
    place: int
    first: int
    last: int
    values: tuple[float, ...]


def multiples(view: View, *, alone: bool = False) -> list[Markup]:
    """Return a picture for each figure of which anything is known."""
    figures: list[tuple[str, str, Callable[[Epoch], float | None]]] = [
        (BEHIND, "", lambda each: each.behind),
        (BEHIND_S, " s", lambda each: each.behind_s),
        ("rows of each epoch", "", lambda each: each.rows),
        ("seconds from plan to decision", " s", lambda each: each.decided_s),
        ("seconds from decision to receipt", " s", lambda each: each.phase(COMMIT)),
        ("seconds from barrier to receipt: how late its rows are seen", " s", _late_s),
        ("aborts of each epoch", "", lambda each: float(each.aborts)),
    ]
    scale = _scale(view)
    return [
        _figure(title, unit, columns, _newest(view.epochs, value), scale, alone=alone)
        for title, unit, value in figures
        # That nothing is left to be read is told; that there were no aborts, nobody asks.
        if (columns := _columns(view.epochs, scale, value))
        and any(column.values if title in {BEHIND, BEHIND_S} else any(column.values) for column in columns)
    ]


def _scale(view: View) -> _Scale:
    """Return the scale of all figures of a view: of time, or else of epochs, and why."""
    spans = _spans(view.epochs)
    ends = [end for _, end in spans]
    if len(spans) < len(view.epochs):
        return _of_epochs(view.epochs, "over the epochs: when each was over is not known")
    if view.skew or any(after < before for before, after in pairwise(ends)):
        return _of_epochs(view.epochs, "over the epochs: a clock contradicts the log")
    if not spans:
        return _of_epochs(view.epochs, "")
    axis = Axis(_without_short_idle(spans), _LEFT, _WIDTH - _RIGHT)
    count = min(max(len(spans), _PLACES_MIN), _COLUMNS_MAX)
    width = (_WIDTH - _LEFT - _RIGHT) / count
    return _Scale(
        places=[min(int((axis(end) - _LEFT) / width), count - 1) for end in ends],
        width=count,
        ends=(moment(axis.begin), moment(axis.end)),
        said="over time, idle time folded" if axis.folds else "over time",
        folds=axis.folds,
    )


def _without_short_idle(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans that go on where a query waits for its next epoch as always: only when it was down is folded."""
    gaps = [after[1] - before[1] for before, after in pairwise(spans)]
    longest = max(_IDLE_MIN_S, _IDLE_MEDIANS * median(gaps)) if gaps else 0.0
    joined = [
        (before[1] if after[0] - before[1] <= longest else after[0], after[1])
        for before, after in pairwise(spans)
    ]
    return [*spans[:1], *joined]


def _of_epochs(epochs: Sequence[Epoch], said: str) -> _Scale:
    size = -(-len(epochs) // _COLUMNS_MAX) or 1
    places = [number // size for number in range(len(epochs))]
    count = max(len(set(places)), _PLACES_MIN)
    names = (epochs[0].name, epochs[-1].name) if epochs else ("", "")
    return _Scale(places=places, width=count, ends=names, said=said)


def _spans(epochs: Sequence[Epoch]) -> list[tuple[float, float]]:
    """Return when each epoch began and was over, as far as each has a time; the newest may be under way."""
    found: list[tuple[float, float]] = []
    for each in epochs:
        known = [mark.at for mark in each.marks if mark.at is not None]
        last = next((mark for mark in reversed(each.marks) if mark.what in _ENDS), None)
        if last is not None and last.at is not None:
            found.append((min([*known, last.at]), last.at))
        elif last is None and each is epochs[-1] and found:
            end = max([found[-1][1], *known])
            found.append((end, end))
        else:
            break
    return found


def _late_s(epoch: Epoch) -> float | None:
    at = {mark.what: mark.at for mark in epoch.marks if mark.what in {What.BARRIER, What.RECEIPT}}
    begin, end = at.get(What.BARRIER), at.get(What.RECEIPT)
    return None if begin is None or end is None or end < begin else end - begin


def _columns(epochs: Sequence[Epoch], scale: _Scale, value: Callable[[Epoch], float | None]) -> list[_Column]:
    found: list[_Column] = []
    for place, pairs in groupby(zip(scale.places, epochs, strict=True), key=lambda pair: pair[0]):
        part = [each for _, each in pairs]
        values = tuple(each for each in map(value, part) if each is not None)
        found.append(_Column(place, part[0].number, part[-1].number, values))
    return found


def _newest(epochs: Sequence[Epoch], value: Callable[[Epoch], float | None]) -> _Newest:
    known = ((each.name, value(each)) for each in reversed(epochs))
    return next(_Newest(name, each) for name, each in known if each is not None)


def _figure(
    title: str, unit: str, columns: Sequence[_Column], newest: _Newest, scale: _Scale, *, alone: bool
) -> Markup:
    every = [each for column in columns for each in column.values]
    most = max(every) or 1.0
    first, last = columns[0].first, columns[-1].last
    told = (
        f"{title}, chk-{first} to chk-{last}: at least {_short(min(every))}{unit}, median "
        f"{_short(median(every))}{unit}, at most {_short(max(every))}{unit}, newest {_short(newest.value)}{unit} "
        f"({newest.name}), known of {n(len(every), 'epoch')}; {scale.said}"
    )
    shared = any(column.first != column.last for column in columns)
    parts: list[Child] = [
        shapes.label(title, _LEFT, 16, "strong"),
        shapes.label(_SHARED, _LEFT, 29, "dim small") if shared else None,
        shapes.label(f"at most {_short(max(every))}{unit}", _WIDTH - _RIGHT, 16, "end dim small"),
        shapes.label(f"{newest.name}: {_short(newest.value)}{unit}", _WIDTH - _RIGHT, 29, "end dim small"),
        shapes.line(_LEFT, _HEIGHT - 20, _WIDTH - _RIGHT, _HEIGHT - 20),
        shapes.line(_LEFT, _TOP, _WIDTH - _RIGHT, _TOP),
        *(
            shapes.line(x, _TOP, x, _HEIGHT - 20, "idle")
            for fold in scale.folds
            for x in (fold.left, fold.right)
        ),
        shapes.label(scale.ends[0], _LEFT, _HEIGHT - 6, "dim small"),
        shapes.label(scale.said, _WIDTH / 2, _HEIGHT - 6, "mid dim small"),
        shapes.label(scale.ends[1], _WIDTH - _RIGHT, _HEIGHT - 6, "end dim small"),
        *_bars(columns, scale.width, most, unit),
    ]
    return shapes.picture(told, _WIDTH, _HEIGHT, parts, alone=alone)


def _bars(columns: Sequence[_Column], count: int, most: float, unit: str) -> Iterator[Child]:
    width = (_WIDTH - _LEFT - _RIGHT) / count
    unit_y = (_HEIGHT - 20 - _TOP) / most
    for column in columns:
        if not column.values:
            continue
        x = _LEFT + column.place * width
        low, middle, high = min(column.values), median(column.values), max(column.values)
        alone = column.first == column.last
        name = f"chk-{column.first}" if alone else f"chk-{column.first} to chk-{column.last}"
        said = f"{name}: {_short(high)}{unit}"
        if not alone:
            said = f"{name}: {_short(low)} to {_short(high)}{unit}, median {_short(middle)}{unit}"
        for kind, value in (("high", high), ("low", middle)):
            height = value * unit_y
            yield shapes.bar(kind, x, _HEIGHT - 20 - height, max(width - 1, 0.8), height, said)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:.3f}"  # noqa: PLR2004  four digits are enough
