"""What the user asked of the demo, and the error of a demo that could not be carried through."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly.model import Guarantee
from onceonly_proof.demo.data import EVENTS_MAX

if TYPE_CHECKING:
    from pathlib import Path

_EPOCHS_MIN = 40  # a query
_EPOCHS_PER_LIFE = 9
_EVENTS_PER_EPOCH_MIN = 20


class DemoError(OnceonlyError):
    """The demo did not come to its audit, so nothing can be told about the guarantee."""

    code = "DEMO"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the user asked for."""

    events: int = EVENTS_MAX
    kills: int = 8
    seed: int = 1
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    keep: Path | None = None
    picture: Path | None = None
    timeout_s: float = 1800.0

    def __post_init__(self) -> None:
        if not 1 <= self.events <= EVENTS_MAX:
            raise ConfigurationError(
                f"--events {self.events}: the data has {EVENTS_MAX} events",
                next_step=f"give a number from 1 to {EVENTS_MAX}",
            )
        if self.kills < 0 or self.events < self.epochs * _EVENTS_PER_EPOCH_MIN:
            raise ConfigurationError(
                f"--events {self.events} --kills {self.kills}: there are too few events to be killed in",
                next_step=f"give at least {self.epochs * _EVENTS_PER_EPOCH_MIN} events, or fewer kills",
            )

    @property
    def epochs(self) -> int:
        """How many epochs each query is to take: room for every kill."""
        return max(_EPOCHS_MIN, _EPOCHS_PER_LIFE * (self.kills + 1))

    @property
    def per_epoch(self) -> int:
        """How many events an epoch takes at most."""
        return math.ceil(self.events / self.epochs)
