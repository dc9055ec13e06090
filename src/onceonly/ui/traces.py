"""The event log of some queries, read on as it grows: what it adds to a view. Lines of the newest epochs are kept."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onceonly import events
from onceonly.errors import ConfigurationError
from onceonly.view import trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from onceonly.view.values import View

LINES_MAX: Final = 100_000
"""How many lines are kept, of all queries together: some 40 MB."""
EVERY_S: Final = 2.0
"""How often is looked whether it has grown, while somebody looks at a page."""
_FILES: Final = "*.jsonl"


class Traces:
    """The event log in a folder, which ``ONCEONLY_EVENTS`` named; None where there is none. Page server, any thread."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._size_lock = threading.Lock()
        self._size, self._looked_at = 0, -EVERY_S
        self._forget()

    @property
    def is_there(self) -> bool:
        """Whether there is an event log to be drawn."""
        return self._folder is not None

    def size(self) -> int:
        """Return how many bytes there are, to see whether it has grown: no file is read, and one look is for all."""
        if self._folder is None:
            return 0
        with self._size_lock:
            if time.monotonic() - self._looked_at >= EVERY_S:
                self._size = sum(map(_size, self._folder.glob(_FILES)))
                self._looked_at = time.monotonic()
            return self._size

    def added(self, view: View) -> View:
        """Return a view with what the event log knows of its epochs; what of it cannot be read is said in the view."""
        if self._folder is None:
            return view
        with self._lock:
            said = self._look(self._folder)
            known = self._kept.get(view.query, {})
            oldest = self._oldest.get(view.query, 0)
            lines = events.in_order(
                line for each in view.epochs for line in _parsed(known.get(each.number, []))
            )
        if view.epochs and view.epochs[0].number < oldest:
            said.append(
                f"the event log before chk-{oldest} is not kept here; onceonly report --events reads all of it"
            )
        found = trace.with_events(view, lines)
        return replace(found, left_out=(*found.left_out, *said))

    def _forget(self) -> None:
        self._read: dict[Path, tuple[int, int]] = {}  # bytes and lines
        self._kept: dict[str, dict[int, list[bytes]]] = defaultdict(dict)
        self._oldest: dict[str, int] = {}
        self._count = 0

    def _look(self, folder: Path) -> list[str]:
        """Read what is new, and say what cannot be read."""
        said: list[str] = []
        paths = sorted(folder.glob(_FILES))
        if any(_size(path) < size for path, (size, _) in self._read.items()):
            self._forget()  # made anew
        for path in paths:
            try:
                self._go_on(path)
            except OSError as error:
                said.append(f"{path} of the event log cannot be read: {error.strerror}")
            except ConfigurationError as error:
                said.append(f"the rest of the event log's {path.name} is left out: {error.what}")
        return said

    def _go_on(self, path: Path) -> None:
        size, number = self._read.get(path, (0, 0))
        if _size(path) == size:
            return
        with path.open("rb") as file:
            file.seek(size)
            for text in file:
                if not text.endswith(b"\n"):
                    return  # its process is writing it
                line = events.parse(text, path, number + 1)
                size, number = size + len(text), number + 1
                self._read[path] = size, number
                if line is not None:
                    self._keep(line, text)

    def _keep(self, line: dict[str, Any], text: bytes) -> None:
        query, epoch = str(line["query"]), int(line["epoch"])
        if epoch < self._oldest.get(query, 0):
            return
        self._kept[query].setdefault(epoch, []).append(text)
        self._count += 1
        while self._count > LINES_MAX:
            most = max(self._kept, key=lambda each: len(self._kept[each]))
            # Several at a time: to look for the oldest at each line takes minutes where a log is long.
            for first in sorted(self._kept[most])[: max(1, len(self._kept[most]) // 10)]:
                self._count -= len(self._kept[most].pop(first))
                self._oldest[most] = first + 1


def _parsed(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    return map(json.loads, lines)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
