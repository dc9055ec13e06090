"""The three places of a pipeline, and what each promises. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.view import shapes
from onceonly_proof.textbook.pictures.frames import Frame, Picture, box, cross
from onceonly_proof.textbook.pictures.snapshot import of_epoch, ruler, values

if TYPE_CHECKING:
    from onceonly.view.markup import Child
    from onceonly_proof.textbook.values import Counts

_HEIGHT = 352.0
_PLACES = ("source", "inside", "sink")


def draw(found: Counts) -> Picture:
    """Return the picture, of the run that counts page views and was killed twice."""
    first, second, last = found.lives
    start, end = found.barriers[0], found.barriers[1]
    told = {
        "source": f"The source replays. Killed at {first.killed_at} and at {second.killed_at}, the job has begun again "
        f"at offset {start} each time: the range {start} to {end} stood on disk before a record of it was read.",
        "inside": "Spark's state goes back to the same cut as the offsets. What was counted beyond it, "
        f"{values(first.counted)}, was in memory and is gone; it is counted again from the snapshot, once.",
        "sink": "onceonly makes each epoch visible once. chk-1 was begun three times and decided once, by a link on "
        f"disk ({', '.join(second.links)}); its {of_epoch(last.results)} results are there since the start after that, "
        "which committed what was decided.",
    }
    whole = "Exactly once from end to end needs all three: a source that replays, a state that goes back with it, "
    frames = [Frame(name="all three", told=f"{whole}and a sink that shows each epoch once.", height=_HEIGHT,
                    parts=tuple(_parts(found, _PLACES)))]  # fmt: skip
    frames += [
        Frame(name=place, told=told[place], height=_HEIGHT, parts=tuple(_parts(found, (place,))))
        for place in _PLACES
    ]
    return Picture(
        name="places",
        title="The three places of a pipeline",
        told="Source, inside and sink: each keeps a promise of its own, and a reader sees what all three keep "
        "together.",
        made=found.made,
        frames=tuple(frames),
        still=0,
    )


def _parts(found: Counts, shown: tuple[str, ...]) -> list[Child]:
    parts: list[Child] = []
    promises = {
        "source": "a range gives the same rows again",
        "inside": "state and offsets are cut at one place",
        "sink": "each epoch is visible once",
    }
    for number, place in enumerate(_PLACES):
        y = 10.0 + number * 114
        lines = [promises[place]] if place in shown else []
        parts.append(box(10, y, 250, 100, {"inside": "inside: Spark"}.get(place, f"{place}: Kafka"), lines))
        if number:
            parts.append(shapes.arrow((135, y - 14), (135, y - 1), "rows flow"))
        if place in shown:
            parts += {"source": _source, "inside": _inside, "sink": _sink}[place](found, y)
        else:
            parts.append(shapes.label("…", 290, y + 54, "dim"))
    return parts


def _source(found: Counts, y: float) -> list[Child]:
    x = ruler(found, 330, 360)
    parts: list[Child] = []
    for number, life in enumerate(found.lives):
        row = y + 12 + number * 30
        parts.append(shapes.label(f"life {number + 1}", 320, row + 12, "end dim"))
        for begin, end in life.read:
            told = f"life {number + 1} read offsets {begin} to {end}"
            parts.append(shapes.bar("writing", x(begin), row, x(end) - x(begin), 16, told))
        end = life.read[-1][1]
        if life.killed_at:
            parts.append(cross(x(end) + 10, row + 8, life.killed_at))
        parts.append(shapes.label(f"to {end}", x(end) + 22, row + 12))
    return parts


def _inside(found: Counts, y: float) -> list[Child]:
    first = found.lives[0]
    lines = [
        ("after chk-0, on disk", values(found.states[0]), False),
        ("beyond it, in memory", values(first.counted), True),
        ("after chk-1, on disk", values(found.states[1]), False),
    ]
    parts: list[Child] = []
    for number, (name, value, lost) in enumerate(lines):
        row = y + 22 + number * 30
        parts += [shapes.label(name, 290, row, "dim"), shapes.label(value, 430, row, "strong")]
        if lost:
            parts += [
                cross(622, row - 4, first.killed_at),
                shapes.label("gone; counted again", 638, row, "dim"),
            ]
    return parts


def _sink(found: Counts, y: float) -> list[Child]:
    parts: list[Child] = []
    for number, life in enumerate(found.lives):
        row = y + 22 + number * 30
        count = of_epoch(life.results)
        seen = f"{count} results of chk-1 visible"
        links = f"decided: {life.links[-1]}" if life.links else "nothing decided"
        parts.append(shapes.label(f"life {number + 1}", 320, row, "end dim"))
        parts += [shapes.label(links, 340, row), shapes.label(seen, 570, row, "strong" if count else "dim")]
        if life.killed_at:
            parts.append(cross(556, row - 4, life.killed_at))
    return parts
