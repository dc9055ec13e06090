"""Who works on a checkpoint where there are no locks: a heartbeat, for people."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from onceonly import events
from onceonly.errors import UnavailableError
from onceonly.log import heartbeat
from onceonly.log.heartbeat import ALIVE, GONE_S, Beat, hold, present
from onceonly.log.presence import Presence
from onceonly.log.presence import present as anywhere
from onceonly_proof.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKPOINT = "s3a://bucket/chk"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    made = MemoryStore()
    monkeypatch.setattr(heartbeat, "log_store", lambda _checkpoint: made)
    monkeypatch.setattr(heartbeat, "_hearts", {})
    return made


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def beat(store: MemoryStore, name: str, *, age_s: float, host: str = "elsewhere", process: int = 7) -> None:
    at = (datetime.now(UTC) - timedelta(seconds=age_s)).isoformat()
    store.files[ALIVE + name] = msgspec.json.encode(Beat(host=host, process=process, actor="driver", at=at))


def test_a_process_shows_while_it_works_and_no_longer(store: MemoryStore) -> None:
    presence = Presence.hold(CHECKPOINT, actor="driver")
    assert presence.held
    until(lambda: present(CHECKPOINT) is not None)
    assert f"process {os.getpid()} (driver)" in (anywhere(CHECKPOINT) or "")
    presence.close()
    presence.close()
    until(lambda: not store.files)
    assert present(CHECKPOINT) is None


def test_what_this_process_has_given_back_is_not_taken_for_another_while_a_store_is_slow(
    store: MemoryStore,
) -> None:
    """An operator's command that holds a checkpoint twice, one after the other, would refuse itself."""
    slow, deleting = threading.Event(), threading.Event()
    presence = hold(CHECKPOINT, actor="onceonly transactions divert")
    until(lambda: present(CHECKPOINT) is not None)

    def waits(operation: str, _name: str) -> None:
        if operation == "delete":
            deleting.set()
            slow.wait(10)

    store.hook = waits
    former = heartbeat._hearts[os.getpid(), CHECKPOINT]._beating
    assert former is not None
    presence.close()
    assert present(CHECKPOINT) is None
    assert deleting.wait(10)
    again = hold(CHECKPOINT, actor="onceonly transactions commit")
    assert present(CHECKPOINT) is not None
    slow.set()
    # What was on its way has not taken away the object of who has come back.
    until(former.done)
    until(lambda: bool(store.files))
    again.close()
    until(lambda: not store.files)


def test_it_is_written_anew_now_and_then(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.01)
    puts: list[str] = []
    store.hook = lambda operation, name: puts.append(name) if operation == "replace" else None
    held = hold(CHECKPOINT, actor="driver")
    until(lambda: len(puts) > 3)
    assert len(set(puts)) == 1
    held.close()


def test_a_later_job_of_a_process_shows_by_its_own_login(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(CHECKPOINT, actor="driver").close()
    until(lambda: not store.files)
    another = MemoryStore()  # as the same place is reached by other keys
    monkeypatch.setattr(heartbeat, "log_store", lambda _checkpoint: another)
    with closing(hold(CHECKPOINT, actor="driver")):
        until(lambda: bool(another.files))


def test_one_process_shows_once_and_until_its_last_use_ends(store: MemoryStore) -> None:
    first, second = (hold(CHECKPOINT, actor="driver") for _ in range(2))
    until(lambda: len(store.files) == 1)
    first.close()
    time.sleep(0.05)
    assert present(CHECKPOINT) is not None
    second.close()
    until(lambda: not store.files)


def test_a_process_that_ends_in_order_is_gone_at_once(store: MemoryStore) -> None:
    deleted: list[str] = []
    store.hook = lambda operation, name: deleted.append(name) if operation == "delete" else None
    held = hold(CHECKPOINT, actor="driver")
    lingering = hold("s3a://bucket/other", actor="planner")
    until(lambda: len(store.files) == 2)
    lingering.close()
    heartbeat.end()  # as the interpreter does, whoever still holds it
    assert store.files == {}
    assert len(deleted) == 2
    held.close()


def test_a_planner_lingers_between_two_epochs(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.02)
    monkeypatch.setattr(heartbeat, "_LINGER_S", 0.2)
    hold(CHECKPOINT, actor="planner").close()
    until(lambda: present(CHECKPOINT) is not None)
    hold(CHECKPOINT, actor="planner").close()
    until(lambda: not store.files)


def test_who_was_not_heard_of_for_long_is_gone(store: MemoryStore) -> None:
    beat(store, "a.json", age_s=GONE_S + 10)
    assert present(CHECKPOINT) is None
    beat(store, "b.json", age_s=5)
    assert "host elsewhere, process 7 (driver), heard of 5 s ago" in (present(CHECKPOINT) or "")


def test_a_process_of_this_host_that_is_dead_is_gone_at_once(store: MemoryStore) -> None:
    beat(store, "a.json", age_s=1, host=events.stamp().host, process=2**22 + 1)
    assert present(CHECKPOINT) is None


def test_a_clock_that_is_ahead_is_no_reason_to_be_dead(store: MemoryStore) -> None:
    beat(store, "a.json", age_s=-500)
    assert "heard of 0 s ago" in (present(CHECKPOINT) or "")


def test_what_was_left_long_ago_is_cleared_away_by_the_next_to_come(store: MemoryStore) -> None:
    beat(store, "old.json", age_s=90_000)
    beat(store, "new.json", age_s=1000)
    store.files[ALIVE + "damaged.json"] = b"{"
    assert present(CHECKPOINT) is None
    assert len(store.files) == 3  # to look changes nothing
    held = hold(CHECKPOINT, actor="driver")
    until(lambda: present(CHECKPOINT) is not None)
    assert ALIVE + "new.json" in store.files
    assert len(store.files) == 2
    held.close()


def test_a_store_that_does_not_answer_stops_nobody_who_works_and_is_said_to_who_looks(
    store: MemoryStore,
) -> None:
    def gone(operation: str, name: str) -> None:
        raise UnavailableError("gone", next_step="wait")

    store.hook = gone
    hold(CHECKPOINT, actor="driver").close()
    with pytest.raises(UnavailableError):
        present(CHECKPOINT)
