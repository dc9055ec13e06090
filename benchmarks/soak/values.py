"""What a soak has measured: values that are written as JSON."""

from __future__ import annotations

import msgspec

VERSION = 1


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over time: ``at_s`` since the query began, and what it was."""

    name: str
    unit: str
    at_s: tuple[float, ...]
    values: tuple[float, ...]


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    version: int
    started: str
    seconds: float
    interval_ms: int
    rate: int
    epochs: int
    rows_in: int
    rows_out: int
    load_before: float
    load_after: float
    machine: dict[str, str | int | float]
    versions: dict[str, str]
    series: tuple[Series, ...]
