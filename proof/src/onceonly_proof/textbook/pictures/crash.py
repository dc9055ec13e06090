"""A crash at any step: the recorded run that was killed there, and what readers saw. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceonly.view import shapes
from onceonly.view.values import What
from onceonly_proof.textbook.pictures.frames import Frame, Picture, cross, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceonly.view.markup import Child
    from onceonly_proof.textbook.values import Crash, Crashes, Look, Step

_ROW: Final = 21.0
_LOOK: Final = 64.0
_MARKS: Final = {
    "epoch.planned": What.PLAN,
    "slot.voted": What.VOTE,
    "handle.committed": What.COMMITTED,
    "handle.resolved": What.COMMITTED,
    "receipt.persisted": What.RECEIPT,
    "swept": What.ABORT,
    "handle.aborted": What.ABORT,
    "epoch.done": What.ENDED,
}
_WORDS: Final = {
    "epoch.planned": "planned",
    "slot.begun": "begun",
    "slot.prepared": "prepared",
    "slot.voted": "VOTE_COMMIT",
    "votes.collected": "all votes in",
    "handle.committed": "committed",
    "handle.resolved": "committed by recovery",
    "swept": "aborted by the sweep",
    "epoch.completed": "sinks told",
    "receipt.persisted": "receipt",
    "epoch.done": "done",
}


def draw(found: Crashes) -> Picture:
    """Return the picture."""
    frames = [
        Frame(
            name="all steps",
            told=f"{len(found.crashes)} runs, each killed at another step of chk-1. What readers see in between "
            "differs; in the end each row is there once.",
            height=60 + _ROW * len(found.crashes),
            parts=tuple(_overview(found.crashes)),
        ),
        *(_frame(each) for each in found.crashes),
    ]
    return Picture(
        name="crash",
        title="A crash at any step",
        told="One button for each step of the protocol: the whole process tree of a real job was killed there with "
        "SIGKILL. Who looks is an auditor that reads the topic as any read_committed consumer does.",
        made=found.made,
        frames=tuple(frames),
        still=0,
    )


def _overview(crashes: Sequence[Crash]) -> Iterator[Child]:
    for x, word in (
        (10, "killed at"),
        (190, "decided by then"),
        (320, "before"),
        (450, "between"),
        (640, "after"),
    ):
        yield shapes.label(word, x, 22, "strong")
    for number, each in enumerate(crashes):
        y = 46 + _ROW * number
        if number % 2 == 0:
            yield shapes.bar("stripe", 4, y - 14, 792, _ROW, each.point)
        between = each.between
        waiting = f", {len(between.waiting)} waiting" if between.waiting else ""
        yield shapes.label(each.point, 10, y)
        yield shapes.label(_decided(between), 190, y)
        yield shapes.label(f"{len(each.before.visible)} rows", 320, y)
        yield shapes.label(f"{len(between.visible)} rows{waiting}", 450, y)
        yield shapes.label(
            f"{len(each.after.visible)} rows, each once" if _once(each.after) else "NOT once", 640, y
        )


def _frame(each: Crash) -> Frame:
    between, after = each.between, each.after
    own = sorted(set(after.visible) - set(each.before.visible))
    new = len(set(between.visible) - set(each.before.visible))
    seen = f"{new} rows of chk-1" if new else "no row of chk-1"
    first = f" (in the start after a kill at {each.first})" if each.first else ""
    lives = [
        [step for step in each.steps if step.life == life]
        for life in sorted({step.life for step in each.steps})
    ]
    longest = max(len(_lines(steps)) for steps in lives)
    top = 30 + 3 * _LOOK
    told = (
        f"Killed{first}: {each.where}. The log says {_decided(between)}; readers saw {seen}, and {between.open} "
        f"transactions were open. After the next start all {len(own)} rows that were missing are there, each once."
    )
    return Frame(
        name=each.point,
        told=told,
        height=top + 26 + _ROW * longest,
        parts=(*_looks(each), *_columns(lives, top)),
    )


def _looks(each: Crash) -> Iterator[Child]:
    looks = (("before", each.before), ("between", each.between), ("after", each.after))
    for number, (name, look) in enumerate(looks):
        y = 10 + number * _LOOK
        yield shapes.bar("stripe", 6, y, 788, _LOOK - 6, f"{name} the crash")
        yield shapes.label(name, 16, y + 20, "strong")
        yield shapes.label(_files(look), 16, y + 40, "small dim")
        yield rows(330, y + 20, look.visible, look.waiting)
        if name == "between":
            yield cross(310, y + 20, each.point)
    yield shapes.label(
        "filled: visible to read_committed; broken line: written, not visible",
        330,
        18 + 3 * _LOOK,
        "small dim",
    )


def _columns(lives: Sequence[Sequence[Step]], top: float) -> Iterator[Child]:
    for number, steps in enumerate(lives):
        x = 16 + number * 790 / len(lives)
        yield shapes.label(f"life {steps[0].life}", x, top + 14, "strong")
        for place, (what, words) in enumerate(_lines(steps)):
            y = top + 34 + place * _ROW
            if what is not None:
                yield shapes.mark(what, x + 6, y - 4, words)
            yield shapes.label(words, x + 20, y)


def _lines(steps: Sequence[Step]) -> list[tuple[What | None, str]]:
    """Return the steps of one life as lines; several slots that do the same are one."""
    lines: list[tuple[What | None, str]] = []
    slots: dict[str, list[int]] = {}
    for step in steps:
        if step.slot >= 0:
            slots.setdefault(step.kind, []).append(step.slot)
    for step in steps:
        if step.kind == "killed":
            lines.append((What.CUT, f"killed at {step.note}"))
        elif step.kind == "link.persisted":
            lines.append((What.DECISION if "COMMIT" in step.note else What.ABORT, f"link: {step.note}"))
        else:
            words = _WORDS.get(step.kind, step.kind)
            if step.slot >= 0:
                words = f"{_slots(slots[step.kind])}: {words}"
            elif step.kind == "epoch.planned":
                words = f"planned: {step.note}"
            line = (_MARKS.get(step.kind), words)
            if line not in lines[-2:]:
                lines.append(line)
    return lines


def _slots(numbers: Sequence[int]) -> str:
    names = [str(number) for number in dict.fromkeys(numbers)]
    return f"slot{'s' if len(names) > 1 else ''} {' and '.join(names)}"


def _files(look: Look) -> str:
    """Say what of the epoch stands on disk."""
    words = [f"link {look.link}" if look.link else "no link"]
    words += ["receipt"] if look.receipt else []
    words += ["commits/1"] if look.noted else []
    return ", ".join(["offsets/1" if look.barrier else "no offsets/1", *words])


def _decided(look: Look) -> str:
    return {"": "nothing yet", "ABORT": "ABORT", "GLOBAL_ABORT": "ABORT"}.get(look.link, "GLOBAL_COMMIT")


def _once(look: Look) -> bool:
    return len(look.visible) == len(set(look.visible))
