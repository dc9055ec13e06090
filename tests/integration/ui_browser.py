"""A real browser for the tests of the page: one that the machine has. Playwright drives it, and downloads none."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Dialog, Page

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
INSTALL = (
    "install Chromium (Debian, Ubuntu: apt install chromium-headless-shell), or name one in ONCEONLY_CHROMIUM"
)
SIZE = (1200, 860)
Scheme: TypeAlias = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


def chromium() -> str | None:
    """Return the path of a Chromium; None where there is none."""
    return os.environ.get("ONCEONLY_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start it, until the block ends."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    assert path is not None, f"there is no browser: {INSTALL}"
    with sync_playwright() as playwright:
        # Root may have no sandbox; what it opens are pages of ours.
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Browser]:
    """One for all tests of a file, where it is called ``browser``."""
    with browser() as started:
        yield started


@contextmanager
def tab(
    browser: Browser,
    address: str,
    *,
    scheme: Scheme = "light",
    script: bool = True,
    width: int = 0,
) -> Iterator[tuple[Page, list[str]]]:
    """Open an address in a browser without history; give the tab, and what goes wrong in it."""
    context = browser.new_context(
        color_scheme=scheme,
        java_script_enabled=script,
        viewport={"width": width or SIZE[0], "height": SIZE[1]},
    )
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))

    def refuse(dialog: Dialog) -> None:
        wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", refuse)
    try:
        page.goto(address)
        yield page, wrong
    finally:
        context.close()


def findings(page: Page) -> list[str]:
    """Return what axe finds wrong for people who do not see, hear or point as others do."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


def focus(page: Page) -> str:
    """Return the text of what has the focus."""
    return str(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id"))
