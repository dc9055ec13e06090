"""A worker keeps the memory of a batch for the next one, unless its user has said what malloc is to do."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

MIB = 1 << 20
BLOCKS = 5
BLOCK_MIB = 4
TIMES = 10

SCRIPT = f"""
import resource
from onceonly.spark.processes import memory

print(memory.keep())
for number in range({TIMES + 2}):
    if number == 2:  # the first ones find malloc as it starts
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [b"x" * ({BLOCK_MIB * MIB} + each) for each in range({BLOCKS})]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
FAULTS_WITHOUT = TIMES * BLOCKS * BLOCK_MIB * MIB // os.sysconf("SC_PAGESIZE")

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's malloc that is told")


def _faults(**environment: str) -> tuple[bool, int]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
        | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    kept, faults = done.stdout.split()
    return kept == "True", int(faults)


def test_what_a_batch_needed_is_not_faulted_in_again_for_the_next_one() -> None:
    kept, faults = _faults()
    assert kept
    assert faults < FAULTS_WITHOUT / 20


def test_yarns_bound_for_arenas_says_nothing_of_what_is_kept() -> None:
    kept, faults = _faults(MALLOC_ARENA_MAX="4")
    assert kept
    assert faults < FAULTS_WITHOUT / 20


@pytest.mark.parametrize(
    "environment",
    [
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"MALLOC_MMAP_THRESHOLD_": "131072"},
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"},
    ],
    ids=str,
)
def test_what_a_user_says_of_malloc_stays(environment: dict[str, str]) -> None:
    kept, faults = _faults(**environment)
    assert not kept
    assert faults > FAULTS_WITHOUT / 2
