"""Who tells colours apart in another way reads pictures all the same: by shapes, and by colours that stay apart."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Final

import pytest

from onceonly.view import shapes, style, tables
from onceonly.view.values import What

APART: Final = 10.0
"""How far colours are apart at least, in CIE's Lab, where 2.3 are just seen."""
TELLING: Final = ("sky", "green", "line", "red", "blue", "orange", "purple")
"""Those that bars and marks are told apart by."""
# Machado, Oliveira and Fernandes, 2009: what who has one kind of cones less sees of linear red, green and blue.
SEEN: Final = {
    "all": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}  # fmt: skip
XYZ: Final = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE: Final = (0.9505, 1.0, 1.089)


def times(matrix: tuple[tuple[float, ...], ...], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def lab(colour: str, seen: str) -> list[float]:
    """Return where a colour is in Lab, as somebody sees it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    found = times(XYZ, [min(max(each, 0.0), 1.0) for each in times(SEEN[seen], linear)])
    x, y, z = (each / white for each, white in zip(found, WHITE, strict=True))
    x, y, z = (each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, y, z))
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_that_tell_something_stay_apart_for_those_who_see_fewer(theme: str, seen: str) -> None:
    told = dict(re.findall(r"--oo-(\w+):(#\w{6})", {"light": style._LIGHT, "dark": style._DARK}[theme]))
    places = {name: lab(told[name], seen) for name in TELLING}
    near = {
        pair: round(
            sum((a - b) ** 2 for a, b in zip(places[pair[0]], places[pair[1]], strict=True)) ** 0.5, 1
        )
        for pair in combinations(TELLING, 2)
    }
    assert [(pair, far) for pair, far in near.items() if far < APART] == []


def test_each_kind_of_mark_has_a_shape_and_a_meaning_of_its_own() -> None:
    assert set(shapes._PATHS) == set(tables._MEANINGS) == set(What)
    assert len(set(shapes._PATHS.values())) == len(set(tables._MEANINGS.values())) == len(What)
