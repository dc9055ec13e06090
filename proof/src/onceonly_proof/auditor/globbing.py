"""How other people's programs find the files of a folder of JSON lines: by a pattern, with the calls that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

Find: TypeAlias = Callable[[Path], Iterable[Path]]
"""Gives the files that are found in a folder now."""


def by_pattern(folder: Path) -> Iterable[Path]:
    """Find what ``pathlib`` does, which passes over no name, however it begins."""
    return folder.rglob("*.json")


def by_pyarrow(folder: Path) -> Iterable[Path]:
    """Find what a dataset of pyarrow does, which takes any ending, and no name that begins with a dot or ``_``."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    # With columns that are given it reads no file to learn them.
    columns = pa.schema([("key", pa.string()), ("value", pa.string())])
    return map(Path, ds.dataset(folder, columns, format="json").files) if folder.is_dir() else ()


GLOBBING: Final[Mapping[str, Find]] = {"glob": by_pattern, "pyarrow": by_pyarrow}
"""By the names that reports have for them."""
