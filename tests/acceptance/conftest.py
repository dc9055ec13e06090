"""A bench for each acceptance test."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import Bench

if TYPE_CHECKING:
    from onceonly.embedded.kafka import EmbeddedKafka


@pytest.fixture
def bench(kafka: EmbeddedKafka, tmp_path: Path) -> Bench:
    return Bench(kafka, tmp_path)
