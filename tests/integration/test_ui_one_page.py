"""One page in a real browser; ``test_ui_browser`` has them all. Without a browser, this file is not collected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import ui_browser
from tests.unit import ui_bench
from tests.unit.operator_bench import QueryCoordinator

from onceonly.operations.find import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


def test_the_first_page_is_live_and_for_everybody(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0, 1)
    with (
        ui_bench.serve([open_checkpoint(query.path)]) as server,
        ui_browser.browser() as browser,
        ui_browser.tab(browser, server.address) as (page, wrong),
    ):
        page.get_by_text("everything up to chk-1 is settled").wait_for()
        page.locator("#live[data-state=on]").wait_for()
        assert ui_browser.findings(page) == []
        query.complete(2)
        page.get_by_text("everything up to chk-2 is settled").wait_for()
        assert page.locator("#records li").first.get_attribute("data-position") == "2.receipt"
        page.keyboard.press("j")
        assert ui_browser.focus(page) == "chk-2"
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Epoch chk-2").wait_for()
        assert wrong == []
