"""Printing what executors have sampled. Driver."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceonly.model import Handle

# Slots are committed by several threads; a table is printed whole.
_lock = threading.Lock()


def show(handle: Handle) -> None:
    """Print the sample of one slot as a small table to standard output."""
    data = handle.data
    columns: list[str] = json.loads(str(data["columns"]))
    rows: list[list[str]] = json.loads(str(data["rows"]))
    text = table(columns, rows)
    more = int(data["count"]) - len(rows)
    note = f"only showing the first {len(rows)} of {data['count']} rows\n" if more else ""
    with _lock:
        sys.stdout.write(f"-- chk-{data['epoch']}, slot {data['slot']}\n{text}{note}")
        sys.stdout.flush()


def table(columns: list[str], rows: list[list[str]]) -> str:
    """Draw a table as ``Dataset.show`` does. Pure."""
    lines = [columns, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    rule = "+" + "+".join("-" * width for width in widths) + "+\n"

    def draw(line: list[str]) -> str:
        cells = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        return "|" + "|".join(cells) + "|\n"

    return rule + draw(columns) + rule + "".join(map(draw, rows)) + rule
