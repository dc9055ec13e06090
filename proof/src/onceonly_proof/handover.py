"""What the processes of a run tell each other: files that appear as a whole, and waiting for what another one does."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def put(path: Path, data: bytes) -> None:
    """Replace a file: who looks meanwhile finds it whole, as it was or as it is."""
    written = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    written.write_bytes(data)
    written.replace(path)


def until(condition: Callable[[], object], seconds: float, *, poll_s: float = 0.02) -> bool:
    """Wait until a condition holds; say whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True
