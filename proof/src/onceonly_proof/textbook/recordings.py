"""The recordings that lie beside the code: ``recorded/*.json``."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from onceonly.errors import SetupError
from onceonly_proof.textbook.values import Aligned, Counts, Crashes, Growth

T = TypeVar("T", bound=msgspec.Struct)

FOLDER = Path(__file__).with_name("recorded")
_REPAIR = "install onceonly-proof again; in a checkout, run: python -m onceonly_proof.textbook.record"


class Recordings(msgspec.Struct, frozen=True, kw_only=True):
    """All of them."""

    crashes: Crashes
    counts: Counts
    growth: Growth
    aligned: Aligned


def read(folder: Path = FOLDER) -> Recordings:
    """Read them. Anywhere, any number of times.

    Raises:
        SetupError: one is missing, or is none of this version.
    """
    return Recordings(
        crashes=load(folder / "crashes.json", Crashes),
        counts=load(folder / "counts.json", Counts),
        growth=load(folder / "growth.json", Growth),
        aligned=load(folder / "aligned.json", Aligned),
    )


def load(path: Path, kind: type[T]) -> T:
    """Read one recording. Raises as ``read`` does."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise SetupError(f"the recording {path} cannot be read: {error}", next_step=_REPAIR) from error
