"""Books of a target that are read for as long as a query runs, and written once. They are kept young.

Who removes by a job what is older than some days, or lets a rule of the bucket do so, would take them, and a target
without its id is another one. Driver.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from onceonly.errors import OnceonlyError
from onceonly.sinks.files.checks import TOKEN
from onceonly.sinks.files.paths import HIDDEN

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.sinks.files.store import Files

log = logging.getLogger("onceonly")
PAUSE_S = 6 * 3600.0
"""How old they may become: what removes files by their age counts whole days."""


class Renewal:
    """Renews the books of one sink: with the first epoch of a start, then now and then."""

    def __init__(self, store: Files, target: Path) -> None:
        self._store = store
        self._target = target
        self._next = 0.0

    def look(self, manifests: Path, layout: str) -> None:
        """Renew them where it is time. Never raises: the next call goes on, and what is there is as good as before."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + PAUSE_S
        for path in (self._target / HIDDEN / TOKEN, manifests / f"{layout}.layout"):
            try:
                self._store.renew(path)
            except (OSError, OnceonlyError) as error:
                log.warning("%s was not renewed, and the next try goes on: %s", path, error)
