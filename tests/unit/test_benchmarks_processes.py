"""What a process has of the processors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.processes import on_cpu_s

# Spends at least 20 ms in a thread that stays, until the sum is amid two ticks of 10 ms; says it, and waits.
_SPENDS = """
import threading, time
is_done = threading.Event()
def spend():
    while time.thread_time() < 0.02 or not 0.004 < time.process_time() % 0.01 < 0.006:
        pass
    is_done.set()
    threading.Event().wait()
threading.Thread(target=spend, daemon=True).start()
is_done.wait()
print(time.process_time(), flush=True)
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the figures are those of Linux's scheduler")
def test_the_time_on_a_processor_is_that_of_all_threads_and_finer_than_a_tick() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SPENDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        spent_s = float(process.stdout.readline())
        # A tick would show 5 ms less or more; what follows is to wait.
        assert on_cpu_s(process.pid) == pytest.approx(spent_s, abs=0.003)
        process.communicate("\n")


def test_a_process_that_is_not_there_has_had_nothing() -> None:
    assert on_cpu_s(2**22 + 1) == 0
