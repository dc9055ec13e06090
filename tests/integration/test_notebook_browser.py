"""What a notebook shows, in a real browser between JupyterLab's own styles: to be read in each of its themes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import ui_browser
from tests.unit import view_bench as bench

from onceonly.view import page
from onceonly.view.story import view

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser
    from ui_browser import Scheme

browser = ui_browser.shared  # a fixture
pytestmark = [pytest.mark.integration, pytest.mark.long]

THEMES = {
    "true": "--ground:#fff;--row:#f5f5f5;--code:#eee;--ink:rgb(0 0 0 / 87%);--link:#0d47a1",
    "false": "--ground:#111;--row:#212121;--code:#424242;--ink:rgb(255 255 255 / 87%);--link:#64b5f6",
}
"""The colours of JupyterLab's light theme, and of its dark one."""
LAB = """
body,.lab tbody tr:nth-child(odd),.lab.lab pre,.lab.lab pre code{background:var(--ground)}
.lab,.lab table,.lab.lab pre,.lab.lab code{color:var(--ink)}.lab.lab :not(pre)>code{background:var(--code)}
.lab tbody tr:nth-child(even){background:var(--row)}.lab a:link{color:var(--link)}
"""
"""What JupyterLab says of the colours of everything that an output shows."""


@pytest.mark.parametrize("scheme", ui_browser.SCHEMES)
@pytest.mark.parametrize("is_light", THEMES)
def test_a_notebook_is_read_in_each_theme_whatever_the_desktops(
    browser: Browser, tmp_path: Path, is_light: str, scheme: Scheme
) -> None:
    shown = view(bench.model(bench.usual(0, 0), bench.usual(1, 5), bench.in_doubt(2, 9)))
    parts = [page.fragment(each) for each in (page.progress(shown), page.detail(shown.epochs[-1]))]
    file = tmp_path / "notebook.html"
    file.write_text(
        f'<!doctype html><html lang="en"><head><title>Notebook</title><style>:root{{{THEMES[is_light]}}}{LAB}</style>'
        f'</head><body data-jp-theme-light="{is_light}"><main class="lab"><h1>Notebook</h1>{"".join(parts)}</main>',
        encoding="utf-8",
    )
    with ui_browser.tab(browser, file.as_uri(), scheme=scheme) as (opened, wrong):
        assert [each for each in ui_browser.findings(opened) if "contrast" in each] == []
        assert wrong == []
