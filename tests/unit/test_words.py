"""Numbers with their nouns: one row is no rows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from onceonly.words import epoch_ranges, n, time_of

SOURCES = Path(__file__).parents[2] / "src" / "onceonly"
NOUN = re.compile(
    r"\s*(?:more |decided )?(rows|epochs|transactions|files|crashes|kills|rounds|queries|slots)\b(?!/)"
)


@pytest.mark.parametrize(
    ("count", "word", "told"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (1200, "row", "1,200 rows"),
        (2, "tx", "2 tx"),
        (2, "crash", "2 crashes"),
        (2, "epoch", "2 epochs"),
        (2, "more epoch is", "2 more epochs are"),
        (2, "try", "2 tries"),
        (2, "day", "2 days"),
        (1, "query was", "1 query was"),
        (2, "query was", "2 queries were"),
        (3, "is", "3 are"),
        (3, "decided transaction is", "3 decided transactions are"),
    ],
)
def test_a_number_has_its_noun_and_its_verb(count: int, word: str, told: str) -> None:
    assert n(count, word) == told


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (1_700_000_000_123, "2023-11-14T22:13:20Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (1_700_000_000_123_456, "1700000000123456 ms since 1970"),  # taken for microseconds
        (-(2**63), f"{-(2**63)} ms since 1970"),
    ],
)
def test_a_time_of_rows_is_told_whatever_it_is(ms: int, told: str) -> None:
    assert time_of(ms) == told


def test_epochs_that_follow_one_another_are_a_range() -> None:
    assert epoch_ranges([]) == ""
    assert epoch_ranges([4]) == "chk-4"
    assert epoch_ranges([3, 0, 1, 2, 6, 8, 9]) == "chk-0 to chk-3, chk-6, chk-8 to chk-9"


def _plurals(path: Path) -> list[str]:
    """Return the places where a number in a text is followed by a noun that is in the plural in any case."""
    found = []
    for text in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(text, ast.JoinedStr):
            for value, behind in zip(text.values, text.values[1:], strict=False):
                literal = behind.value if isinstance(behind, ast.Constant) else ""
                if isinstance(value, ast.FormattedValue) and NOUN.match(str(literal)):
                    found.append(f"{path.name}:{text.lineno}: {ast.unparse(value.value)}{str(literal)[:20]}")
    return found


@pytest.mark.parametrize("folder", ["cli", "operations", "savepoints", "view", "ui", "guards"])
def test_no_message_of_a_command_or_the_page_counts_by_hand(folder: str) -> None:
    found = [place for path in sorted((SOURCES / folder).rglob("*.py")) for place in _plurals(path)]
    assert found == []
