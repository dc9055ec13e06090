"""The options of the console sink, those of Spark's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS_MAX = 1000
"""Rows travel through the driver's decision log: a few to look at, not a result."""

_KNOWN = ("numRows", "truncate")
_WIDTH = 20  # as Dataset.show


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """``rows`` shown of each slot; ``width`` of a cell in characters, 0 for whole values."""

    rows: int = 20
    width: int = _WIDTH

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ConsoleOptions:
        """Read the options. Pure; raises ``ConfigurationError`` that names a wrong one."""
        given = {name.lower(): value for name, value in options.items()}
        for name in given:
            if name not in {known.lower() for known in _KNOWN}:
                raise ConfigurationError(
                    f"The console sink knows no option {name}.", next_step=f"use {' or '.join(_KNOWN)}"
                )
        rows = given.get("numrows", "20")
        if not rows.isdigit() or int(rows) > ROWS_MAX:
            raise ConfigurationError(
                f"The option numRows is {rows!r}, and must be a number from 0 to {ROWS_MAX}.",
                next_step="change it",
            )
        truncate = given.get("truncate", "true").lower()
        if truncate not in {"true", "false"} and not truncate.isdigit():
            raise ConfigurationError(
                f"The option truncate is {truncate!r}, and must be true, false, or a number of characters.",
                next_step="change it",
            )
        width = int(truncate) if truncate.isdigit() else _WIDTH * (truncate == "true")
        return cls(rows=int(rows), width=width)
