"""Waiting between tries of what may pass. Any process."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceonly.ports import Clock

_WAIT_S, _WAIT_MAX_S = 0.05, 2.0


class Backoff:
    """Waits that grow, with a part drawn, until a time is over since the last progress."""

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock, self._limit_s = clock, limit_s
        self.progress()

    def progress(self) -> None:
        """Begin anew: something was done."""
        self._since_s, self._wait_s = self._clock.monotonic(), _WAIT_S

    def again(self) -> bool:
        """Wait; say whether there is time for another try."""
        if self._clock.monotonic() - self._since_s >= self._limit_s:
            return False
        self._clock.sleep(self._wait_s * random.uniform(0.5, 1))  # noqa: S311  no secret
        self._wait_s = min(self._wait_s * 2, _WAIT_MAX_S)
        return True
