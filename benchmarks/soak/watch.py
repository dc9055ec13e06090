"""What a job's processes and its checkpoint hold, sampled while it runs. The broker is not counted."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Self

import psutil

from benchmarks.processes import kind_of
from benchmarks.soak.values import Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_MIB = 2**20
_JCMD_TIMEOUT_S = 60.0
_JOIN_TIMEOUT_S = 90.0
_TOTAL = re.compile(r"^Total\s+\d+\s+(\d+)", re.MULTILINE)
_KINDS = ("jvm", "python_worker", "python_job")


class Watch:
    """A context that samples every ``every_s``; the JVM's heap, after a full collection, every ``heap_s``."""

    def __init__(
        self,
        members: Callable[[], Iterable[psutil.Process]],
        checkpoint: Path,
        *,
        every_s: float,
        heap_s: float,
    ) -> None:
        self._members = members
        self._checkpoint = checkpoint
        self._every_s, self._heap_s = every_s, heap_s
        self._found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="soak", daemon=True)
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_JOIN_TIMEOUT_S)

    def series(self) -> tuple[Series, ...]:
        """Return all figures."""
        return tuple(
            Series(
                name=name,
                unit=unit,
                at_s=tuple(at for at, _ in pairs),
                values=tuple(value for _, value in pairs),
            )
            for (name, unit), pairs in sorted(self._found.items())
        )

    def _watch(self) -> None:
        heap_due = 0.0
        while not self._stop.wait(self._every_s):
            with_heap = time.monotonic() >= heap_due
            if with_heap:
                heap_due = time.monotonic() + self._heap_s
            self._look(with_heap=with_heap)

    def _look(self, *, with_heap: bool) -> None:
        now = round(time.monotonic() - self._begun, 1)
        sums: dict[tuple[str, str], float] = {}
        for process in self._members():
            with contextlib.suppress(psutil.Error):
                kind = kind_of(process.name(), process.cmdline())
                if kind not in _KINDS:
                    continue
                memory = process.memory_full_info()
                for name, unit, value in (
                    ("resident", "MiB", memory.rss / _MIB),
                    ("own share (PSS)", "MiB", memory.pss / _MIB),
                    ("descriptors", "count", process.num_fds()),
                    ("threads", "count", process.num_threads()),
                    ("processes", "count", 1),
                ):
                    sums[f"{kind}: {name}", unit] = sums.get((f"{kind}: {name}", unit), 0.0) + value
                if kind == "jvm" and with_heap:
                    live = live_heap(process.pid)
                    if live is not None:
                        sums["jvm: live heap", "MiB"] = live / _MIB
        files = (
            [path for path in self._checkpoint.rglob("*") if path.is_file()]
            if self._checkpoint.is_dir()
            else []
        )
        sums["checkpoint: files", "count"] = len(files)
        own = [path for path in files if "onceonly" in path.parts[len(self._checkpoint.parts) :]]
        sums["checkpoint: files of the log", "count"] = len(own)
        for key, value in sums.items():
            self._found.setdefault(key, []).append((now, round(value, 2)))


def live_heap(pid: int) -> int | None:
    """Return the bytes that live in a JVM's heap, after a full collection; None where jcmd cannot say. Needs a JDK."""
    try:
        said = subprocess.run(
            ["jcmd", str(pid), "GC.class_histogram"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_JCMD_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _TOTAL.search(said.stdout)
    return int(found[1]) if found else None
