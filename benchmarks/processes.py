"""CPU time and memory of all processes of a contender, and of the broker, while a run runs."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from benchmarks.figures import at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_EVERY_S = 0.25
_JOIN_TIMEOUT_S = 10.0
_MIB = 2**20


class Probe:
    """Looks a few times a second; a thread of its own, ended by the block.

    ``members`` lists the contender's processes. A process that has ended is in its parent's account, which the system
    keeps: so what the living have used, with their ended children, is what all have used.
    """

    def __init__(self, members: Callable[[], Iterable[psutil.Process]], broker_pid: int | None) -> None:
        self.peaks_mib: dict[str, float] = {}
        """The most that one process of a kind has held (resident), and the most of all together."""
        self._members = members
        self._broker = psutil.Process(broker_pid) if broker_pid is not None else None
        self._times_s: list[float] = []
        self._cpu_s: list[float] = []
        self._broker_cpu_s: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="probe", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_JOIN_TIMEOUT_S)
        self._look()

    def cpu_s(self, begin_s: float, end_s: float) -> float:
        """Return the CPU seconds of the contender between two moments of the monotonic clock."""
        return at(self._times_s, self._cpu_s, end_s) - at(self._times_s, self._cpu_s, begin_s)

    def broker_cpu_s(self, begin_s: float, end_s: float) -> float:
        """Return the CPU seconds of the broker between two moments."""
        return at(self._times_s, self._broker_cpu_s, end_s) - at(self._times_s, self._broker_cpu_s, begin_s)

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        cpu_s, memory_mib, now_s = 0.0, 0.0, time.monotonic()
        for process in self._members():
            with contextlib.suppress(psutil.NoSuchProcess):
                cpu_s += used_s(process)
                kind = kind_of(process.name(), process.cmdline())
                # What a JVM starts for a moment shows the memory of the JVM that it was forked from.
                held = process.memory_info().rss / _MIB if kind != "other" else 0.0
                memory_mib += held
                if held:
                    self._note(kind, held)
        self._note("all", memory_mib)
        self._times_s.append(now_s)
        # A process may end between being listed and being asked: its parent's account comes a moment later.
        self._cpu_s.append(max(cpu_s, self._cpu_s[-1] if self._cpu_s else 0.0))
        broker = self._broker.cpu_times() if self._broker is not None else None
        self._broker_cpu_s.append(broker.user + broker.system if broker is not None else 0.0)

    def _note(self, kind: str, held_mib: float) -> None:
        self.peaks_mib[kind] = round(max(held_mib, self.peaks_mib.get(kind, 0.0)), 1)


def used_s(process: psutil.Process) -> float:
    """Return the CPU seconds that a process has used, those of its ended children included."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def on_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process's living threads; finer than ``used_s``, which counts ticks of 10 ms.

    A thread that runs just now is seen as it was at its last tick; one that waits, to the microsecond. From Linux's
    scheduler (``/proc/PID/task/*/schedstat``, the first number). 0 on other systems.
    """
    spent_ns = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # it has ended
            spent_ns += int(thread.read_text().split()[0])
    return spent_ns / 1e9


def kind_of(name: str, command: list[str]) -> str:
    """Say what kind of process one is: the JVM, a Python worker of Spark, or the job's own Python. Pure."""
    if name == "java":
        return "jvm"
    words = " ".join(command)
    if "pyspark.daemon" in words:
        return "python_worker"
    if "benchmarks.jobs" in words:
        return "python_job"
    return "python_other" if name.startswith("python") else "other"
