"""The runtime's own options, and what remains for the sink.

Spark lowers the names of options before a Python data source sees them, so both roads do: a sink always gets
lower-case names.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CHECKPOINT = "checkpointlocation"
GUARANTEE = "onceonly.guarantee"
SINK = "onceonly.sink"
ADOPT = "onceonly.adopt"
HISTORY = "onceonly.history"
COMMIT_TIMEOUT = "onceonly.commit.timeout"
_RUNTIME = (GUARANTEE, SINK, ADOPT, HISTORY, COMMIT_TIMEOUT)
_OURS = "onceonly."
# The name becomes a part of transactional ids, group names and file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user asked of the runtime, and the sink's own options. Never shown: it may hold secrets."""

    checkpoint: str
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    sink: str
    adopt: bool = False
    history: int = 100
    commit_timeout_s: float = 60.0
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two uses the same, for caches of a process."""
        return (
            self.checkpoint, self.guarantee, self.sink, self.history, self.commit_timeout_s,
            tuple(sorted(self.options.items())),
        )  # fmt: skip


def parse(
    options: Mapping[str, str],
    *,
    default_name: str,
    default_guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    claimed: Iterable[str] = (),
) -> Settings:
    """Split the options of a query into the runtime's and the sink's. Anywhere; pure.

    ``claimed`` are the names below ``onceonly.`` that the sink itself understands. Raises
    ``ConfigurationError`` that names the wrong option and, where there is one, the nearest known.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    known = (*_RUNTIME, *(name.lower() for name in claimed))
    for name in given:
        if name.startswith(_OURS) and name not in known:
            raise ConfigurationError(f"unknown option {name!r}", next_step=_suggest(name, known))
    # Spark hands the query's name on as if it were an option of the sink.
    given.pop("queryname", None)
    checkpoint = given.pop(CHECKPOINT, "")
    if not checkpoint:
        raise ConfigurationError(
            "the option 'checkpointLocation' is missing: decisions are kept beside the query's checkpoint",
            next_step="set .option('checkpointLocation', <path>) on the query, not in the session's settings",
        )
    return Settings(
        checkpoint=checkpoint,
        guarantee=_guarantee(given.pop(GUARANTEE, default_guarantee.value)),
        sink=_name(given.pop(SINK, default_name)),
        adopt=_flag(ADOPT, given.pop(ADOPT, "false")),
        history=int(_number(HISTORY, given.pop(HISTORY, "100"), minimum=1, whole=True)),
        commit_timeout_s=_number(COMMIT_TIMEOUT, given.pop(COMMIT_TIMEOUT, "60"), minimum=0.001),
        options=given,
    )


def _suggest(name: str, known: Iterable[str]) -> str:
    # The common beginning would make everything look near.
    short = {each.removeprefix(_OURS): each for each in known}
    near = difflib.get_close_matches(name.removeprefix(_OURS), list(short), n=1)
    listed = ", ".join(sorted(known))
    return f"did you mean {short[near[0]]!r}?" if near else f"use one of {listed}"


def _guarantee(text: str) -> Guarantee:
    try:
        return Guarantee(text.strip().lower())
    except ValueError:
        raise ConfigurationError(
            f"the option {GUARANTEE!r} cannot be {text!r}",
            next_step="use one of " + ", ".join(each.value for each in Guarantee),
        ) from None


def _name(text: str) -> str:
    if _NAME.fullmatch(text):
        return text
    raise ConfigurationError(
        f"the option {SINK!r} cannot be {text!r}",
        next_step="use up to 32 letters, digits, '-' or '_'",
    )


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() in {"true", "false"}:
        return text.strip().lower() == "true"
    raise ConfigurationError(f"the option {name!r} cannot be {text!r}", next_step="use true or false")


def _number(name: str, text: str, *, minimum: float, whole: bool = False) -> float:
    try:
        value = float(int(text)) if whole else float(text)
    except ValueError:
        value = float("nan")
    # A comparison that a NaN fails, too.
    if minimum <= value < float("inf"):
        return value
    kind = "a whole number" if whole else "a number of seconds"
    raise ConfigurationError(
        f"the option {name!r} cannot be {text!r}", next_step=f"use {kind}, at least {minimum:g}"
    )
