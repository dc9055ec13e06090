"""A query that a timetable starts, and that has read all before its savepoint is copied, gets it all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import harness
import pytest
import short_job
from harness import python_path

from onceonly.savepoints import place

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]


def feed(folder: Path, number: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{number}.json").write_text(f'{{"value": {number}}}\n', encoding="utf-8")


@pytest.mark.parametrize(
    ("way", "end"),
    [
        ("format", "exit"),
        pytest.param("format", "stop", marks=pytest.mark.long),
        ("sink", "stop"),
        pytest.param("epoch", "exit", marks=pytest.mark.long),
    ],
)
def test_a_program_whose_query_has_ended_stays_until_its_savepoint_is_whole(
    tmp_path: Path, way: str, end: str
) -> None:
    """However slow the place is: here a copy stands still until the query has ended."""
    for number in range(2):
        feed(tmp_path, number)
    run = harness.start(
        short_job.__file__, tmp_path, way, end,
        failpoints="savepoint.after_copy=pause@3", env={"PYTHONPATH": python_path()},
    )  # fmt: skip
    try:
        run.wait_for("savepoint.after_copy")
        run.until(lambda: "its savepoint is being made" in run.tail(), "it was told what is waited for")
        assert (tmp_path / "checkpoint/commits/1").exists()
        (run.fired / "resume").touch()
        assert run.wait() == 0, run.tail()
    finally:
        run.kill_tree()
    [made] = place.standing(str(tmp_path / "place"))
    assert made.savepoint is not None
    assert made.savepoint.by_itself
    assert place.wrong(made.address, made.savepoint) == []
