"""Every known defect, put into a copy of the code, is caught by the tests named for it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.mutation import mutate
from tests.mutation.defects import DEFECTS, GROUPS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mutation.defects import Defect

EACH = [
    pytest.param(defect, id=defect.name, marks=[pytest.mark.integration] if defect.needs_broker else [])
    for defect in DEFECTS
]


@pytest.mark.parametrize("defect", EACH)
def test_a_defect_is_caught(defect: Defect) -> None:
    verdict = mutate.try_out(defect)
    assert not verdict.why, verdict.why


def test_the_tests_that_catch_are_green_on_the_unchanged_copy() -> None:
    # Those that need a broker run with their own kind.
    verdict = mutate.try_unchanged(defect for defect in DEFECTS if not defect.needs_broker)
    assert not verdict.why, verdict.why


def test_the_page_has_every_group_of_defects() -> None:
    text = (mutate.ROOT / "docs" / "explanation" / "mutants.md").read_text(encoding="utf-8")
    assert re.findall(r"^```{onceonly-mutants} (.+)$", text, re.MULTILINE) == list(GROUPS)


def test_names_are_different_and_groups_are_known() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    assert {defect.group for defect in DEFECTS} == set(GROUPS)


# ------------------------------------------------------------------------------- the script itself can say no
def test_a_change_that_no_test_notices_is_not_caught() -> None:
    harmless = replace(DEFECTS[0], after=DEFECTS[0].before + "  # a remark\n")
    assert "stays green" in mutate.try_out(harmless).why


def test_a_test_that_is_red_for_another_reason_does_not_count() -> None:
    other = replace(DEFECTS[0], says="words that nobody says")
    assert "for another reason" in mutate.try_out(other).why


def test_a_defect_that_no_longer_applies_or_a_test_that_is_gone_is_an_error(tmp_path: Path) -> None:
    gone = replace(DEFECTS[0], before="no such text")
    assert "0 times" in mutate.try_out(gone).why
    untested = replace(DEFECTS[0], tests=("tests/unit/test_log_store.py::test_of_nothing",))
    assert "not found" in mutate.try_out(untested).why or "pytest ended" in mutate.try_out(untested).why
