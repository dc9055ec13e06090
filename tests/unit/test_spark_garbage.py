"""What stays for the life of a process is collected no more, whenever it came; what comes and goes still is."""

from __future__ import annotations

import itertools
import subprocess
import sys
from types import SimpleNamespace

import pytest

from onceonly.spark.processes import garbage

SCRIPT = """
import gc
from onceonly.spark.processes.garbage import freeze

def looked_at():
    # Freezing puts all generations away; what a full collection then looks at is what came since.
    gc.collect()
    return len(gc.get_objects())

freeze()
assert looked_at() < 1_000, "what was there"
modules = [{number: []} for number in range(20_000)]  # as an import does
assert looked_at() > 20_000
freeze()
assert looked_at() < 1_000, "what came with the first task"
few = [[number] for number in range(100)]
frozen = gc.get_freeze_count()
for _ in range(2):
    freeze()
assert gc.get_freeze_count() <= frozen, "a little is not worth a pause"
for _ in range(1_000):
    data = [{number: []} for number in range(1_000)]
    gc.collect()
    freeze()
data = [{number: []} for number in range(20_000)]
gc.collect()
freeze()
assert looked_at() > 20_000, "data of every task is no module"
"""


def test_what_stays_is_collected_no_more_and_data_of_every_task_still_is() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("objects", "times"), [(0, 1), (60_000, 8)])
def test_of_very_many_tasks_few_are_looked_at_and_what_grows_is_put_away_a_few_times(
    objects: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, frozen = itertools.count(), itertools.count()

    def get_objects(_generation: int) -> range:
        next(looks)
        return range(objects)

    fake = SimpleNamespace(get_objects=get_objects, freeze=lambda: next(frozen), collect=lambda: None)
    monkeypatch.setattr(garbage, "gc", fake)
    monkeypatch.setattr(garbage, "_calls", 0)
    monkeypatch.setattr(garbage, "_times", 0)
    for _ in range(100_000):
        garbage.freeze()
    assert next(looks) < 20
    assert next(frozen) == times
