"""Small multiples over the epochs: rows, and the seconds of each phase, as SVG. Pure.

However many epochs there are, a picture has at most so many columns: of the epochs in one, the least, the median and
the most are drawn. What is not known leaves a gap.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from onceonly.view import shapes
from onceonly.view.values import COMMIT, What
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onceonly.view.markup import Child, Markup
    from onceonly.view.values import Epoch, View

_WIDTH: Final = 590.0
_HEIGHT: Final = 120.0
_LEFT: Final = 14.0
_RIGHT: Final = 14.0
_TOP: Final = 30.0
_COLUMNS_MAX: Final = 180
BEHIND: Final = "behind the sources' end as each epoch ended, in offsets"
BEHIND_S: Final = "age of the oldest place in a source at which each epoch began"


class _Column(NamedTuple):
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
    return [
        _figure(title, unit, columns, alone=alone)
        for title, unit, value in figures
        # That nothing is left to be read is told; that there were no aborts, nobody asks.
        if (columns := _columns(view.epochs, value))
        and any(column.values if title in {BEHIND, BEHIND_S} else any(column.values) for column in columns)
    ]


def _late_s(epoch: Epoch) -> float | None:
    at = {mark.what: mark.at for mark in epoch.marks if mark.what in {What.BARRIER, What.RECEIPT}}
    begin, end = at.get(What.BARRIER), at.get(What.RECEIPT)
    return None if begin is None or end is None or end < begin else end - begin


def _columns(epochs: Sequence[Epoch], value: Callable[[Epoch], float | None]) -> list[_Column]:
    size = -(-len(epochs) // _COLUMNS_MAX) or 1
    found: list[_Column] = []
    for begin in range(0, len(epochs), size):
        part = epochs[begin : begin + size]
        values = tuple(each for each in map(value, part) if each is not None)
        found.append(_Column(part[0].number, part[-1].number, values))
    return found


def _figure(title: str, unit: str, columns: Sequence[_Column], *, alone: bool) -> Markup:
    every = [each for column in columns for each in column.values]
    most = max(every) or 1.0
    first, last = columns[0].first, columns[-1].last
    told = (
        f"{title}, chk-{first} to chk-{last}: at least {_short(min(every))}{unit}, median "
        f"{_short(median(every))}{unit}, at most {_short(max(every))}{unit}, known of {n(len(every), 'epoch')}"
    )
    parts: list[Child] = [
        shapes.label(title, _LEFT, 16, "strong"),
        shapes.label(f"{_short(most)}{unit}", _WIDTH - _RIGHT, 16, "end dim small"),
        shapes.line(_LEFT, _HEIGHT - 20, _WIDTH - _RIGHT, _HEIGHT - 20),
        shapes.line(_LEFT, _TOP, _WIDTH - _RIGHT, _TOP),
        shapes.label(f"chk-{first}", _LEFT, _HEIGHT - 6, "dim small"),
        shapes.label(f"chk-{last}", _WIDTH - _RIGHT, _HEIGHT - 6, "end dim small"),
        *_bars(columns, most, unit),
    ]
    return shapes.picture(told, _WIDTH, _HEIGHT, parts, alone=alone)


def _bars(columns: Sequence[_Column], most: float, unit: str) -> Iterator[Child]:
    width = (_WIDTH - _LEFT - _RIGHT) / max(len(columns), 12)
    unit_y = (_HEIGHT - 20 - _TOP) / most
    for number, column in enumerate(columns):
        if not column.values:
            continue
        x = _LEFT + number * width
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
