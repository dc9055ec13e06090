"""Input rows know themselves byte for byte, and the same seed feeds the same ones."""

from __future__ import annotations

import json
import random

import pytest

from onceonly_proof.campaign.workload import Workload, is_whole, row


def test_a_row_carries_its_place_and_its_checksum() -> None:
    text = row(17, 2, 5, "xx")

    assert is_whole(text)
    assert {**json.loads(text), "c": ""} == {"id": 17, "p": 2, "n": 5, "x": "xx", "c": ""}


def test_a_changed_row_is_not_whole() -> None:
    text = row(17, 2, 5, "xx")

    for changed in (text.replace(b"17", b"18"), text[:-1], text + b" ", text.replace(b"xx", b"xy")):
        assert not is_whole(changed)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"1", b'"c"', b'{"c":1}', b"\xff"])
def test_what_is_no_row_is_not_whole(text: bytes) -> None:
    assert not is_whole(text)


def test_workloads_differ_by_seed_and_are_the_same_for_one() -> None:
    drawn = [Workload.draw(random.Random(seed)) for seed in range(30)]

    assert drawn == [Workload.draw(random.Random(seed)) for seed in range(30)]
    assert len({each.partitions for each in drawn}) > 1
    assert len({each.bytes_max for each in drawn}) > 1
