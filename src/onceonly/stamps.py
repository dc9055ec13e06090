"""The time and the place of what is being written, for people; nothing is decided by them."""

from __future__ import annotations

import functools
import os
import socket
from datetime import UTC, datetime

from onceonly.model import Stamp


def now() -> Stamp:
    """Say when it is, by this machine's wall clock, and which process this is. Anywhere, any number of times."""
    return Stamp(at=text(datetime.now(UTC)), host=_host(), pid=os.getpid())


def text(moment: datetime) -> str:
    """Return a moment as it stands in the log: UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@functools.cache
def _host() -> str:
    return socket.gethostname()
