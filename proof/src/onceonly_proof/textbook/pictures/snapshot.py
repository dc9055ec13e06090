"""A snapshot, a crash and the return. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onceonly.view import shapes
from onceonly.view.values import What
from onceonly_proof.textbook.pictures.frames import Frame, Picture, box, cross

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceonly.view.markup import Child
    from onceonly_proof.textbook.values import Counts

_HEIGHT = 250.0
_LEFT, _LONG = 120.0, 640.0


def ruler(found: Counts, left: float, long: float) -> Callable[[int], float]:
    """Return where an offset is drawn."""
    return lambda offset: left + long * offset / found.records


def values(counts: Mapping[str, int]) -> str:
    """Return counts as the textbook writes them: ``(App01, 5000) (App02, 4000)``."""
    return " ".join(f"({app}, {count})" for app, count in sorted(counts.items()))


def draw(found: Counts) -> Picture:
    """Return the picture."""
    first, second, last = found.lives
    cut, end = found.barriers[0], found.barriers[1]
    at = first.read[-1][1]
    before, after = found.states[0], found.states[1]
    memory = {app: before[app] + count for app, count in first.counted.items()}
    twice = {app: count + after[app] - before[app] for app, count in memory.items()}
    each = ", ".join(f"of {app} {views} views" for app, views in found.views.items())
    frames = (
        _frame(
            found,
            "snapshot",
            f"chk-0 has read to offset (0, {cut}), and Spark keeps both in one cut: the offset and the counts, "
            f"PV {values(before)}. (A record tells {each}.)",
            cut,
            before,
            before,
            0,
        ),
        _frame(
            found,
            "range",
            f"Before a record of chk-1 is read, its end stands on disk: offsets/1 says (0, {end}).",
            cut,
            before,
            before,
            0,
            ahead=True,
        ),
        _frame(
            found,
            "crash",
            f"The job is killed when it has read to (0, {at}). In memory PV was {values(memory)}; on disk are the "
            f"barriers {_list(first.barriers)} and the commits {_list(first.noted)}.",
            at,
            memory,
            before,
            0,
            ahead=True,
            killed=first.killed_at,
        ),
        _frame(
            found,
            "return",
            f"The next life begins at (0, {cut}) with PV {values(before)}. Had only the offset gone back, PV would end "
            f"as {values(twice)}: records counted twice.",
            cut,
            before,
            before,
            0,
            ahead=True,
        ),
        _frame(
            found,
            "decided",
            f"It has read to (0, {end}), chk-1 is decided ({second.links[-1]}), and it is killed again, "
            f"at {second.killed_at}: nothing of chk-1 is visible yet.",
            end,
            after,
            before,
            0,
            ahead=True,
            killed=second.killed_at,
        ),
        _frame(
            found,
            "end",
            f"The third life commits what was decided. PV is {values(after)}, and each result is visible once.",
            end,
            after,
            after,
            of_epoch(last.results),
        ),
    )
    return Picture(
        name="snapshot",
        title="A snapshot, a crash, and the return",
        told="Page views (PV) by app, counted from partition 0. Offset and state are one cut, so a crash counts "
        "nothing twice.",
        made=found.made,
        frames=frames,
        still=2,
    )


def _frame(  # noqa: PLR0913  what stands at one moment
    found: Counts, name: str, told: str, at: int, memory: Mapping[str, int], disk: Mapping[str, int], visible: int,
    *, ahead: bool = False, killed: str = "",
) -> Frame:  # fmt: skip
    x, (cut, end) = ruler(found, _LEFT, _LONG), found.barriers[:2]
    parts: list[Child] = [
        shapes.label("partition 0", _LEFT - 14, 56, "end"),
        shapes.bar("folded", x(0), 44, x(end) - x(0), 18, f"offsets 0 to {end}"),
        shapes.bar("writing", x(0), 44, x(at) - x(0), 18, f"read to offset {at}"),
        shapes.mark(What.BARRIER, x(cut), 34, f"barrier of chk-0: offset {cut}"),
        shapes.label(f"(0, {cut})", x(cut), 20, "mid"),
        shapes.line(x(cut), 28, x(cut), 70),
        shapes.label(f"read to (0, {at})", x(at) - 4, 82, "end strong"),
    ]
    if ahead or at == end:
        parts += [
            shapes.mark(What.BARRIER, x(end) - 4, 34, f"barrier of chk-1, written ahead: offset {end}"),
            shapes.label(f"(0, {end})", x(end), 20, "mid"),
            shapes.line(x(end), 28, x(end), 70),
        ]
    if killed:
        parts += [
            cross(x(at) + 8, 78, killed),
            shapes.label(f"killed at {killed}", x(at) - 4, 100, "end dim small"),
        ]
    gone = "in memory, gone" if killed and memory != disk else "in memory"
    parts += [
        box(10, 116, 250, 100, "the task: " + gone, [f"{app}: {n}" for app, n in memory.items()]),
        box(
            275,
            116,
            250,
            100,
            "the snapshot that a start takes",
            [f"{app}: {n}" for app, n in disk.items()],
        ),
        box(540, 116, 250, 100, "visible to readers", _seen(found, visible)),
    ]
    return Frame(name=name, told=told, height=_HEIGHT, parts=tuple(parts))


def _seen(found: Counts, of_last: int) -> list[str]:
    """Return the results of chk-0, and those of chk-1 where they were visible by then."""
    results = [json.loads(each) for each in found.lives[-1 if of_last else 0].results]
    epochs = sorted({each["epoch"] for each in results})
    return [
        f"chk-{epoch}: {values({each['app']: each['pv'] for each in results if each['epoch'] == epoch})}"
        for epoch in epochs
    ]


def of_epoch(results: tuple[str, ...]) -> int:
    """Count the results of chk-1."""
    return sum(json.loads(each)["epoch"] == 1 for each in results)


def _list(epochs: tuple[int, ...]) -> str:
    return " and ".join(f"chk-{epoch}" for epoch in epochs)
