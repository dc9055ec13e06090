"""A bench for each acceptance test."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import Bench

if TYPE_CHECKING:
    from onceonly_proof.embedded.kafka import EmbeddedKafka


# Files are dealt to processes in this order: one with few, long tests must not be left for the end.
_FIRST = ("test_verify.py", "test_main_job.py", "test_crash_points.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _FIRST.index(item.path.name) if item.path.name in _FIRST else len(_FIRST))


@pytest.fixture(scope="session")
def classes(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive of the classes that a job loads: a quarter of a life's time, and lives are what tests spend.

    Java without such an archive, or with another version's, goes on without it.
    """
    folder = tmp_path_factory.mktemp("classes")
    bench = Bench(kafka, folder)
    bench.feed([("k", "v")] * 10)
    # The broker may have started a moment ago, and know its coordinators a moment later.
    bench.args = ["--restart", "5", f"--java=-XX:ArchiveClassesAtExit={folder / 'job.jsa'} -Xlog:disable"]
    bench.run()
    return folder / "job.jsa"


@pytest.fixture
def bench(kafka: EmbeddedKafka, classes: Path, tmp_path: Path) -> Bench:
    return Bench(kafka, tmp_path, classes=classes)
