"""Which rows no file of the target can hold, found before they are written. Executor; needs pyarrow.

Only where there is a place for dead letters: the rows are tried as they will be written, and halved until those that
are refused stand alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.families.sifting import sifted
from onceonly.sinks.files import partitions
from onceonly.sinks.files.formats import lines as rows
from onceonly.sinks.files.formats import stripes
from onceonly.sinks.files.paths import ROOM

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from onceonly.ports import Refused
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.paths import Room

    Try = Callable[[pa.RecordBatch], object]


def part(
    batch: pa.RecordBatch, options: FilesOptions, *, room: Room = ROOM
) -> tuple[pa.RecordBatch, list[Refused]]:
    """Return the rows that can be written, and those that cannot."""
    import numpy as np
    import pyarrow as pa

    refused = {each.row: each for each in _refused(batch, _folders(options, room), "NO_FOLDER")}
    places = np.setdiff1d(np.arange(batch.num_rows), np.fromiter(refused, np.int64, len(refused)))
    render = _render(options)
    if render is not None and len(places):
        some = batch.take(pa.array(places))
        refused |= {
            int(places[each.row]): replace(each, row=int(places[each.row]))
            for each in _refused(some, render, "NO_TEXT")
        }
    if not refused:
        return batch, []
    places = np.setdiff1d(np.arange(batch.num_rows), np.fromiter(refused, np.int64, len(refused)))
    return batch.take(pa.array(places)), [refused[row] for row in sorted(refused)]


def _refused(batch: pa.RecordBatch, attempt: Try, code: str) -> list[Refused]:
    if not batch.num_rows:
        return []

    def take(some: pa.RecordBatch) -> None:
        attempt(some)  # what it makes is written later

    _, found = sifted(batch, take, code=code)
    return [replace(each, why=each.why.removeprefix(f"{_WHO}: ").rstrip(".")) for each in found]


_WHO = "a row"


def _folders(options: FilesOptions, room: Room) -> Try:
    return lambda batch: list(partitions.split(batch, options.partition_by, who=_WHO, room=room))


def _render(options: FilesOptions) -> Try | None:
    """Return what tries to write rows; None for a format that holds any value of its types."""
    lines: dict[str, Try] = {
        "json": lambda batch: rows.json_lines(batch, options.texts, who=_WHO),
        "csv": lambda batch: rows.csv_lines(batch, options.texts, who=_WHO),
        "text": lambda batch: rows.text_lines(batch, who=_WHO),
        "orc": lambda batch: stripes.check(batch, who=_WHO),
    }
    write = lines.get(options.form)
    if write is None:
        return None

    def attempt(batch: pa.RecordBatch) -> object:
        # Of what is written, the partition columns are no part.
        return [write(some) for _, some in partitions.split(batch, options.partition_by, who=_WHO)]

    return attempt
