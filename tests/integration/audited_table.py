"""A table that somebody has changed, and what ``onceonly audit`` says of it, whatever its server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly.operations.audit import Word

if TYPE_CHECKING:
    from tests.unit.test_operations_audit import Job

each_change = pytest.mark.parametrize(
    ("statement", "word", "told"),
    [
        ("SELECT 1", Word.SAME, ""),
        ("DELETE FROM {table} WHERE value = 'row 3'", Word.DIFFERS, "and the target has 11"),
        (
            "INSERT INTO {table} SELECT * FROM {table} WHERE value = 'row 3'",
            Word.DIFFERS,
            "and the target has 13; others may have written there, too",
        ),
        (
            "UPDATE {table} SET value = 'x' WHERE value = 'row 3'",
            Word.DIFFERS,
            "their values are others: at least one was changed",
        ),
    ],
    ids=["untouched", "removed", "doubled", "changed"],
)
"""What is done to the table, and what is to be said of its rows."""


def assert_told(job: Job, word: Word, told: str) -> None:
    """See what is said of all rows of a target."""
    last = job.audit().findings[-1]
    assert (last.epoch, last.word) == (None, word)
    assert told in " ".join(last.told)
