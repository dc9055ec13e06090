"""The page of faults names tests; each of them must be there, and each fault must name one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "faults.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
# What the page is there for: each must be the subject of at least one test that it names.
OWN = (
    "unit/test_disk_calls.py", "unit/test_disk_clock.py", "unit/test_disk_syscalls.py", "unit/test_disk_worlds.py",
    "unit/test_log_damage.py", "unit/test_log_epochs.py", "unit/test_log_golden.py", "integration/test_kafka_wire.py",
    "integration/test_kafka_cluster.py", "integration/test_kafka_world.py", "acceptance/test_epoch_timeout.py",
    "acceptance/test_executors.py", "acceptance/test_faults.py", "acceptance/test_faults_kafka.py",
    "acceptance/test_lost_transactions.py", "acceptance/test_drivers.py", "acceptance/test_stages.py",
)  # fmt: skip


def test_each_test_that_the_page_names_exists() -> None:
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 30
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not missing


def test_each_fault_names_a_test() -> None:
    faults = re.split(r"^- ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(faults) > 30
    assert not [fault for fault in faults if not NAMED.search(fault)]


def test_no_test_of_a_fault_is_left_out() -> None:
    named = {
        (path.removeprefix("tests/"), name) for path, name in NAMED.findall(PAGE.read_text(encoding="utf-8"))
    }
    for file in OWN:
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        for name in re.findall(r"^def (test_\w+)\(", text, re.MULTILINE):
            assert (file, name) in named or name == "test_the_current_format_has_golden_worlds", name
