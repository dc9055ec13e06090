"""A block that is written between the marks of a page, and pages that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly.errors import ConfigurationError
from onceonly_proof.campaign import marks

if TYPE_CHECKING:
    from pathlib import Path

BEGIN, END = "<!-- it: begin -->", "<!-- it: end -->"


def test_what_stood_between_the_marks_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"a\n{BEGIN}\nold\n{END}\nb", encoding="utf-8")
    for _ in range(2):
        marks.write(page, "new", name="it")
        assert page.read_text(encoding="utf-8") == f"a\n{BEGIN}\n\nnew\n\n{END}\nb"


@pytest.mark.parametrize(
    "text", ["none", f"{BEGIN} only", f"{END} before {BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"]
)
def test_a_page_without_its_marks_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"page\.md must have <!-- it: begin -->"):
        marks.placed(text, "block", name="it", where="page.md")
