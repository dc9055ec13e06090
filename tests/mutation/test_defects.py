"""Every known defect, put into a copy of the code, is caught by the tests named for it; daily one of each group."""

from __future__ import annotations

import ast
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.mutation import mutate
from tests.mutation.defects import DEFECTS, GROUPS

if TYPE_CHECKING:
    from tests.mutation.defects import Defect

DAILY = {defect.group: defect.name for defect in reversed(DEFECTS) if not defect.needs_broker}.values()
EACH = [
    pytest.param(defect, id=defect.name, marks=[] if defect.name in DAILY else [pytest.mark.long])
    for defect in DEFECTS
]


@pytest.mark.parametrize("defect", EACH)
def test_a_defect_is_caught(defect: Defect) -> None:
    verdict = mutate.try_out(defect)
    assert not verdict.why, verdict.why


def test_every_defect_applies_and_its_tests_are_there(tmp_path: Path) -> None:
    shutil.copytree(mutate.ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for defect in DEFECTS:
        changed = tmp_path / "src" / mutate.PACKAGE / defect.file
        text = changed.read_text(encoding="utf-8")
        mutate.put_in(defect, tmp_path / "src")
        changed.write_text(text, encoding="utf-8")
        gone = [test for test in defect.tests if not is_there(test)]
        assert not gone, f"{defect.name}: {gone}"


def is_there(node: str) -> bool:
    """Tell whether a test of that name is written down: its function may be a base class's, in another file."""
    file, *_, name = node.partition("[")[0].split("::")
    return name in functions(file) or ("::Test" in node and any(name in functions(each) for each in SUITES))


SUITES = [str(path) for path in Path(mutate.ROOT, "proof/src/onceonly_proof/conformance").glob("*.py")]


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse(Path(mutate.ROOT, file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.long
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
