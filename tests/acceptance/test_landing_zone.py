"""A job that is killed while a stranger moves or deletes what it sees: no row twice, none lost."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from harness import TEXTS, visible_files

if TYPE_CHECKING:
    from harness import Bench

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1800)]

ROWS = [(f"k{number % 17}", str(number)) for number in range(700)]
# Every step of a commit, and one before and after it.
POINTS = (
    ("receipt.before_put", 2),
    ("commit.after_handle", 3),
    ("commit.before_handle", 4),
    ("complete.before", 2),
    ("receipt.after_put", 2),
    ("sweep.before", 3),
    ("link.after_put", 2),
    ("commit.before_return", 2),
)
SHORT = POINTS[:2]


class Stranger:
    """Takes what anybody sees, and remembers the rows."""

    def __init__(self, bench: Bench, way: str) -> None:
        self._bench = bench
        self._way = way
        self._away = bench.folder / "taken"
        self._away.mkdir()
        self.rows: Counter[tuple[str, str]] = Counter()
        self.files = 0

    def take(self) -> None:
        for path in visible_files(self._bench.files):
            rows = [json.loads(line) for line in path.read_bytes().splitlines()]
            self.rows.update((row["key"], row["value"]) for row in rows)
            self.files += 1
            if self._way == "moved":
                path.rename(self._away / path.name)
            else:
                path.unlink()


@pytest.mark.parametrize(
    ("way", "points"),
    [
        ("moved", SHORT),
        pytest.param("deleted", SHORT, marks=pytest.mark.long),
        pytest.param("moved", POINTS, marks=pytest.mark.long),
        pytest.param("deleted", POINTS, marks=pytest.mark.long),
    ],
    ids=["moved", "deleted", "moved at each step", "deleted at each step"],
)
def test_what_a_stranger_takes_after_a_kill_is_not_written_again(
    bench: Bench, way: str, points: tuple[tuple[str, int], ...]
) -> None:
    bench.args = ["--sink", "files", "--files", str(bench.files), "--per-epoch", "40", *TEXTS]
    bench.feed(ROWS)
    stranger = Stranger(bench, way)
    for point, nth in points:
        bench.run_and_kill_at(point, nth)
        stranger.take()
    bench.run()
    stranger.take()
    assert stranger.rows == Counter(ROWS)
    assert stranger.files > len(points)
    bench.assert_nothing_left_open("files")
