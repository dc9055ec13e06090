"""What a picture is made of, and the pieces that several of them have in common. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceonly.view import shapes
from onceonly.view.markup import Child, Markup, join
from onceonly.view.values import What

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly_proof.textbook.values import Made

WIDTH: Final = 800.0
_PITCH: Final = 21.0
"""From one row's circle to the next one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One step of a picture: its name on a button, a sentence or two, and what is drawn."""

    name: str
    told: str
    height: float
    parts: tuple[Child, ...]

    def svg(self, *, alone: bool = False) -> Markup:
        """Return what is drawn; ``alone`` makes it a file of its own."""
        return shapes.picture(f"{self.name}: {self.told}", WIDTH, self.height, self.parts, alone=alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture. ``still`` is the number of the frame that stands for it where nothing can be pressed."""

    name: str
    title: str
    told: str
    made: Made
    frames: tuple[Frame, ...]
    still: int

    @property
    def source(self) -> str:
        """Say from which run it is drawn."""
        versions = self.made.versions
        return (
            f"Drawn from a run recorded on {self.made.date}, at {self.made.commit}, with PySpark {versions['pyspark']} "
            f"and Python {versions['python']}."
        )


def box(x: float, y: float, width: float, height: float, title: str, lines: Sequence[str] = ()) -> Markup:
    """Return a box with a title and lines of text."""
    return join(
        shapes.bar("stripe", x, y, width, height, title),
        shapes.label(title, x + 10, y + 18, "strong"),
        *(shapes.label(line, x + 10, y + 38 + 17 * number) for number, line in enumerate(lines)),
    )


def rows(x: float, y: float, visible: Iterable[str], waiting: Iterable[str] = ()) -> Markup:
    """Return rows as circles: filled where a ``read_committed`` reader gets them, broken where they wait."""
    parts: list[Child] = []
    shown = [*((name, True) for name in visible), *((name, False) for name in waiting)]
    for number, (name, known) in enumerate(shown):
        told = f"row {name}: {'visible' if known else 'written, not visible'}"
        parts.append(shapes.mark(What.COMMITTED, x + number * _PITCH, y, told, known=known))
        parts.append(shapes.label(name, x + number * _PITCH, y + 19, "mid small dim"))
    return join(*parts)


def cross(x: float, y: float, told: str) -> Markup:
    """Return the mark of a kill."""
    return shapes.mark(What.CUT, x, y, f"killed: {told}")


def thousands(number: float) -> str:
    """Return a number as people write it."""
    return f"{number:,.0f}"
