"""The demo's picture in a real browser: both themes, no connection, valid HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

import html_checker
import pytest
import ui_browser
from tests.unit.test_demo_picture import NAMES, result, run

from onceonly_proof.demo import picture

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser
    from ui_browser import Scheme

browser = ui_browser.shared  # a fixture
pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.mark.parametrize("scheme", ui_browser.SCHEMES)
def test_the_demos_picture_is_for_everybody_and_asks_no_network(
    browser: Browser, tmp_path: Path, scheme: Scheme
) -> None:
    file = tmp_path / "picture.html"
    picture.write(file, run(), names=NAMES, result=result())
    with ui_browser.tab(browser, "about:blank", scheme=scheme) as (page, wrong):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        assert ui_browser.findings(page) == []
        page.get_by_role("link", name="kill 1").first.focus()
        page.keyboard.press("Enter")
        assert page.url == f"{file.as_uri()}#kill-1"
        assert asked == [file.as_uri()]
        assert wrong == []
        assert page.evaluate("document.documentElement.scrollWidth") <= ui_browser.SIZE[0]


def test_html_and_styles_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "picture.html"
    picture.write(file, run(), names=NAMES, result=result())
    assert html_checker.complaints({"picture.html": file.read_text(encoding="utf-8")}, tmp_path) == []
