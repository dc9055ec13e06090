"""What stays for the life of a process is collected no more, whenever it came; what comes and goes still is."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
from onceonly.spark.settling import settle

def looked_at():
    # Freezing puts all generations away; what a full collection then looks at is what came since.
    gc.collect()
    return len(gc.get_objects())

settle()
assert looked_at() < 1_000, "what was there"
modules = [{number: []} for number in range(20_000)]  # as an import does
assert looked_at() > 20_000
settle()
assert looked_at() < 1_000, "what came with the first task"
few = [[number] for number in range(1_000)]
frozen = gc.get_freeze_count()
settle()
assert gc.get_freeze_count() <= frozen, "a little is not worth a pause"
for _ in range(10):
    data = [{number: []} for number in range(20_000)]
    gc.collect()
    settle()
assert looked_at() > 20_000, "data of every task is no module"
"""


def test_what_stays_is_collected_no_more_and_data_of_every_task_still_is() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
