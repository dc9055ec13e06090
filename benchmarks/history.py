"""What full benchmarks have found so far: how the figures grew, and how far one hour is from the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotation
from typing import TYPE_CHECKING

import msgspec

from benchmarks.plan import FULL
from benchmarks.ratios import EVERY, ratios

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.values import Results


class Past(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One benchmark: when it began, of which commit, and its ratios."""

    started: str
    commit: str
    ratios: Mapping[str, float | None]


class History(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Those that were published, the oldest first."""

    runs: tuple[Past, ...] = ()


NONE = History()


def followed(history: History, results: Results) -> History:
    """Add results of the full size, however often; others change nothing."""
    if results.size != FULL.name:
        return history
    values, _ = ratios(results.runs, results.not_run, EVERY)
    own = Past(started=results.started, commit=results.versions.get("commit", ""), ratios=values)
    others = (each for each in history.runs if each.started != own.started)
    return History(runs=tuple(sorted((*others, own), key=lambda each: each.started)))


def known(runs: Iterable[Past], name: str) -> Sequence[float]:
    """Return a ratio's values, where it was measured."""
    return [value for each in runs if (value := each.ratios.get(name)) is not None]
