"""Slots of a cluster: as the servers reckon them, rows by slot, and a name in each. Witnesses in the books."""

from __future__ import annotations

import time

import pytest
from redis import exceptions

from onceonly.errors import UnavailableError
from onceonly.sinks.redis.cluster import Cluster, owners
from onceonly.sinks.redis.options import RedisOptions
from onceonly.sinks.redis.slots import SLOTS, by_slot, names_of, slot_of
from onceonly.sinks.redis.target import Target
from onceonly.sinks.redis.witnesses import decoded, raised

OPTIONS = RedisOptions(host="h", port=1, database=0, tls=False, prefix="", timeout_s=1.0, tombstones_ms=1)


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        # CRC16 of the specification's own example, and what CLUSTER KEYSLOT of a server answers.
        ("123456789", 0x31C3),
        ("foo", 12182),
        ("bar", 5061),
        ("", 0),
        ("{foo}.a", 12182),
        ("x{foo}y{bar}", 12182),
        ("foo{}{bar}", 8363),
        ("foo{{bar}}zap", 4015),
        ("foo{bar}{zap}", 5061),
    ],
)
def test_a_slot_is_the_one_that_servers_reckon(key: str, slot: int) -> None:
    assert slot_of(key) == slot


def test_keys_of_one_slot_stand_together_in_their_order() -> None:
    keys = ["a", "{foo}2", "b", "{foo}1", "a", "foo"]
    order, bounds = by_slot(keys)
    groups = [[keys[at] for at in order[first:last]] for first, last in bounds]
    assert sorted(map(sorted, groups)) == [["a", "a"], ["b"], ["foo", "{foo}1", "{foo}2"]]
    assert ["{foo}2", "{foo}1", "foo"] in groups
    assert sorted(order) == list(range(6))
    assert by_slot([]) == ([], [])


@pytest.mark.parametrize("beginning", ["", "order:", "a{b", "ü}{"])
def test_there_is_a_name_in_every_slot(beginning: str) -> None:
    names = names_of(beginning)
    assert sorted(names) == list(range(SLOTS))
    assert all(name.startswith(beginning) and slot_of(name) == slot for slot, name in names.items())


def test_where_a_prefix_has_a_hash_tag_all_is_in_one_slot() -> None:
    assert set(names_of("{cart}:")) == {slot_of("cart")}


def test_what_the_books_have_of_witnesses_only_grows() -> None:
    none = decoded("")
    assert list(none) == [0] * SLOTS
    first = raised(none, [1, SLOTS - 1], 2**62 + 1)
    second = raised(decoded(first), [1, 2], 7)
    held = decoded(second)
    assert {slot: version for slot, version in enumerate(held) if version} == {
        1: 2**62 + 1, 2: 7, SLOTS - 1: 2**62 + 1,
    }  # fmt: skip
    assert len(second) < 1000


def test_a_node_that_does_not_know_its_name_is_the_one_that_was_asked() -> None:
    told = [[0, 1, [b"10.0.0.1", 7000, b"id"], [b"10.0.0.2", 7000, b"replica"]], [5, 5, [b"", 7001, b"id2"]]]
    assert owners(told, "cache.example") == {
        0: ("10.0.0.1", 7000), 1: ("10.0.0.1", 7000), 5: ("cache.example", 7001),
    }  # fmt: skip


@pytest.mark.parametrize("error", [exceptions.MovedError, exceptions.AskError])
def test_a_slot_that_moves_for_longer_than_it_is_tried_stops_no_query(
    monkeypatch: pytest.MonkeyPatch, error: type[exceptions.AskError]
) -> None:
    class Node:
        def execute_command(self, *_: object) -> list[object]:
            return [[0, SLOTS - 1, [b"h", 1, b"id"]]]

    monkeypatch.setattr(time, "sleep", lambda _: None)
    target = Target(OPTIONS)
    target.is_cluster = True
    monkeypatch.setattr(target, "_connection", lambda *_: Node())
    monkeypatch.setattr(Cluster, "_sent", lambda *_: [error("7 h:1")])
    with pytest.raises(UnavailableError, match="not settled yet which node has a slot"):
        target.drawn()
