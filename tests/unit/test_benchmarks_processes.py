"""What a process has of the processors."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from benchmarks.processes import on_cpu_s


@pytest.mark.skipif(sys.platform != "linux", reason="the figures are those of Linux's scheduler")
def test_the_time_on_a_processor_is_that_of_all_threads_and_finer_than_a_tick() -> None:
    for _ in range(3):
        is_done, may_end = threading.Event(), threading.Event()

        def spin(is_done: threading.Event, may_end: threading.Event) -> None:
            began_s = time.thread_time()
            while time.thread_time() - began_s < 0.005:
                pass
            is_done.set()
            may_end.wait(10)

        before_s = on_cpu_s(os.getpid())
        thread = threading.Thread(target=spin, args=(is_done, may_end))
        thread.start()
        is_done.wait(10)
        spent_s = on_cpu_s(os.getpid()) - before_s
        may_end.set()
        thread.join(10)
        # A tick of 10 ms would show 0 or 10.
        if spent_s == pytest.approx(0.0055, rel=0.5):
            return
    pytest.fail(f"5 ms of a thread are seen as {spent_s * 1000:.3f} ms")


def test_a_process_that_is_not_there_has_had_nothing() -> None:
    assert on_cpu_s(2**22 + 1) == 0
