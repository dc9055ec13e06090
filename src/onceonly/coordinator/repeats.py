"""Whether a query's plan promises the same rows each time: found by the driver, read by the planner.

The planner process has no JVM, so the driver's listener leaves word in the checkpoint when the query starts. It is
about the run that is alive, and need not outlive the machine.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING

import msgspec

from onceonly.log.identity import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "repeats"


class _Word(msgspec.Struct, frozen=True):
    repeats: bool
    why: str = ""


def note(checkpoint: Path, why: str | None) -> None:
    """Leave word of the run that begins. Driver, once a run; ``why`` says what may give other rows, None: unknown.

    Where no word can be left, none of an earlier run is either. Never fails.
    """
    path = checkpoint / FOLDER / _NAME
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        if why is not None and path.parent.is_dir():
            temporary = path.with_name(f".{_NAME}.{os.getpid()}-{secrets.token_hex(6)}.tmp")
            temporary.write_bytes(msgspec.json.encode(_Word(repeats=not why, why=why[:300])))
            temporary.replace(path)


def noted(checkpoint: Path) -> bool:
    """Say whether the plan promises the same rows; False where nobody knows. Planner process or driver."""
    try:
        return msgspec.json.decode((checkpoint / FOLDER / _NAME).read_bytes(), type=_Word).repeats
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
