"""Both ways of taking rows: by numpy and Arrow, and by loops that are compiled."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from onceonly.rows import compiled

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def taken(module: str, *, by_loops: bool) -> Iterator[None]:
    """Have rows taken so, in this process; fails where the loops of ``module`` cannot be had."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled._State, "is_on", by_loops)
        assert (compiled.loops(module) is not None) is by_loops
        yield
