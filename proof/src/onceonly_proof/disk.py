"""A disk that fails at its n-th call, whichever that is: SQLite's habit, for anything that is written in Python.

::

    with FaultyDisk("/data/out") as calls:      # count them once
        work()
    for nth in range(1, calls.total + 1):       # then let each of them fail, in a process of its own
        with FaultyDisk("/data/out", fault=Fault(nth, How.KILL)):
            work()

While it is in use, the functions of ``os`` that change a file system, and ``open``, are replaced in this process, for
what lies in the given folders. A file that is written in binary mode has each of its writes counted. What C code
writes past Python is not seen; for that there is ``strace --inject``.
"""

from __future__ import annotations

import builtins
import enum
import errno
import io
import os
import signal
import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from onceonly.sinks.files.staging import moving

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path
    from types import ModuleType, TracebackType

CHANGES = frozenset({"open", "write", "fsync", "link", "rename", "unlink", "mkdir", "rmdir"})
"""The calls that change something; ``open`` is one for writing."""
READS = frozenset({"read", "list", "stat"})
"""The others; ``read`` is an ``open`` for reading, of a file or a folder."""
_NEED_SPACE = frozenset({"open", "write", "link", "mkdir"})
# Functions of os, what each is counted as, and how many of its first arguments are paths.
_FUNCTIONS = (
    ("fsync", "fsync", 1), ("fdatasync", "fsync", 1), ("write", "write", 1), ("link", "link", 2),
    ("rename", "rename", 2), ("replace", "rename", 2), ("unlink", "unlink", 1), ("remove", "unlink", 1),
    ("mkdir", "mkdir", 1), ("rmdir", "rmdir", 1), ("scandir", "list", 1), ("listdir", "list", 1), ("stat", "stat", 1),
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class How(enum.StrEnum):
    """What happens at the call."""

    KILL = "kill"
    """SIGKILL to this process, before the call."""
    REFUSE = "refuse"
    """The error instead of the call."""
    LOSE = "lose"
    """The call is made, and then the error is given: its answer is lost. Of a write, half is made."""
    FULL = "full"
    """The error instead of this call and of all later ones that need space."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to happen at the n-th call, counted from 1. ``code`` is the ``errno`` of the error."""

    nth: int
    how: How
    code: int = errno.EIO


class StandIns:
    """A context in which functions of this process are replaced; at its end the real ones are back."""

    def __init__(self) -> None:
        self._replaced: list[tuple[ModuleType, str, Any]] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._replaced:
            module, name, real = self._replaced.pop()
            setattr(module, name, real)

    def _replace(self, module: ModuleType, name: str, new: Callable[..., Any]) -> None:
        self._replaced.append((module, name, getattr(module, name)))
        setattr(module, name, new)

    def _replace_open(self, opened: Callable[..., Any]) -> None:
        """Replace ``open`` under both of its names."""
        self._replace(io, "open", opened)
        self._replace(builtins, "open", opened)


class FaultyDisk(StandIns):
    """A context in which the calls below some folders are counted, and one may fail. One at a time in a process.

    ``calls`` are the kinds that count. Any thread of the process; the process itself, not its children that are
    started anew. Without a fault it only counts. ``counts`` are the calls by kind, ``at`` says where the fault struck
    (kind and path), None where it did not: a fault that did not strike has tested nothing.
    """

    def __init__(
        self, *folders: str | Path, fault: Fault | None = None, calls: Collection[str] = CHANGES
    ) -> None:
        super().__init__()
        self._folders = tuple(os.path.realpath(folder) for folder in folders)
        self._fault = fault
        self._calls = frozenset(calls)
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.at: tuple[str, str] | None = None

    @property
    def total(self) -> int:
        """How many calls were counted."""
        return self.counts.total()

    def __enter__(self) -> Self:
        for name, call, paths in _FUNCTIONS:
            self._replace(os, name, partial(self._function, getattr(os, name), call, paths))
        noreplace = partial(self._function, moving.rename_noreplace, "rename", 2)
        self._replace(moving, "rename_noreplace", noreplace)  # which os does not have
        self._replace(os, "open", partial(self._os_open, os.open))
        self._replace_open(partial(self._open, io.open))
        return self

    # --- what stands in for the functions -----------------------------------------------------------------

    def _function(self, real: Callable[..., Any], call: str, paths: int, /, *args: Any, **more: Any) -> Any:  # noqa: ANN401  os's own
        path = self._place(args[:paths] or (".",), more.get("dir_fd"))
        if path is None:
            return real(*args, **more)
        by_name = isinstance(args[0], str | bytes | os.PathLike) if args else True
        half = None
        if call == "write":
            half = lambda: real(args[0], bytes(args[1])[: len(args[1]) // 2])  # noqa: E731
        # fsync(2) and write(2) do not know a name, so neither does their error.
        return self._pass(call, path, lambda: real(*args, **more), half=half, named=by_name)

    def _os_open(self, real: Callable[..., int], /, path: Any, flags: int, *args: Any, **more: Any) -> int:  # noqa: ANN401  os's own
        place = self._place((path,), more.get("dir_fd"))
        if place is None:
            return real(path, flags, *args, **more)
        call = "open" if flags & _WRITING else "read"
        return int(self._pass(call, place, lambda: real(path, flags, *args, **more)))

    def _open(self, real: Callable[..., Any], /, file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:  # noqa: ANN401  as io.open
        place = self._place((file,), None) if not isinstance(file, int) else None
        if place is None:
            return real(file, mode, *args, **more)
        if not set(mode) & set("wxa+"):
            return self._pass("read", place, lambda: real(file, mode, *args, **more))
        buffering = args[0] if args else more.get("buffering", -1)
        if set(mode) <= set("wxab") and "b" in mode and buffering != 0:
            return self._pass("open", place, lambda: io.BufferedWriter(_Written(self, place, file, mode)))
        return self._pass("open", place, lambda: real(file, mode, *args, **more))

    # --- the fault ----------------------------------------------------------------------------------------

    def _place(self, paths: Collection[Any], dir_fd: int | None) -> str | None:
        """Return the first of some paths that lies in the folders, None where none does."""
        for each in paths:
            place = _descriptor(each) if isinstance(each, int) else os.fsdecode(each)
            if not place.startswith("/"):
                place = os.path.join(os.getcwd() if dir_fd is None else _descriptor(dir_fd), place)  # noqa: PTH109, PTH118  Path calls os
            if any(place == folder or place.startswith(folder + "/") for folder in self._folders):
                return place
        return None

    def _pass(
        self,
        call: str,
        path: str,
        act: Callable[[], Any],
        *,
        half: Callable[[], object] | None = None,
        named: bool = True,
    ) -> Any:  # noqa: ANN401  what act gives
        fault = self._fault
        if call not in self._calls:
            return act()
        with self._lock:
            self.counts[call] += 1
            number = self.total
        lasting = fault is not None and fault.how is How.FULL and number > fault.nth and call in _NEED_SPACE
        if fault is None or not (number == fault.nth or lasting):
            return act()
        self.at = self.at or (call, path)
        if fault.how is How.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.how is How.LOSE:
            made = (half or act)()
            if isinstance(made, io.IOBase):
                made.close()
            elif isinstance(made, int) and call in {"open", "read"}:
                os.close(made)
        raise OSError(fault.code, os.strerror(fault.code), *([path] if named else []))


class _Written(io.FileIO):
    """A file whose writes are counted."""

    def __init__(self, disk: FaultyDisk, place: str, file: Any, mode: str) -> None:  # noqa: ANN401  as io.open
        super().__init__(file, mode.replace("b", ""))
        self._disk = disk
        self._place = place

    def write(self, data: Any, /) -> int:  # noqa: ANN401  any buffer
        real = super().write
        half = memoryview(data).cast("B")[: len(memoryview(data).cast("B")) // 2]
        return int(
            self._disk._pass("write", self._place, lambda: real(data), half=lambda: real(half), named=False)  # noqa: SLF001  of this very module
        )


def _descriptor(number: int) -> str:
    """Return the path of an open file; Linux's way."""
    try:
        return os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115  Path calls os
    except OSError:
        return f"/proc/self/fd/{number}"
