"""What Spark reports of each epoch, on a store: one object for all that is kept, for people, best effort.

``onceonly/progress/newest.json``. A store of objects takes its price for each put, so however short the epochs are, it
is put at most once in ``EVERY_S`` seconds, with all reports since.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceonly import background
from onceonly.errors import LogError, OnceonlyError
from onceonly.log import files
from onceonly.log.progress import KEEP, PROGRESS, Block, Progress, ProgressFiles

if TYPE_CHECKING:
    from concurrent.futures import Future

    from onceonly.stores.port import RewritableStore

NAME: Final = f"{PROGRESS}/newest.json"
EVERY_S: Final = 20.0
BYTES_MAX: Final = 256 * 1024
"""How long the object gets, unless one report alone is longer: those of many partitions are long."""
_END_S = 2.0


class StoredProgress:
    """The reports of one checkpoint. Driver, any thread; and tools, which only read."""

    def __init__(self, store: RewritableStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._new: dict[int, Progress] = {}
        self._writing: Future[None] | None = None
        # Of the thread that writes.
        self._known: dict[int, Progress] = {}
        self._has_looked = False

    def put(self, progress: Progress) -> None:
        """Take a report; a thread writes it at once, or within ``EVERY_S``. Does not wait, never fails."""
        with self._lock:
            self._new[progress.epoch] = progress
            if self._writing is None:
                self._writing = background.begin("onceonly-progress", self._write)

    def close(self) -> None:
        """Write what waits. Idempotent; does not wait long."""
        self._closed.set()
        with self._lock:
            writing = self._writing
        if writing is not None:
            wait([writing], timeout=_END_S)

    def get(self, epoch: int) -> Progress | None:
        """Read, None where there is none. Raises ``LogError`` for a damaged object, ``UnavailableError``."""
        return self._read().get(epoch)

    def kept(self) -> dict[int, Progress]:
        """Read all that are kept. Raises ``LogError`` for a damaged object, ``UnavailableError``."""
        return self._read()

    def _write(self) -> None:
        while True:
            with self._lock:
                new, self._new = self._new, {}
                if not new:
                    self._writing = None
                    return
            self._known |= new
            with contextlib.suppress(OnceonlyError):  # the next one says it all again
                self._go_on()
                self._store.replace(NAME, self._encoded())
            self._closed.wait(EVERY_S)

    def _go_on(self) -> None:
        """Take over what an earlier run has left, once."""
        if not self._has_looked:
            with contextlib.suppress(LogError):  # a damaged one is for nobody, and is replaced
                self._known = {**self._read(), **self._known}
            self._has_looked = True

    def _encoded(self) -> bytes:
        kept = sorted(self._known)[-KEEP:]
        while True:
            self._known = {epoch: self._known[epoch] for epoch in kept}
            data = files.encode("reports", Block(reports=tuple(self._known.values())))
            if len(data) <= BYTES_MAX or len(kept) == 1:
                return data
            kept = kept[len(kept) // 2 :]

    def _read(self) -> dict[int, Progress]:
        block = files.read(self._store, NAME, kind="reports", into=Block)
        return {} if block is None else {report.epoch: report for report in block.reports}


def progress_in(place: Path | RewritableStore) -> ProgressFiles | StoredProgress:
    """Return the reports of a checkpoint: in its folder, or in the store of its log."""
    return ProgressFiles(place) if isinstance(place, Path) else StoredProgress(place)
