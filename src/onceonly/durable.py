"""Files and names that survive a loss of power, on local disks and shared mounts. Any process.

All of it raises ``OSError``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet; its content is durable, its name is not."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Make the content of a file durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, sync_folder: Callable[[Path], None] = sync) -> None:
    """Make a folder and those above it, durably. Idempotent."""
    if folder.is_dir():
        return
    make_folder(folder.parent, sync_folder)
    # Another process may be quicker; a file of this name is an error.
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)
