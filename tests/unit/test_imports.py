"""What modules import: no circles, and in a process of a query nothing of sources and sinks that it has not."""

from __future__ import annotations

import subprocess
import sys
from graphlib import TopologicalSorter

import grimp
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


@pytest.mark.parametrize("package", ["onceonly", "onceonly_proof"])
def test_no_modules_import_one_another_in_a_circle(package: str) -> None:
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    tuple(TopologicalSorter(imported).static_order())  # raises CycleError, which names them
