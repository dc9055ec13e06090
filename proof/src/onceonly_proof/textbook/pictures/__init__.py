"""The eight pictures, each made of frames that follow on each other. Pure: recordings in, SVG out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.textbook.pictures import (
    alignment,
    barriers,
    crash,
    increments,
    life_cycle,
    places,
    snapshot,
    two_phases,
)

if TYPE_CHECKING:
    from onceonly_proof.textbook.pictures.frames import Picture
    from onceonly_proof.textbook.recordings import Recordings


def draw(found: Recordings) -> tuple[Picture, ...]:
    """Return the pictures in the order of the textbook."""
    return (
        places.draw(found.counts),
        barriers.draw(found.crashes),
        alignment.draw(found.aligned),
        snapshot.draw(found.counts),
        increments.draw(found.growth),
        two_phases.draw(found.crashes),
        life_cycle.draw(found.crashes),
        crash.draw(found.crashes),
    )
