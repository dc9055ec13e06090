"""What the handles of an epoch say of the partitions of their targets: rows, bytes, where the rows begin. Pure.

Nothing is worked out that they do not say. A sink is left out where one of its handles is silent, as a sum without it
would be wrong; and so is one that is not known here: no class is loaded by a checkpoint's word.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.settings.registry import BUILT_IN, given, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.model import Link, Vote
    from onceonly.ports.standing import Part
    from onceonly.settings.registry import SinkClass


def parts(link: Link) -> tuple[tuple[str, Part], ...]:
    """Return what a decision has in each partition of its targets, each with its sink's name, in the order of slots."""
    found: dict[tuple[str, str], Part] = {}
    silent: set[str] = set()
    for vote in link.output:
        own = _told(vote, link)
        if vote.rows and not own:
            silent.add(vote.sink)
        for part in own:
            key = vote.sink, part.partition
            found[key] = _together(found[key], part) if key in found else part
    return tuple((sink, part) for (sink, _), part in found.items() if sink not in silent)


def _told(vote: Vote, link: Link) -> list[Part]:
    """Return what its sink reads in a handle; nothing of one that it does not know how to read."""
    use = link.uses.get(vote.sink)
    if use is None or vote.handle is None:
        return []
    sink: SinkClass | None = BUILT_IN.get(use.sink) or given().get(use.sink)
    try:
        return list(load(sink).parts(vote.handle, vote.rows)) if sink is not None else []
    except Exception:  # noqa: BLE001  of a user's class, too: for want of this no page fails
        return []


def _together(one: Part, two: Part) -> Part:
    def both(of: Callable[[Part], int | None], put: Callable[[int, int], int]) -> int | None:
        first, second = of(one), of(two)
        return None if first is None or second is None else put(first, second)

    return replace(
        one,
        rows=both(lambda part: part.rows, int.__add__),
        bytes=both(lambda part: part.bytes, int.__add__),
        first=both(lambda part: part.first, min),
    )
