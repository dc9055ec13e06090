"""Epochs near the ends of the numbers that somebody may keep them in: Spark's own is a signed 64-bit one."""

from __future__ import annotations

import pytest
from tests.unit.disk_bench import World, memory, world

from onceonly.log import files

__all__ = ["memory", "world"]  # fixtures
ENDS = {"2^31": 2**31 - 3, "2^53": 2**53 - 3, "2^63": 2**63 - 6}


@pytest.mark.parametrize("end", ENDS)
def test_epochs_near_the_end_of_a_number_are_like_all_others(world: World, end: str) -> None:
    world.first = ENDS[end]
    world.last = world.first + 4
    world.history()
    world.settle()
    world.judge_settled()
    if end == "2^63":
        assert world.last == 2**63 - 1, "Spark's last"


def test_names_of_epochs_sort_as_their_numbers() -> None:
    epochs = [0, 9, 10, 2**31 - 1, 2**31, 10**12, 2**53, 2**53 + 1, 10**18, 2**63 - 1]
    for name in (
        lambda epoch: files.link(epoch, 0),
        files.receipt,
        lambda epoch: files.segment(epoch, epoch),
    ):
        assert sorted(map(name, epochs)) == list(map(name, epochs))
    assert [files.parse_link(files.link(epoch, 3)) for epoch in epochs] == [(epoch, 3) for epoch in epochs]
    assert [files.parse_receipt(files.receipt(epoch)) for epoch in epochs] == epochs
    assert [files.parse_segment(files.segment(0, epoch)) for epoch in epochs] == [
        (0, epoch) for epoch in epochs
    ]
