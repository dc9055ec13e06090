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

from onceonly.durable.sealed import decoder
from onceonly.errors import OnceonlyError
from onceonly.log.place import FOLDER

if TYPE_CHECKING:
    from onceonly.checkpoint.files import CheckpointFiles

_NAME = "repeats"


class _Word(msgspec.Struct, frozen=True):
    repeats: bool
    why: str = ""


def note(checkpoint: CheckpointFiles, why: str | None) -> None:
    """Leave word of the run that begins, where there is a log. Driver, once a run.

    ``why`` says what may give other rows, None: unknown. Where no word can be left, none of an earlier run is either.
    Never fails.
    """
    if checkpoint.folder is None:
        with contextlib.suppress(OnceonlyError):
            if FOLDER in checkpoint.folders():
                word = _Word(repeats=why == "", why=(why or "")[:300])
                checkpoint.write(f"{FOLDER}/{_NAME}", msgspec.json.encode(word).decode())
        return
    path = checkpoint.folder / FOLDER / _NAME
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        if why is not None and path.parent.is_dir():
            temporary = path.with_name(f".{_NAME}.{os.getpid()}-{secrets.token_hex(6)}.tmp")
            temporary.write_bytes(msgspec.json.encode(_Word(repeats=not why, why=why[:300])))
            temporary.replace(path)


def noted(checkpoint: CheckpointFiles) -> bool:
    """Say whether the plan promises the same rows; False where nobody knows. Planner process or driver."""
    try:
        return decoder(_Word).decode(checkpoint.text(f"{FOLDER}/{_NAME}") or "").repeats
    except (OnceonlyError, msgspec.DecodeError):
        return False
