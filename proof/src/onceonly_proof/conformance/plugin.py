"""The plug-in that a suite registers itself when its tests are collected.

A test that is not for a sink is deselected, never skipped: it is counted, and pytest's header names the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly_proof.conformance.forker import Forker
from onceonly_proof.conformance.selection import reason_against
from onceonly_proof.conformance.subject import Subject

if TYPE_CHECKING:
    import pytest


class Plugin:
    """A plug-in that a suite registers itself when its tests are collected."""

    NAME = "onceonly-conformance"

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._forker: Forker | None = None

    def forker(self, suite: type[Subject]) -> Forker:
        """Return the process that forks the lives of a suite: one at a time, as tests run module by module."""
        if self._forker is None or self._forker.module != suite.__module__:
            self.pytest_sessionfinish()
            self._forker = Forker(suite)
        return self._forker

    def pytest_sessionfinish(self) -> None:
        """End that process."""
        if self._forker is not None:
            self._forker.close()
            self._forker = None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect what is not for a sink, and note why."""
        kept: list[pytest.Item] = []
        dropped: list[pytest.Item] = []
        reasons: dict[type[Any], dict[str, int]] = {}
        for item in items:
            suite = getattr(item, "cls", None)
            if not (isinstance(suite, type) and issubclass(suite, Subject)):
                kept.append(item)
                continue
            counts = reasons.setdefault(suite, {"": 0})
            given = getattr(getattr(item, "callspec", None), "params", {})
            reason = reason_against(suite, getattr(item, "function", None), given)
            counts[reason] = counts.get(reason, 0) + 1
            (dropped if reason else kept).append(item)
        items[:] = kept
        if dropped:
            config.hook.pytest_deselected(items=dropped)
        for suite, counts in reasons.items():
            self._lines.append(
                f"conformance of {suite.sink.__name__} ({suite.__name__}): {counts.pop('')} tests"
            )
            self._lines += [f"  {count} left out: {reason}" for reason, count in counts.items()]

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say in the header what is run and what is not."""
        return self._lines
