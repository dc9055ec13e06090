"""The options by which a query makes savepoints by itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceonly.errors import ConfigurationError
from onceonly.options import some_time

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY: Final = "onceonly.savepoint.every"
PLACE: Final = "onceonly.savepoint.place"
KEEP: Final = "onceonly.savepoint.keep"
OPTIONS: Final = (EVERY, PLACE, KEEP)
_KEEP: Final = "3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How often a query makes a savepoint, where, and how many of its newest ones stay."""

    every_s: float
    place: str
    keep: int


def keeping(given: Mapping[str, str]) -> Keeping | None:
    """Read the options, by their lower-case names; None where none is given. Raises ``ConfigurationError``."""
    named = [name for name in OPTIONS if given.get(name)]
    if not named:
        return None
    for name in (EVERY, PLACE):
        if name not in named:
            raise ConfigurationError(
                f"the option {name!r} is missing: {named[0]} is given",
                next_step=f"set {EVERY}, such as 6 hours, and {PLACE}, a folder or an address",
            )
    try:
        every_s = some_time(given[EVERY])
    except (ValueError, KeyError):
        raise ConfigurationError(
            f"the option {EVERY!r} cannot be {given[EVERY]!r}",
            next_step="use a time such as 6 hours, 7 days or 90m",
        ) from None
    keep = given.get(KEEP) or _KEEP
    if not keep.isdecimal() or not int(keep):
        raise ConfigurationError(
            f"the option {KEEP!r} cannot be {keep!r}", next_step="use a whole number, at least 1"
        )
    return Keeping(every_s=every_s, place=given[PLACE], keep=int(keep))
