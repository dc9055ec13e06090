"""Archives that are our own, unpacked by every Python that is promised."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def unpack(archive: Path, into: Path) -> None:
    """Unpack an archive that we have made, into a folder."""
    with tarfile.open(archive) as packed:
        # An attribute, as ``extractall`` of Debian's Python 3.11.2 has no argument for it, and 3.12 wants to be told.
        packed.extraction_filter = lambda member, _: member
        packed.extractall(into)  # noqa: S202  it is ours
