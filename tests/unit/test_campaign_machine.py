"""What a report says of its machine is what others can tell something from."""

from __future__ import annotations

import pytest

from onceonly_proof.campaign import machine


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("6.18.44-generic-builder7", "Linux 6.18, x86_64"),
        ("6.18", "Linux 6.18, x86_64"),
        ("24", "Linux 24, x86_64"),
        ("unknown", "Linux, x86_64"),
    ],
)
def test_a_system_is_named_without_its_kernels_build(release: str, said: str) -> None:
    assert machine.system("Linux", release, "x86_64") == said
    assert str(machine.machine()["system"]).count("-") == 0


def test_versions_name_the_code_that_runs() -> None:
    assert {"python", "commit", "onceonly"} <= set(machine.versions())
