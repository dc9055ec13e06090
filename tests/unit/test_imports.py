"""What every process of every query imports: nothing of sources and sinks that this query has not."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "family"),
    [
        ("onceonly.spark.register", "onceonly.sources.journal"),
        ("onceonly.coordinator.query", "onceonly.sinks"),
    ],
)
def test_what_a_query_does_not_use_is_not_imported(module: str, family: str) -> None:
    program = f"import sys, {module}; print([each for each in sys.modules if each.startswith({family!r})])"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert found.stdout.strip() == "[]"
