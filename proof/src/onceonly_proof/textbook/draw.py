"""Writes an SVG for each picture, as the docs show them: ``python -m onceonly_proof.textbook.draw FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly_proof.campaign.result import save
from onceonly_proof.textbook import pictures, recordings

if TYPE_CHECKING:
    from collections.abc import Mapping


def stills() -> Mapping[str, str]:
    """Return the SVG of each picture by the name of its file: the frame that stands for the whole."""
    drawn = pictures.draw(recordings.read())
    return {f"{each.name}.svg": f"{each.frames[each.still].svg(alone=True)}\n" for each in drawn}


def main(folder: Path) -> None:
    """Write the files."""
    for name, svg in stills().items():
        save(folder / name, svg.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
