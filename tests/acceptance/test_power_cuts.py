"""A small campaign of power cuts on real Spark. Without /dev/fuse and the right to mount, it fails and says so."""

from __future__ import annotations

import logging

import pytest

from onceonly_proof.power.run import PowerOptions, run_power
from onceonly_proof.power.task import Pipeline

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

# Every source, every way to keep state, both targets.
PIPELINES = (
    "files-none-files", "kafka-hdfs-files", "rate-none-files", "files-rocksdb-files", "kafka-changelog-files",
    "files-none-kafka", "kafka-rocksdb-kafka",
)  # fmt: skip
STATES = 12


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", PIPELINES)
def test_after_a_power_cut_each_row_is_there_once_and_nobody_is_needed(name: str) -> None:
    log = logging.getLogger(__name__)
    options = PowerOptions(pipelines=(Pipeline.named(name),), cuts=STATES, states=STATES // 2, seed=31)
    found = run_power(options, log.info).pipeline(name)
    assert (found.lost, found.doubled, found.bad, found.by_hand) == (0, 0, 0, 0), found.examples
    assert found.states >= STATES
