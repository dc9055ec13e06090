"""The picture of alignment shows what was measured, window by window, and nothing else."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from onceonly_proof.campaign.unaligned import Series, Window, draw

SVG = "{http://www.w3.org/2000/svg}"


def series(name: str, *counted: int, expected: int = 100, killed: int = 1) -> Series:
    return Series(
        name=name,
        windows=tuple(
            Window(name=f"<{place}>", expected=expected, counted=count, killed=place < killed)
            for place, count in enumerate(counted)
        ),
    )


def shapes(picture: str, kind: str) -> list[tuple[float, float]]:
    """Return top and height of each rectangle of a kind."""
    root = ET.fromstring(picture)  # noqa: S314  we have drawn it ourselves
    found = [each for each in root.iter(f"{SVG}rect") if each.get("class") == kind]
    return [(float(each.get("y", "")), float(each.get("height", ""))) for each in found]


def test_what_is_counted_twice_stands_on_top() -> None:
    picture = draw(series("aligned", 100, 100), series("unaligned", 100, 150))
    heights = [height for _, height in shapes(picture, "right")]
    assert len(set(heights)) == 1
    ((top, height),) = shapes(picture, "over")
    assert height == pytest.approx(heights[0] / 2, abs=0.1)
    assert top + height == pytest.approx(shapes(picture, "right")[-1][0], abs=0.1)
    assert ">+50</text>" in picture
    assert "200 rows, killed in 1 window: 50 counted twice" in picture
    assert "200 rows, killed in 1 window: each row counted once" in picture


def test_what_is_missing_is_hollow() -> None:
    picture = draw(series("aligned", 100), series("unaligned", 70))
    assert len(shapes(picture, "missing")) == 1
    assert not shapes(picture, "over")
    assert ">-30</text>" in picture
    assert "30 missing" in picture


def test_too_many_in_one_window_do_not_make_good_what_is_missing_in_another() -> None:
    picture = draw(series("aligned", 90, 110), series("unaligned", 100, 100))
    assert "10 counted twice, 10 missing" in picture


def test_one_row_of_a_million_is_seen() -> None:
    picture = draw(series("aligned", 10**6, expected=10**6), series("unaligned", 10**6 + 1, expected=10**6))
    ((_, height),) = shapes(picture, "over")
    assert height == 3


def test_a_window_in_which_the_job_was_killed_is_marked() -> None:
    picture = draw(series("aligned", 1, 1, 1, killed=2), series("unaligned", 1, killed=0))
    assert picture.count('class="kill"') == 2
    assert "&lt;1&gt;: 100 went in, 1 counted, the job was killed meanwhile" in picture


@pytest.mark.parametrize("windows", [1, 7, 20, 21, 500])
@pytest.mark.parametrize("expected", [0, 1, 3, 999, 10**7])
def test_any_run_is_drawn_inside_its_panel(windows: int, expected: int) -> None:
    picture = draw(
        series("aligned", *[expected] * windows, expected=expected),
        series("unaligned", *range(expected, expected + windows), expected=expected),
    )
    places = [
        (float(x), float(width))
        for x, width in re.findall(r' x="([\d.]+)" y="[\d.-]+" width="([\d.]+)"', picture)
    ]
    assert len(places) >= 2 * windows
    assert all(x >= 64 and x + width <= 1000 - 16 + 0.1 for x, width in places)
    bottoms = [top + height for kind in ("right", "over") for top, height in shapes(picture, kind)]
    assert max(bottoms) <= 518.1
    assert min(top for kind in ("right", "over") for top, _ in shapes(picture, kind)) >= 52
    names = picture.count("&lt;0&gt;</text>")
    assert names == 2


def test_it_loads_nothing() -> None:
    picture = draw(series("aligned", 1), series("unaligned", 1))
    assert picture.count("http") == 1  # its own namespace
    assert not re.search(r"url\(|href|@import|<script", picture)


def test_a_run_without_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="without a window"):
        draw(series("aligned"), series("unaligned", 1))
