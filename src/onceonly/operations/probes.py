"""What a probe of ``onceonly doctor`` is: a question with a time-out, answered by a sentence and a next step."""

from __future__ import annotations

import enum
from concurrent.futures import wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import OnceonlyError, typed

if TYPE_CHECKING:
    from collections.abc import Callable


NEAR = 0.8
"""The share of the time that something is kept from which on a job that is down is told to hurry."""


class Health(enum.StrEnum):
    """What came of a probe."""

    WELL = "well"
    SICK = "sick"
    UNKNOWN = "unknown"
    UNASKED = "not asked"
    """Nobody has said how it is reached; no failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one probe says; ``next_step`` is empty where nothing is to be done."""

    category: str
    probe: str
    health: Health
    told: str = ""
    next_step: str = ""


class Sick(Exception):  # noqa: N818  what a probe has found
    """Raised by a probe that has found something."""

    def __init__(self, told: str, next_step: str) -> None:
        super().__init__(told)
        self.told, self.next_step = told, next_step


class Unasked(Exception):  # noqa: N818  what a probe lacks
    """Raised by a probe that could ask, if it were told how."""

    def __init__(self, told: str, next_step: str) -> None:
        super().__init__(told)
        self.told, self.next_step = told, next_step


def asked(category: str, probe: str, work: Callable[[], None], within_s: float) -> Finding:
    """Carry one probe out, within bounds. Any process; what it raises is what it has found."""
    answer = background.begin(f"onceonly-{probe}", work)
    wait([answer], within_s)
    health, told, next_step = Health.WELL, "", ""
    if not answer.done():
        health, told = Health.UNKNOWN, f"no answer within {within_s:g} s"
        next_step = "look at what it asks (a mount, a server, a network), or give it longer by --timeout"
    else:
        try:
            answer.result()
        except Sick as sick:
            health, told, next_step = Health.SICK, sick.told, sick.next_step
        except Unasked as unasked:
            health, told, next_step = Health.UNASKED, unasked.told, unasked.next_step
        except OnceonlyError as error:
            health, told, next_step = Health.SICK, error.what, typed(error)
        except Exception as error:  # noqa: BLE001  a probe that fails tells nothing
            health, told = Health.UNKNOWN, f"{type(error).__name__}: {error}"
            next_step = "report this"
    return Finding(category=category, probe=probe, health=health, told=told, next_step=next_step)
