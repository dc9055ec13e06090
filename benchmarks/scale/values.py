"""What was measured of growth, as it stands in the file, and the models that are fitted to it. No I/O."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotations at run time

import msgspec

VERSION = 1


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure at one size: the median of so many repeats, which were interleaved with those of other sizes."""

    figure: str
    at: Mapping[str, int]
    median: float
    least: float
    most: float
    repeats: int


class Scale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of results. ``load_before`` and ``load_after`` tell how quiet the machine was."""

    version: int
    started: str
    seconds: float
    load_before: float
    load_after: float
    machine: Mapping[str, str | int | float]
    versions: Mapping[str, str]
    points: tuple[Point, ...]


def decode(data: bytes) -> Scale:
    """Read them again. Raises ``msgspec.DecodeError`` where they are no such results."""
    return msgspec.json.decode(data, type=Scale)
