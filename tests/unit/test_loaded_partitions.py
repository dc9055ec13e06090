"""Folders of a table's partitions have names that file systems and buckets take."""

from __future__ import annotations

from onceonly.families.loaded.partitions import folder


def test_folders_have_hives_names_for_people() -> None:
    assert folder({"day": "2026-11-21", "shop": None}) == "day=2026-11-21/shop=__HIVE_DEFAULT_PARTITION__"


def test_a_name_that_is_too_long_is_shortened_alone() -> None:
    day, shop = folder({"day": "1", "shop": "x" * 300}).split("/")
    assert day == "day=1"
    assert len(shop) == 41


def test_many_names_leave_room_in_the_key_of_a_bucket() -> None:
    names = [f"column{number}" for number in range(6)]
    one, other = (folder(dict.fromkeys(names, letter * 150)) for letter in "xy")
    assert len(one) < 300
    assert len(one.split("/")) == len(set(one.split("/"))) == 6
    assert one != other
