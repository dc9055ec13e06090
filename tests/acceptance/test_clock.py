"""The wall clock of every Python process of a job jumps by an hour, in the middle of an epoch and between its lives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from harness import Bench

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(480)]

ROWS = [(f"k{number % 3}", str(number)) for number in range(300)]
HOUR = timedelta(hours=1)

# Python runs this module, where it finds it, before any other. The JVM keeps its clock: under libfaketime, which could
# move it, a timed wait of Java returns at once, and Spark does not come up.
MOVED = """
import time
from pathlib import Path

_ahead = Path(__file__).with_name("ahead")
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + float(_ahead.read_text())
time.time_ns = lambda: _time_ns() + int(float(_ahead.read_text()) * 1e9)
"""


class WallClock:
    """What a job's Python processes take for the time of day. Their monotonic clocks go on."""

    def __init__(self, folder: Path) -> None:
        self._ahead = folder / "ahead"
        (folder / "sitecustomize.py").write_text(MOVED, encoding="utf-8")
        self.jump(timedelta())

    def jump(self, ahead: timedelta) -> None:
        new = self._ahead.with_suffix(".new")
        new.write_text(str(ahead.total_seconds()), encoding="utf-8")
        new.replace(self._ahead)


@pytest.mark.parametrize(
    "ahead", [pytest.param(HOUR, marks=pytest.mark.long), -HOUR], ids=["forward", "back"]
)
def test_a_wall_clock_that_jumps_by_an_hour_loses_and_doubles_nothing(bench: Bench, ahead: timedelta) -> None:
    clock = WallClock(bench.folder)
    bench.feed(ROWS)
    began = datetime.now(UTC)

    run = bench.start("slot.before_prepare=pause#jump,commit.before_handle=pause@4#kill")
    try:
        run.wait_for("slot.before_prepare#jump")
        clock.jump(ahead)
        (run.fired / "resume#jump").touch()
        run.wait_for("commit.before_handle#kill")
    finally:
        run.kill_tree()
    assert any(abs(time - began - ahead) < HOUR / 2 for time in told_times(bench))

    # The next life has everybody's hour again, and finishes an epoch that was decided at another.
    clock.jump(timedelta())
    bench.run()
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()


def told_times(bench: Bench) -> list[datetime]:
    """Return the times that the job has written beside its decisions."""
    return [
        datetime.fromtimestamp(float(str(line["t"])), UTC) for line in bench.seen_events("link.persisted")
    ]
