"""The textbook in a real browser: both themes, buttons and arrow keys, no script, no connection, valid HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

import html_checker
import pytest
import ui_browser

from onceonly_proof.textbook import pictures, recordings
from onceonly_proof.textbook.page import page as made

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page
    from ui_browser import Scheme

browser = ui_browser.shared  # a fixture
pytestmark = [pytest.mark.integration, pytest.mark.long]

PICTURES = pictures.draw(recordings.read())
FRAMES = sum(len(picture.frames) for picture in PICTURES)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("book") / "book.html"
    path.write_text(made(PICTURES), encoding="utf-8")
    return path.as_uri()


def shown(page: Page) -> list[str]:
    return [each.get_attribute("id") or "" for each in page.locator("li[data-name]:visible").all()]


@pytest.mark.parametrize("scheme", ui_browser.SCHEMES)
def test_axe_finds_nothing_in_any_step(browser: Browser, book: str, scheme: Scheme) -> None:
    with ui_browser.tab(browser, book, scheme=scheme) as (page, wrong):
        for _ in range(max(len(picture.frames) for picture in PICTURES)):
            assert ui_browser.findings(page) == []
            for button in page.get_by_role("button", name="next").all():
                if button.is_enabled():
                    button.click()
        assert wrong == []
        assert page.evaluate("document.documentElement.scrollWidth") <= ui_browser.SIZE[0]


def test_arrow_keys_and_buttons_go_from_step_to_step_of_one_picture(browser: Browser, book: str) -> None:
    with ui_browser.tab(browser, f"{book}#crash-2") as (page, wrong):
        first = [f"{picture.name}-1" for picture in PICTURES[:-1]]
        assert shown(page) == [*first, "crash-2"]
        page.keyboard.press("ArrowRight")
        assert shown(page) == [*first, "crash-3"]
        assert page.url.endswith("#crash-3")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert shown(page) == [*first, "crash-1"]
        page.get_by_role("button", name="link.after_put", exact=True).press("Enter")
        [picture] = [picture for picture in PICTURES if picture.name == "crash"]
        number = [frame.name for frame in picture.frames].index("link.after_put") + 1
        assert shown(page)[-1] == f"crash-{number}"
        assert page.locator("#crash [aria-pressed=true]").all_text_contents() == ["link.after_put"]
        page.locator("#places button").nth(1).focus()
        page.keyboard.press("ArrowRight")
        assert shown(page)[0] == "places-2"
        assert wrong == []


def test_nothing_moves_by_itself(browser: Browser, book: str) -> None:
    with ui_browser.tab(browser, book) as (page, _):
        before = page.screenshot()
        page.wait_for_timeout(500)
        assert page.screenshot() == before
        assert page.evaluate("document.getAnimations().length") == 0


def test_without_a_script_all_steps_stand_one_below_the_other(browser: Browser, book: str) -> None:
    with ui_browser.tab(browser, book, script=False) as (page, wrong):
        assert len(shown(page)) == FRAMES
        assert page.locator("button").count() == 0
        assert wrong == []


def test_html_and_styles_are_valid(tmp_path: Path) -> None:
    found = html_checker.complaints({"book.html": made(PICTURES)}, tmp_path)
    # The checker looks for a nonce; the browser, which compares the script with its hash, runs it.
    assert [each for each in found if "Inline script violates Content Security Policy" not in each] == []
