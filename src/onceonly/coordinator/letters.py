"""Dead letters kept apart from rows: of their own sink, and of the query's others. Driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.executor.dead_letters import refuse_same_target
from onceonly.model import letters_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onceonly.coordinator.coordinator import Participant


def keep_apart(
    name: str, participants: Mapping[str, Participant], known: Collection[str], *, is_checked: bool
) -> None:
    """See that no letters get among rows: those of their own sink, or of one that was checked before.

    ``name`` is the sink that is about to be checked, or was; ``known`` are those that were before. Raises
    ``ConfigurationError``.
    """
    own = participants[name].sink
    for other, each in participants.items():
        if letters_of(name) == other:
            refuse_same_target(name, own, other, each.sink, is_checked=is_checked)
        elif other not in known or letters_of(other) == name:
            continue  # told when that one is checked
        elif letters_of(name) is not None and letters_of(other) is None:
            refuse_same_target(name, own, other, each.sink, is_checked=False)
        elif letters_of(name) is None and letters_of(other) is not None:
            refuse_same_target(other, each.sink, name, own, is_checked=False)
