"""The guarantee of a decision whose sinks may promise different things. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee

if TYPE_CHECKING:
    from collections.abc import Collection


def common(guarantees: Collection[Guarantee]) -> Guarantee:
    """Return it. Raises ``ConfigurationError`` where one try only stands beside many."""
    kinds = set(guarantees)
    if len(kinds) == 1:
        return kinds.pop()
    if Guarantee.AT_MOST_ONCE in kinds:
        raise ConfigurationError(
            "Under one decision, a sink is at-most-once and another one is not: one commit would be tried once "
            "only, and the others again and again.",
            next_step="Set onceonly.guarantee of all of them to at-most-once, or of none.",
        )
    return Guarantee.EXACTLY_ONCE
