"""Charts and pages are the same whenever they are made, need nothing from outside, and say what they lack."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from jinja2 import UndefinedError

from onceonly_proof import charts
from onceonly_proof.pages import render


@charts.styled
def chart() -> str:
    figure = charts.sheet(300, 200, "5 < 6 $x$")
    axes = charts.panel(figure, 40, 40, 240, 120)
    axes.bar([1, 2], [3, 1_000_000], color=[charts.BLUE, charts.RED])
    charts.levels(axes.yaxis)
    charts.note(axes, "a note", (1, 3), (0, 4))
    return charts.svg(figure)


def test_the_same_chart_gives_the_same_bytes() -> None:
    assert chart() == chart()


def test_a_chart_is_one_element_that_stands_in_a_page_and_loads_nothing() -> None:
    drawn = chart()
    root = ET.fromstring(drawn)  # noqa: S314  drawn a line above
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert {"width", "height"}.isdisjoint(root.keys())
    assert root.get("aria-label") == "5 < 6 $x$"
    assert drawn.startswith("<svg ")
    assert not re.search(r"url\((?!#)|href=\"(?!#)|@import|<script|<image|<metadata", drawn)


def test_text_stays_text_and_numbers_are_written_as_people_read_them() -> None:
    words = {each.text for each in ET.fromstring(chart()).iter("{http://www.w3.org/2000/svg}text")}  # noqa: S314  as above
    assert {"5 < 6 $x$", "a note", "500,000"} <= words


def test_every_colour_has_one_for_dark_readers() -> None:
    body = chart().partition("</style>")[2]
    used = set(re.findall(r"(?:fill|stroke): ?(#[0-9a-f]+)", body))
    assert {charts.BLUE, charts.RED, charts.PAGE, charts.INK, charts.DIM, charts.LINE} <= used
    for colour in used:
        assert f'[style*="fill: {colour}"]' in chart()


def test_what_is_put_into_a_template_is_escaped_and_what_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("benchmarks", "flame.svg.jinja", title="<b>")
    shown = render(
        "benchmarks",
        "flame.svg.jinja",
        title="<b>",
        width=1,
        height=1,
        side=1,
        high=1,
        samples=1_000,
        frames=[],
    )
    assert "&lt;b&gt;" in shown
    assert "1,000 samples" in shown


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_campaign_without_the_extra_says_what_to_install_before_it_begins(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None\n"
    program += "from onceonly import cli; cli.run(['verify', '--round', '1'])"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert f"the campaign needs the package {package}" in done.stderr
    assert "pip install 'onceonly[proof]'" in done.stderr
