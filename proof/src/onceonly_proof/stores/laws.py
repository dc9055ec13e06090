"""The laws of a store: derive a class from `StoreLaws`, say how a store is made, and pytest has them all.

::

    class TestMyStore(StoreLaws):
        def fresh(self, folder): ...  # an empty store

The laws are what the decision log stands on: a name is given once, to whoever was first, whole and for good.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from onceonly import background
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.stores.port import RewritableStore, Store

NAME = "links/00000000000000000007.0.json"
_WRITERS = 8


class Broken(Exception):  # noqa: N818  a put that is broken off, not a fault of anybody
    """Raised before a put is published."""


class StoreLaws:
    """What every store must hold. ``fresh`` is the only thing that its author says."""

    def fresh(self, folder: Path) -> Store:
        """Return an empty store; ``folder`` is its own, where it needs one."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return self.fresh(tmp_path)

    def test_a_name_is_given_once_and_keeps_what_it_was_given_first(self, store: Store) -> None:
        assert put_once(store, NAME, b"first") == b"first"
        assert put_once(store, NAME, b"second") == b"first"
        assert store.get(NAME) == b"first"

    @pytest.mark.parametrize("size", [0, 1, 1 << 20])
    def test_what_is_read_is_whole(self, store: Store, size: int) -> None:
        data = b"x" * size
        assert put_once(store, NAME, data) == data
        assert store.get(NAME) == data

    def test_what_nobody_put_is_not_there(self, store: Store) -> None:
        assert store.get(NAME) is None
        assert store.list_names("links/") == []

    def test_as_many_at_once_as_it_says_are_all_answered(self, store: Store) -> None:
        names = [f"links/{number}.0.json" for number in range(store.abreast)]
        told = background.spread(
            "puts", lambda name: put_once(store, name, name.encode()), names, threads_max=64
        )
        assert told == [name.encode() for name in names]
        assert background.spread("gets", store.get, names, threads_max=64) == told

    def test_of_many_who_put_at_once_exactly_one_wins_and_all_are_told_who(self, store: Store) -> None:
        told: list[bytes | None] = []
        together = threading.Barrier(_WRITERS)

        def put(number: int) -> None:
            together.wait()
            told.append(put_once(store, NAME, b"%d" % number))

        threads = [threading.Thread(target=put, args=(number,)) for number in range(_WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(told) == _WRITERS
        assert set(told) == {store.get(NAME)}

    def test_a_put_that_is_broken_off_leaves_the_name_free(self, store: Store) -> None:
        def broken() -> None:
            raise Broken

        with pytest.raises(Broken):
            put_once(store, NAME, b"half", before_publish=broken)
        assert store.get(NAME) is None
        assert store.list_names("links/") == []
        assert put_once(store, NAME, b"whole") == b"whole"

    def test_a_listing_has_the_names_of_its_folder_alone(self, store: Store) -> None:
        for name in ("links/1.0.json", "links/1.1.json", "receipts/1.json"):
            put_once(store, name, b"")
        assert set(store.list_names("links/")) <= {"links/1.0.json", "links/1.1.json"}
        assert set(store.list_names("receipts/")) <= {"receipts/1.json"}

    def test_what_is_deleted_is_gone_and_deleting_it_again_is_nothing(self, store: Store) -> None:
        put_once(store, NAME, b"old")
        store.delete(NAME)
        store.delete(NAME)
        assert store.get(NAME) is None
        assert put_once(store, NAME, b"new") == b"new"

    def test_what_another_put_can_be_made_durable(self, store: Store) -> None:
        put_once(store, NAME, b"theirs")
        store.sync(NAME)
        assert store.get(NAME) == b"theirs"

    def test_an_address_for_people_ends_with_the_name(self, store: Store) -> None:
        assert store.where(NAME).endswith(NAME)

    def test_what_is_put_again_with_the_same_bytes_is_ours(self, store: Store) -> None:
        assert put_once(store, NAME, b"same") == b"same"
        assert put_once(store, NAME, b"same") == b"same"


class RewritableLaws(StoreLaws):
    """What a store must hold whose files may be replaced, too."""

    def test_what_is_replaced_is_what_is_read_and_listed_once(self, store: RewritableStore) -> None:
        store.replace("alive/1.json", b"one")
        store.replace("alive/1.json", b"two, and longer")
        assert store.get("alive/1.json") == b"two, and longer"
        assert store.list_names("alive/") == ["alive/1.json"]

    def test_what_is_replaced_has_its_name_from_then_on(self, store: RewritableStore) -> None:
        store.replace(NAME, b"theirs")
        assert put_once(store, NAME, b"ours") == b"theirs"

    @pytest.mark.parametrize("length", [0, 7, 8, 9, 1 << 20])
    def test_the_first_bytes_are_read_as_far_as_there_are_some(
        self, store: RewritableStore, length: int
    ) -> None:
        data = bytes(number % 251 for number in range(length))
        store.replace(NAME, data)
        assert store.get_first(NAME, 8) == data[:8]
        assert store.get_first("links/absent", 8) is None

    def test_folders_are_told_from_files(self, store: RewritableStore) -> None:
        for name in ("metadata", "offsets/7", "sources/0/7", "sources/1/0"):
            store.replace(name, b"")
        assert {"offsets", "sources"} <= set(store.list_folders(""))
        assert sorted(store.list_folders("sources/")) == ["0", "1"]
        assert store.list_folders("offsets/") == []
        assert store.list_folders("absent/") == []

    def test_all_that_is_below_is_named_however_deep(self, store: RewritableStore) -> None:
        for name in ("metadata", "state/0/1/2.delta", "state/0/1/.2.delta.tmp", "sources/0/0"):
            store.replace(name, b"{}")
        hidden = "state/0/1/.2.delta.tmp"
        assert set(store.tree("")) - {hidden} == {"metadata", "state/0/1/2.delta", "sources/0/0"}
        assert [name for name in store.tree("state/") if name != hidden] == ["state/0/1/2.delta"]
        assert store.tree("absent/") == []

    def test_a_store_that_is_fit_is_found_fit_any_number_of_times(self, store: RewritableStore) -> None:
        put_once(store, NAME, b"kept")
        for _ in range(2):
            store.prepare(["links/", "receipts/"])
        assert store.get(NAME) == b"kept"
