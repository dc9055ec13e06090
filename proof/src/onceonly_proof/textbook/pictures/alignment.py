"""Aligned and unaligned counting. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.view import shapes
from onceonly.view.values import What
from onceonly_proof.textbook.pictures.frames import Frame, Picture, cross

if TYPE_CHECKING:
    from onceonly.view.markup import Child
    from onceonly_proof.textbook.values import Aligned

_LEFT, _HIGH, _TOP = 60.0, 110.0, 40.0
_COUNTS = 330.0


def draw(found: Aligned) -> Picture:
    """Return the picture."""
    kill = found.kills[0]
    epoch, (fast, slow) = kill.epoch, found.rows[kill.epoch]
    again = sum(found.unaligned.again.values())
    kills = " and ".join(f"in chk-{each.epoch} at {each.point}" for each in found.kills)
    lost = ", ".join(f"{count} of chk-{number}" for number, count in found.unaligned.again.items())
    frames = (
        Frame(
            name="two inputs",
            height=200,
            parts=tuple(_lanes(found, epoch, "")),
            told=f"chk-{epoch} has {fast} rows of partition 0 and {slow} of partition 1. Partition 0 is ahead: its "
            f"rows are there before the barrier of chk-{epoch - 1} has come in partition 1.",
        ),
        Frame(
            name="aligned",
            height=200,
            parts=tuple(_lanes(found, epoch, "aligned")),
            told=f"Aligned, the operator leaves those {fast} rows where they are until both barriers are there; its "
            f"snapshot of chk-{epoch - 1} holds what lies before them, and nothing else.",
        ),
        Frame(
            name="unaligned",
            height=200,
            parts=tuple(_lanes(found, epoch, "unaligned")),
            told=f"Unaligned, it counts the {fast} rows meanwhile, and its snapshot of chk-{epoch - 1} holds them too. "
            f"Killed at {kill.point}, the source goes back to the barrier and gives them again.",
        ),
        Frame(
            name="counts",
            height=_COUNTS,
            parts=tuple(_counts(found)),
            told=f"The same rows, killed {kills}: aligned each row was counted once; unaligned {again} rows were "
            f"counted again ({lost}), those that had overtaken a barrier.",
        ),
    )
    return Picture(
        name="alignment",
        title="Aligned and unaligned counting",
        told="Two operators count the same rows in one query and are killed in the same moments; one of them waits for "
        "the barriers of both inputs. Spark's own operators are aligned by construction; these keep state beside it.",
        made=found.made,
        frames=frames,
        still=3,
    )


def _lanes(found: Aligned, epoch: int, mode: str) -> list[Child]:
    (old_fast, old_slow), (fast, slow) = found.rows[epoch - 1], found.rows[epoch]
    scale = 560 / max(old_fast + fast, old_slow + slow)
    parts: list[Child] = []
    for number, (before, after) in enumerate(((old_fast, fast), (old_slow, slow))):
        y, cut = 34.0 + number * 60, 110 + before * scale
        shown = "writing" if mode == "unaligned" and number == 0 else "folded"
        parts += [
            shapes.label(f"partition {number}", 100, y + 18, "end"),
            shapes.bar("committing", 110, y, before * scale, 26, f"{before} rows of chk-{epoch - 1}"),
            shapes.bar(shown, cut, y, after * scale, 26, f"{after} rows of chk-{epoch}"),
            shapes.label(f"{before} rows of chk-{epoch - 1}", 110, y + 42, "small dim"),
            shapes.label(f"{after} rows of chk-{epoch}", cut + 8, y + 42, "small dim"),
            shapes.line(cut, y - 8, cut, y + 32, "line"),
            shapes.mark(What.BARRIER, cut, y - 8, f"barrier of chk-{epoch - 1} in partition {number}"),
        ]
    words = {
        "": "before the second barrier, the rows of partition 0 that lie behind the first one are there",
        "aligned": f"the {fast} rows wait: snapshot chk-{epoch - 1} = {old_fast} + {old_slow} rows, and all before",
        "unaligned": f"the {fast} rows are counted: snapshot chk-{epoch - 1} = {old_fast} + {old_slow} + {fast} rows, "
        "and all before",
    }
    return [*parts, shapes.label(words[mode], 110, 176, "strong" if mode else "")]


def _counts(found: Aligned) -> list[Child]:
    parts: list[Child] = []
    most = max(
        count for each in (found.aligned, found.unaligned) for _, *pair in each.windows for count in pair
    )
    pitch = (740 - _LEFT) / len(found.aligned.windows)
    for number, (mode, each) in enumerate((("aligned", found.aligned), ("unaligned", found.unaligned))):
        base = _TOP + _HIGH + number * (_HIGH + 44)
        over = sum(counted - expected for _, expected, counted in each.windows)
        parts.append(
            shapes.label(f"{mode}: {over or 'no'} rows counted again", _LEFT, base - _HIGH - 8, "strong")
        )
        parts.append(shapes.line(_LEFT, base, 760, base))
        for place, (name, expected, counted) in enumerate(each.windows):
            x, right = _LEFT + place * pitch, _HIGH * min(expected, counted) / (most * 1.15)
            told = f"window {name}: {expected} rows went in, {counted} were counted"
            parts.append(shapes.bar("writing", x, base - right, pitch * 0.7, right, told))
            if counted > expected:
                more = _HIGH * (counted - expected) / (most * 1.15)
                parts.append(shapes.bar("doubt", x, base - right - more, pitch * 0.7, more, told))
                parts.append(cross(x + pitch * 0.35, base - right - more / 2, "in this window's rows"))
            said = f"{counted} of {expected}" + (
                f", {counted - expected} twice" if counted > expected else ""
            )
            parts.append(shapes.label(f"{name}  {said}", x + pitch * 0.35, base + 15, "mid small"))
    return parts
