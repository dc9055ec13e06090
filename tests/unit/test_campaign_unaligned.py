"""The picture of alignment shows what was measured, window by window, and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from matplotlib.container import BarContainer
from matplotlib.patches import Rectangle

from onceonly_proof import charts
from onceonly_proof.campaign.unaligned import Series, Window, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def series(name: str, *counted: int, expected: int = 100, killed: int = 1) -> Series:
    return Series(
        name=name,
        windows=tuple(
            Window(name=f"<{place}>", expected=expected, counted=count, killed=place < killed)
            for place, count in enumerate(counted)
        ),
    )


def shapes(figure: Figure, kind: str) -> list[tuple[float, float]]:
    """Return bottom and height of each bar of a kind, in both panels."""
    return [
        (bar.get_y(), bar.get_height())
        for axes in figure.axes
        for each in axes.containers
        if isinstance(each, BarContainer) and each.get_label() == kind
        for bar in each
    ]


def test_what_is_counted_twice_stands_on_top() -> None:
    figure = draw(series("aligned", 100, 100), series("unaligned", 100, 150))
    assert [height for _, height in shapes(figure, "right")] == [100] * 4
    assert shapes(figure, "over") == [(100, 50)]
    picture = charts.svg(figure)
    assert ">+50</text>" in picture
    assert "200 rows, killed in 1 window: 50 counted twice" in picture
    assert "200 rows, killed in 1 window: each row counted once" in picture


def test_what_is_missing_is_hollow() -> None:
    figure = draw(series("aligned", 100), series("unaligned", 70))
    assert shapes(figure, "missing") == [(70, 30)]
    assert not figure.axes[1].patches[-1].get_fill()
    assert not shapes(figure, "over")
    picture = charts.svg(figure)
    assert ">-30</text>" in picture
    assert "30 missing" in picture


def test_too_many_in_one_window_do_not_make_good_what_is_missing_in_another() -> None:
    picture = charts.svg(draw(series("aligned", 90, 110), series("unaligned", 100, 100)))
    assert "10 counted twice, 10 missing" in picture


def test_one_row_of_a_million_is_seen() -> None:
    figure = draw(series("aligned", 10**6, expected=10**6), series("unaligned", 10**6 + 1, expected=10**6))
    ((_, height),) = shapes(figure, "over")
    axes = figure.axes[1]
    assert height / axes.get_ylim()[1] * axes.get_window_extent().height == pytest.approx(3)


def test_a_window_in_which_the_job_was_killed_is_marked() -> None:
    figure = draw(series("aligned", 1, 1, 1, killed=2), series("unaligned", 1, killed=0))
    kills = [[each for each in axes.collections if each.get_label() == "kill"] for axes in figure.axes]
    assert [len(each) for each in kills] == [2, 0]
    assert ">&lt;1&gt;</text>" in charts.svg(figure)


@pytest.mark.parametrize("windows", [1, 7, 20, 21, 500])
@pytest.mark.parametrize("expected", [0, 1, 3, 999, 10**7])
def test_any_run_is_drawn_inside_its_panel(windows: int, expected: int) -> None:
    figure = draw(
        series("aligned", *[expected] * windows, expected=expected),
        series("unaligned", *range(expected, expected + windows), expected=expected),
    )
    for axes in figure.axes:
        bars = [each for each in axes.patches if isinstance(each, Rectangle)]
        assert len(bars) >= windows
        assert axes.get_xlim()[0] <= min(each.get_x() for each in bars)
        assert max(each.get_x() + each.get_width() for each in bars) <= axes.get_xlim()[1]
        assert max(each.get_y() + each.get_height() for each in bars) <= axes.get_ylim()[1]
    assert charts.svg(figure).count("&lt;0&gt;</text>") == 2


def test_it_loads_nothing() -> None:
    picture = charts.svg(draw(series("aligned", 1), series("unaligned", 1)))
    assert set(re.findall(r"http[^\"]*", picture)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert not re.search(r"url\((?!#)|[^:]href|href=\"[^#]|@import|<script", picture)


def test_the_same_run_gives_the_same_bytes_whenever_it_is_drawn() -> None:
    runs = series("aligned", 1), series("unaligned", 1)
    assert charts.svg(draw(*runs)) == charts.svg(draw(*runs))


def test_a_run_without_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="without a window"):
        draw(series("aligned"), series("unaligned", 1))
