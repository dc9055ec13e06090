"""kafka-python is imported when it is needed, by whichever threads of a worker need it first."""

from __future__ import annotations

import subprocess
import sys

# The first thread is held in the middle of the package until the second one has begun at a module of it.
_BOTH = """
import importlib, sys, threading
import onceonly.sinks.kafka.wire
amid, failed = threading.Event(), []
class Hold:
    def find_spec(self, name, path=None, target=None):
        if name == "kafka.admin" and not amid.is_set():
            amid.set()
            threading.Event().wait(1.0)
sys.meta_path.insert(0, Hold())
def load(name, first):
    try:
        first or amid.wait()
        importlib.import_module(name)
    except BaseException as error:
        failed.append(f"{name}: {error!r}")
names = {"kafka": True, "onceonly.sinks.kafka.wire.requests": False}
threads = [threading.Thread(target=load, args=each) for each in names.items()]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit("; ".join(failed) or 0)
"""


def test_two_threads_may_import_it_at_once() -> None:
    found = subprocess.run(
        [sys.executable, "-c", _BOTH], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 0, found.stderr
