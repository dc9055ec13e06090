"""Moments to places: in proportion while something happens, with idle time folded to a narrow gap. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_IDLE_SHARE: Final = 0.04
"""What is longer than this share of all busy time, with nothing in it, is folded."""
_IDLE_MIN_S: Final = 1.0
_FOLD: Final = 30.0
_FOLDS_SHARE: Final = 0.35
"""How much of the width goes to folded gaps at most."""
_STEPS_S: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600,
    10_800, 43_200, 86_400,
)  # fmt: skip


class Fold(NamedTuple):
    """Idle time that is folded: between two places."""

    left: float
    right: float
    seconds: float


class _Piece(NamedTuple):
    begin: float
    end: float
    left: float
    right: float


class Axis:
    """The places of moments between ``left`` and ``right``, given when something was going on."""

    def __init__(self, busy: Iterable[tuple[float, float]], left: float, right: float) -> None:
        spans = _merged(busy)
        total = sum(end - begin for begin, end in spans) or 1.0
        shortest = max(_IDLE_SHARE * total, _IDLE_MIN_S)
        runs: list[list[float]] = []
        for begin, end in spans:
            if runs and begin - runs[-1][1] <= shortest:
                runs[-1][1] = end
            else:
                runs.append([begin, end])
        count = max(len(runs) - 1, 0)
        fold = min(_FOLD, _FOLDS_SHARE * (right - left) / count) if count else 0.0
        length = sum(end - begin for begin, end in runs)
        unit = (right - left - fold * count) / length if length else 0.0
        self._pieces: list[_Piece] = []
        place = left
        for begin, end in runs:
            width = (end - begin) * unit if length else (right - left - fold * count) / len(runs)
            self._pieces.append(_Piece(begin, end, place, place + width))
            place += width + fold
        self._begins = [piece.begin for piece in self._pieces]
        self._unit = unit
        self.left, self.right = left, right

    @property
    def begin(self) -> float:
        """The first moment."""
        return self._pieces[0].begin if self._pieces else 0.0

    @property
    def end(self) -> float:
        """The last moment."""
        return self._pieces[-1].end if self._pieces else 0.0

    def __call__(self, t: float) -> float:
        """Return the place of a moment; those outside are at the edges, those in idle time within their gap."""
        number = bisect_right(self._begins, t) - 1
        if number < 0:
            return self.left
        piece = self._pieces[number]
        if t <= piece.end:
            return piece.left + (t - piece.begin) * self._unit
        if number + 1 == len(self._pieces):
            return piece.right
        following = self._pieces[number + 1]
        share = (t - piece.end) / (following.begin - piece.end)
        return piece.right + share * (following.left - piece.right)

    @property
    def folds(self) -> list[Fold]:
        """The gaps, in order."""
        return [
            Fold(before.right, after.left, after.begin - before.end)
            for before, after in zip(self._pieces, self._pieces[1:], strict=False)
        ]

    def ticks(self, apart: float) -> list[float]:
        """Return moments at round distances from the beginning of each piece, ``apart`` or more."""
        if not self._unit:
            return self._begins[:1]
        step = next((step for step in _STEPS_S if step * self._unit >= apart), _STEPS_S[-1])
        found: list[float] = []
        last = self.left - apart
        for piece in self._pieces:
            t = piece.begin
            while t <= piece.end:
                if self(t) - last >= apart:
                    found.append(t)
                    last = self(t)
                t += step
        return found


def _merged(busy: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(busy):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged
