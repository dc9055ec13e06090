"""Input rows know themselves byte for byte, and the same seed feeds the same ones."""

from __future__ import annotations

import json
import random

import pytest

from onceonly_proof.campaign.plan import plan_round
from onceonly_proof.campaign.workload import Feeder, Workload, is_whole, row


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


class Kept(Feeder):
    """Keeps the keys of what it is to write."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.keys: list[str] = []

    def _produce(self, partition: int, key: str, value: bytes) -> int:
        self.keys.append(key)
        return 1

    def _flush(self) -> None: ...

    def _finish(self) -> int:
        return len(self.keys)


def test_cassandra_gets_a_key_once_in_an_epoch_and_again_in_later_ones_where_rows_are_seen_early() -> None:
    kept = Kept(plan_round(1, 1, "cassandra", query="unchanged", early=True).workload)
    most = 6 * kept._workload.per_epoch  # so many rows may wait, and be one epoch's
    for _ in range(4 * most):
        kept._write()
    assert all(len(set(kept.keys[at : at + most])) == most for at in range(0, 3 * most, most // 2))
    assert len(set(kept.keys)) == 2 * most
    assert not plan_round(1, 1, "cassandra").workload.in_turn
    assert not plan_round(1, 1, "redis", early=True).workload.in_turn
