"""What is put around a user's function for ``foreachBatch``, on a classic session and on Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.spark import kept_back, unused

if TYPE_CHECKING:
    from collections.abc import Callable


def is_ours(function: object) -> bool:
    """Say whether a function is one of ``onceonly.sink``; one with ``onceonly.epoch`` looks like any. Pure."""
    # By name: whoever writes by a function of their own does without that module.
    return type(function).__module__ == f"{__package__}.foreach_batch"


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a user's function that keeps no error of an epoch back, and leaves no sink alone. Pure."""
    return unused.watched(kept_back.guarded(function))
