"""Rows counted by window: what each window is to show, and in which epoch, worked out from what went in. Pure.

A row's time is its number, in seconds. Spark shows a window once, in the first epoch whose watermark has reached its
end, and drops rows that come for it later. The watermark of an epoch is the newest time in those before it, less a
delay. So a window comes epochs after its rows, and the auditor takes windows for what went in, each with the epoch in
which it is due. Nothing here comes from the sinks, or from what Spark notes of its watermarks.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from onceonly_proof.auditor import Input
from onceonly_proof.auditor.lookup import Facts
from onceonly_proof.campaign.queries import WINDOW, WINDOW_S, delay_s
from onceonly_proof.campaign.workload import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly_proof.auditor import World
    from onceonly_proof.campaign.task import Task

WINDOWS: Final = "windows"
"""The input partition that windows are; a window's position there is how many were due before it."""


class Due(NamedTuple):
    """A world as it is to be judged; how many rows that checks, and how many came too late for their window."""

    world: World
    rows: int
    late: int


def text(window: int, rows: int, checksum: int) -> bytes:
    """Return what stands for a window in a sink: its number, its rows, and the sum of their checksums."""
    return f'{{"id":{window},"rows":{rows},"sum":{checksum}}}'.encode()


def shown(numbers: Iterable[int], delay: int) -> int:
    """Count the windows that are shown when all of these rows are read, in whatever epochs, if none comes too late."""
    found = set(numbers)
    reached = max(found, default=0) - delay
    return len({each // WINDOW_S for each in found if _end(each // WINDOW_S) <= reached})


def due(task: Task, world: World) -> Due:
    """Return what a query shows of what went in: every row, or every window whose time has come."""
    if task.query != WINDOW:
        return Due(world, len(world.inputs), 0)
    return windowed(world, delay_s(task.per_epoch))


def windowed(world: World, delay: int) -> Due:
    """Return the world in which every window went in that some epoch is to show, in the epoch that shows it.

    A row that no epoch has read stays what it is, so that it is lost. A window that is still open is not due.
    """
    facts = Facts(world)
    read: dict[int, list[Input]] = {}
    unread: list[Input] = []
    for row in world.inputs:
        index = facts.index_of(row)
        if index is None:
            unread.append(replace(row, id=-1 - row.id))
        else:
            read.setdefault(index, []).append(row)
    found: list[Input] = []
    decisions = []
    standing: dict[int, list[bytes]] = {}
    rows = late = before = watermark = 0
    for index, decision in enumerate(facts.decisions):
        newest = watermark
        for row in read.get(index, ()):
            time = number_of(row.value)
            newest = max(newest, time - delay)
            if _end(time // WINDOW_S) <= before:
                late += 1
            else:
                standing.setdefault(time // WINDOW_S, []).append(row.value)
        first = len(found)
        for window in sorted(each for each in standing if _end(each) <= watermark):
            values = standing.pop(window)
            told = text(window, len(values), sum(map(zlib.crc32, values)))
            found.append(Input(window, WINDOWS, len(found), b"%d" % window, told))
            rows += len(values)
        decisions.append(replace(decision, ranges={**decision.ranges, WINDOWS: (first, len(found))}))
        before, watermark = watermark, newest
    return Due(replace(world, inputs=[*found, *unread], decisions=decisions), rows, late)


def _end(window: int) -> int:
    return (window + 1) * WINDOW_S
