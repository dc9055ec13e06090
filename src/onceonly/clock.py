"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """Seconds of this machine; for waits and pictures only."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
