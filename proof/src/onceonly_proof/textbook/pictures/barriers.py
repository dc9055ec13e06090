"""Barriers between the records of two partitions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.view import shapes
from onceonly.view.values import What
from onceonly_proof.textbook.pictures.frames import Frame, Picture

if TYPE_CHECKING:
    from onceonly.view.markup import Child
    from onceonly_proof.textbook.values import Crashes

_LEFT, _PITCH, _LANE = 110.0, 72.0, 84.0
_HEIGHT = 176.0


def draw(found: Crashes) -> Picture:
    """Return the picture, of the run that nobody has killed."""
    frames = [
        Frame(
            name=f"chk-{epoch}",
            told=f"offsets/{epoch} is written before a record of chk-{epoch} is read: {_ends(found, epoch)}. "
            "It is the barrier of both partitions at once; nobody is given a record behind it until "
            f"chk-{epoch} is done.",
            height=_HEIGHT,
            parts=tuple(_parts(found, epoch)),
        )
        for epoch in range(len(found.ranges))
    ]
    return Picture(
        name="barriers",
        title="Barriers between the records of two partitions",
        told="In other engines a barrier flows between the records. Spark has no barriers that flow: it writes the end "
        "of each range ahead, for all partitions in one file, and that is drawn here as a barrier.",
        made=found.made,
        frames=tuple(frames),
        still=1,
    )


def _ends(found: Crashes, epoch: int) -> str:
    ends = [end for _, end in found.ranges[epoch]]
    return ", ".join(f"partition {number} to offset {end}" for number, end in enumerate(ends))


def _parts(found: Crashes, now: int) -> list[Child]:
    parts: list[Child] = []
    for number, names in enumerate(found.partitions):
        y = 40 + number * _LANE
        parts.append(shapes.label(f"partition {number}", _LEFT - 30, y + 4, "end"))
        parts.append(shapes.line(_LEFT - 20, y, _LEFT + _PITCH * len(names), y))
        begin, end = found.ranges[now][number]
        if end > begin:
            parts.append(
                shapes.bar("run", _x(begin) - 24, y - 20, _x(end) - _x(begin) - 4, 40, f"range of chk-{now}")
            )
        for offset, name in enumerate(names):
            parts += _record(name, _x(offset), y, is_read=offset < begin, is_now=begin <= offset < end)
        for epoch in range(now + 1):
            x = _x(found.ranges[epoch][number][1]) - 36
            parts += [shapes.line(x, y - 24, x, y + 24, "line"),
                      shapes.mark(What.BARRIER, x, y - 24, f"barrier of chk-{epoch} in partition {number}"),
                      shapes.label(f"chk-{epoch}", x, y + 36, "mid small dim")]  # fmt: skip
    return parts


def _record(name: str, x: float, y: float, *, is_read: bool, is_now: bool) -> list[Child]:
    state = "done" if is_read else "in this epoch" if is_now else "not read yet"
    return [
        shapes.mark(What.COMMITTED, x, y, f"record {name}: {state}", known=is_read),
        shapes.label(name, x, y + 18, "mid small" if is_read or is_now else "mid small dim"),
    ]


def _x(offset: int) -> float:
    return _LEFT + _PITCH * offset
