"""What one attempt at one slot gives to the driver. A frozen value; it travels by pickle, or as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from onceonly.model import Vote  # noqa: TC001  the codec reads the annotations at run time


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """What one attempt at one slot gives: its vote, and that of its dead letters where there are some.

    ``refused`` says what is wrong with the first of them. ``beyond`` says that there are more of them than an epoch may
    have: then nothing is prepared, the votes only count, and the driver decides nothing. ``diverted`` are the votes for
    letters of rows that were diverted before, where something of their slot is written again.
    """

    vote: Vote
    letters: Vote | None = None
    refused: str = ""
    diverted: tuple[Vote, ...] = ()
    beyond: bool = False

    @property
    def votes(self) -> tuple[Vote, ...]:
        return (self.vote, *([self.letters] if self.letters else []), *self.diverted)
