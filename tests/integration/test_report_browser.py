"""The report in a real browser: how long it takes to open, and paper; ``test_ui_browser`` has the rest."""

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

browser = ui_browser.shared  # a fixture
pytestmark = [pytest.mark.integration, pytest.mark.long]


def written(folder: Path, count: int) -> str:
    """Write the report of a run of so many epochs, the last of them in doubt; give its address."""
    made = [bench.usual(number, 2 * number) for number in range(count - 1)]
    model = bench.model(
        *made, bench.in_doubt(count - 1, 2 * count), runs=[bench.run("a", -1), bench.run("b", 3)]
    )
    path = folder / "run.html"
    path.write_text(page.report(view(model)), encoding="utf-8")
    return path.as_uri()


def test_a_report_of_a_thousand_epochs_opens_within_a_second_without_a_script(
    browser: Browser, tmp_path: Path
) -> None:
    address = written(tmp_path, 1000)
    with ui_browser.tab(browser, "about:blank", script=False) as (opened, wrong):
        # Processor seconds of the page's own thread: the machine may be busy otherwise.
        measure = opened.context.new_cdp_session(opened)
        measure.send("Performance.enable", {"timeDomain": "threadTicks"})
        opened.goto(address)
        assert opened.get_by_text("everything up to chk-998 is settled").is_visible()
        assert opened.locator("table").first.is_visible()
        figures = {each["name"]: each["value"] for each in measure.send("Performance.getMetrics")["metrics"]}
        assert 0 < figures["TaskDuration"] < 1
        assert wrong == []


def test_on_paper_the_details_are_open(browser: Browser, tmp_path: Path) -> None:
    with ui_browser.tab(browser, written(tmp_path, 3)) as (opened, _):
        caption = opened.get_by_text("Steps of chk-2, in the order of the log")
        assert not caption.is_visible()
        opened.emulate_media(media="print")
        assert caption.is_visible()
