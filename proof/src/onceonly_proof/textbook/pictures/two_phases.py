"""Two-phase commit, as a run that commits and one that aborts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from onceonly.view import shapes
from onceonly.view.values import What
from onceonly_proof.textbook.pictures.frames import Frame, Picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceonly.view.markup import Child
    from onceonly_proof.textbook.values import Crashes, Step

_WHO: Final = ("log", "driver", "slot 0", "slot 1", "Kafka")
_X: Final = {name: 70.0 + 165 * number for number, name in enumerate(_WHO)}
_ROW: Final = 27.0
_TOP: Final = 44.0


def draw(found: Crashes) -> Picture:
    """Return the picture."""
    commits, aborts = list(_told(found.commits)), list(_told(found.aborts))
    frames = [
        *_frames(commits, "commits", {
            "vote request": "VOTE_REQUEST is the plan: the driver hands it to the slots, which write into a "
            "transaction each.",
            "votes": "Each slot flushes its transaction, so that any process can commit it, and votes VOTE_COMMIT with "
            "its handle.",
            "decision": "All votes are in: GLOBAL_COMMIT is one link in the log, durable before anything is committed. "
            "This is the moment.",
            "commits": "Every handle is committed; readers see the rows from here on. The receipt says that it is "
            "done.",
        }),
        *_frames(aborts, "aborts", {
            "votes": "Another run: one slot votes VOTE_COMMIT, the other one fails as often as it is tried. That is "
            "VOTE_ABORT, and so is silence.",
            "decision": "GLOBAL_ABORT is a link, too: the prepared transaction is aborted, and no reader has seen a "
            "row of it.",
            "again": "The next start claims the epoch with an ABORT link of its own, runs it again, and commits it.",
        }),
    ]  # fmt: skip
    return Picture(
        name="two-phases",
        title="Two-phase commit",
        told="The words of the textbook, and what they are here: VOTE_REQUEST is a plan, VOTE_COMMIT a vote with a "
        "handle, VOTE_ABORT a slot that fails or is silent, GLOBAL_COMMIT and GLOBAL_ABORT are links of the decision "
        "log.",
        made=found.made,
        frames=tuple(frames),
        still=3,
    )


class _Line(NamedTuple):
    """One arrow, or several at once, of a step; ``part`` is the frame in which it comes."""

    part: str
    arrows: tuple[tuple[str, str], ...]
    word: str
    what: What | None


_BOTH: Final = (("driver", "slot 0"), ("driver", "slot 1"))
_LINES: Final = {
    "epoch.planned": ("vote request", _BOTH, "VOTE_REQUEST", What.PLAN),
    "slot.begun": ("vote request", (("{slot}", "Kafka"),), "begin, write", None),
    "slot.prepared": ("votes", (("{slot}", "Kafka"),), "pre-commit", None),
    "slot.voted": ("votes", (("{slot}", "driver"),), "VOTE_COMMIT", What.VOTE),
    "slot.failed": ("votes", (("{slot}", "driver"),), "VOTE_ABORT", What.LOST),
    "handle.committed": ("commits", (("driver", "Kafka"),), "commit of {slot}", What.COMMITTED),
    "handle.resolved": ("commits", (("driver", "Kafka"),), "commit of {slot}", What.COMMITTED),
    "handle.aborted": ("decision", (("driver", "Kafka"),), "abort", What.ABORT),
    "swept": ("decision", (("driver", "Kafka"),), "abort", What.ABORT),
    "receipt.persisted": ("commits", (("driver", "log"),), "receipt", What.RECEIPT),
}
"""By step: the frame, who tells whom, the word, the mark."""


def _told(steps: Sequence[Step]) -> Iterator[_Line]:
    """Yield the steps as arrows between who takes part; what another life does is the frame ``again``."""
    for step in steps:
        slot, is_again = f"slot {step.slot}", step.life > 1
        if step.kind == "link.persisted":
            is_commit = "COMMIT" in step.note
            word = "GLOBAL_COMMIT" if is_commit else "ABORT, a claim" if is_again else "GLOBAL_ABORT"
            mark = What.DECISION if is_commit else What.ABORT
            yield _Line("again" if is_again else "decision", (("driver", "log"),), word, mark)
        elif step.kind in _LINES:
            part, arrows, word, what = _LINES[step.kind]
            placed = tuple((begin.format(slot=slot), end) for begin, end in arrows)
            yield _Line("again" if is_again else part, placed, word.format(slot=slot), what)


def _frames(lines: Sequence[_Line], name: str, told: dict[str, str]) -> Iterator[Frame]:
    for part, words in told.items():
        fresh = [place for place, line in enumerate(lines) if line.part == part]
        upto = fresh[-1] + 1 if fresh else 0
        yield Frame(
            name=f"{name}: {part}",
            told=words,
            height=_TOP + _ROW * len(lines) + 16,
            parts=tuple(_parts(lines[:upto], set(fresh))),
        )


def _parts(lines: Sequence[_Line], fresh: set[int]) -> Iterator[Child]:
    bottom = _TOP + _ROW * len(lines)
    for name, x in _X.items():
        yield shapes.label(name, x, 22, "mid strong")
        yield shapes.line(x, 32, x, bottom)
    for number, line in enumerate(lines):
        y = _TOP + 16 + _ROW * number
        if number in fresh:
            yield shapes.bar("stripe", 6, y - 17, 788, _ROW, line.word)
        for begin, end in line.arrows:
            a, b = _X[begin], _X[end]
            yield shapes.arrow((a, y), (b, y), f"{begin} to {end}: {line.word}")
        begin, end = line.arrows[0]
        yield shapes.label(
            line.word,
            (_X[begin] + _X[end]) / 2,
            y - 5,
            "mid small strong" if number in fresh else "mid small",
        )
        if line.what is not None:
            yield shapes.mark(line.what, _X[begin], y, line.word)
