"""The life of a sink's transaction, from begin to commit and abort. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from onceonly.view import shapes
from onceonly_proof.textbook.pictures.frames import Frame, Picture, box

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceonly.view.markup import Child
    from onceonly_proof.textbook.values import Crash, Crashes, Step

_HEIGHT: Final = 230.0
_BOXES: Final = {
    "open": (150.0, 60.0, "its rows are in the target, invisible"),
    "prepared": (480.0, 60.0, "flushed; its handle is a vote"),
    "committed": (480.0, 170.0, "visible, once"),
    "aborted": (150.0, 170.0, "gone; nobody saw it"),
}
_WIDE, _HIGH = 230.0, 50.0


class _Edge(NamedTuple):
    begin: tuple[float, float]
    end: tuple[float, float]
    word: str
    at: tuple[float, float]


_EDGES: Final = {
    "begin": _Edge((30, 92), (148, 92), "begin_transaction", (86, 85)),
    "write": _Edge((250, 36), (250, 58), "write", (272, 46)),
    "prepare": _Edge((380, 92), (478, 92), "pre_commit", (430, 85)),
    "commit": _Edge((600, 110), (600, 168), "commit", (626, 142)),
    "drop": _Edge((270, 110), (270, 168), "discard", (298, 142)),
    "abort": _Edge((480, 108), (382, 172), "abort", (456, 150)),
    "again": _Edge((792, 202), (712, 202), "commit again", (752, 195)),
}


def draw(found: Crashes) -> Picture:
    """Return the picture."""
    point = {each.point: each for each in found.crashes}
    swept, late = point["slot.after_prepare"], point["commit.after_handle"]
    frames = (
        _frame(
            "begin",
            ("begin",),
            "open",
            f"An attempt at a slot opens one transaction: {_which(found.commits, 'slot.begun')}.",
        ),
        _frame(
            "write",
            ("begin", "write"),
            "open",
            f"It writes its rows. Killed at slot.during_write, {_behind(point['slot.during_write'])}.",
        ),
        _frame(
            "prepare",
            ("begin", "write", "prepare"),
            "prepared",
            f"It is flushed, so that any process can commit it: {_which(found.commits, 'slot.prepared')}. "
            "The handle goes to the driver, as a vote.",
        ),
        _frame(
            "commit",
            ("begin", "write", "prepare", "commit"),
            "committed",
            f"After the decision the driver commits the handle: {_which(found.commits, 'handle.committed')}.",
        ),
        _frame(
            "commit again",
            ("begin", "write", "prepare", "commit", "again"),
            "committed",
            "Killed at commit.after_handle, the next start commits every handle of the decision again: "
            f"{_which(late.steps, 'handle.resolved', 2)}. "
            f"{len(late.after.visible)} rows are visible in the end, each once.",
        ),
        _frame(
            "abort",
            ("begin", "write", "prepare", "abort"),
            "aborted",
            "No decision names it: killed at slot.after_prepare, the next start fences and aborts what was open "
            f"({_count(swept.steps, 'swept')} transactions), and runs the epoch again.",
        ),
        _frame(
            "discard",
            ("begin", "write", "drop"),
            "aborted",
            "An attempt that fails drops its own transaction: "
            f"{_count(found.aborts, 'slot.failed')} attempts of one slot have failed in the run that aborts.",
        ),
    )
    return Picture(
        name="life-cycle",
        title="The life of a sink's transaction",
        told="A sink has five verbs: begin_transaction, write, pre_commit on executors; commit and abort on the "
        "driver. Each way below was taken in a recorded run.",
        made=found.made,
        frames=frames,
        still=3,
    )


def _frame(name: str, edges: Sequence[str], state: str, told: str) -> Frame:
    return Frame(name=name, told=told, height=_HEIGHT, parts=tuple(_parts(edges, state)))


def _parts(edges: Sequence[str], state: str) -> Iterator[Child]:
    for name, (x, y, words) in _BOXES.items():
        yield box(x, y, _WIDE, _HIGH, name, [words])
        if name == state:
            yield shapes.line(x, y + _HIGH, x + _WIDE, y + _HIGH, "line")
            yield shapes.label("now", x + _WIDE - 8, y + 18, "end strong")
    for name, edge in _EDGES.items():
        taken = name in edges
        if taken:
            yield shapes.arrow(edge.begin, edge.end, edge.word)
        else:
            yield shapes.line(*edge.begin, *edge.end, "idle")
        yield shapes.label(edge.word, *edge.at, "mid small strong" if taken else "mid small dim")


def _which(steps: Sequence[Step], kind: str, life: int = 1) -> str:
    found = [step for step in steps if step.kind == kind and step.life == life]
    names = " and ".join(f"slot {step.slot}{f' ({step.note})' if step.note else ''}" for step in found)
    return f"{kind} of {names}"


def _count(steps: Sequence[Step], kind: str) -> int:
    return sum(step.kind == kind for step in steps)


def _behind(crash: Crash) -> str:
    look = crash.between
    rows = (
        f"{len(look.waiting)} rows stand in the topic"
        if look.waiting
        else "none of them had reached the topic"
    )
    return f"{rows}, and readers see the {len(look.visible)} rows of chk-0 as before"
