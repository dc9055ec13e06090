"""Spark's Python workers that are killed in a run: what their attempts have begun is a part of what a cut leaves.

Spark tries such a task again in another worker, which no start of the query tells of.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from onceonly_proof.power.lives import Life
    from onceonly_proof.power.outcome import Found

POINTS = ("slot.before_begin", "slot.during_write", "slot.before_prepare", "slot.after_prepare")
"""The steps of an attempt in which its worker dies."""
PASSES_MAX = 6
"""At the latest at so many passes: a run of few epochs has about twice as many slots."""


def death(draw: random.Random) -> str:
    """Return a drawn death, as a failpoint is armed with it."""
    return f"{draw.choice(POINTS)}=kill@{draw.randint(1, PASSES_MAX)}"


@contextmanager
def dying(life: Life, found: Found, death: str) -> Iterator[None]:
    """Let a worker die in what a life runs meanwhile, and count whether it did; none where ``death`` is empty."""
    before = life.deaths()
    if death:
        life.let_die(death)
    try:
        yield
    finally:
        life.spare()
        found.deaths += life.deaths() - before
