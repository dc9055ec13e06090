"""Every store that comes with onceonly, held to the laws of a store; a hostile one among them."""

from __future__ import annotations

import time
from itertools import product
from typing import TYPE_CHECKING

import pytest
from tests.unit.hostile_store import Answer, HostileStore

from onceonly.errors import UnavailableError
from onceonly.stores.folder import LocalStore
from onceonly.stores.port import Store, put_once
from onceonly_proof.stores.laws import NAME, RewritableLaws, StoreLaws
from onceonly_proof.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)


class TestFolder(RewritableLaws):
    def fresh(self, folder: Path) -> Store:
        store = LocalStore(folder / "log")
        store.prepare(("links", "receipts"))
        return store


class TestMemory(RewritableLaws):
    def fresh(self, folder: Path) -> Store:
        return MemoryStore()


class TestLostAnswers(StoreLaws):
    def fresh(self, folder: Path) -> Store:
        return HostileStore([Answer.LOST, Answer.REFUSED] * 2)


class TestLateAnswers(StoreLaws):
    def fresh(self, folder: Path) -> Store:
        return HostileStore([Answer.LATE, Answer.NEVER, Answer.REFUSED])


class TestShortListings(StoreLaws):
    def fresh(self, folder: Path) -> Store:
        return HostileStore(unlisted=1)


MISLEADING = list(product([answer for answer in Answer if answer is not Answer.BUSY], repeat=3))


@pytest.mark.parametrize("answers", MISLEADING, ids="-".join)
def test_whatever_a_put_is_answered_what_it_returns_is_what_stands(answers: tuple[Answer, ...]) -> None:
    store = HostileStore(answers)
    ours = put_once(store, NAME, b"ours")
    theirs = put_once(store, NAME, b"theirs")
    assert ours == theirs == store.get(NAME) == b"ours"


@pytest.mark.parametrize("answers", MISLEADING, ids="-".join)
def test_whatever_a_put_is_answered_nobody_takes_anothers_name_for_its_own(
    answers: tuple[Answer, ...],
) -> None:
    store = HostileStore()
    put_once(store, NAME, b"theirs")
    store.answers.extend(answers)
    assert put_once(store, NAME, b"ours") == b"theirs"


def test_a_put_that_was_refused_before_it_began_is_no_put() -> None:
    store = HostileStore([Answer.BUSY])
    with pytest.raises(UnavailableError):
        put_once(store, NAME, b"ours")
    assert store.get(NAME) is None


def test_one_that_is_busy_after_a_lost_answer_is_asked_again() -> None:
    store = HostileStore([Answer.LOST, Answer.BUSY, Answer.BUSY])
    assert put_once(store, NAME, b"ours") == b"ours"
