"""What Spark reports, kept on a store: beside the query, and at a price that does not grow with its epochs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import LogError, UnavailableError
from onceonly.log import stored_progress
from onceonly.log.progress import KEEP, Progress, ProgressFiles, SourceReport
from onceonly.log.stored_progress import BYTES_MAX, NAME, StoredProgress, progress_in
from onceonly_proof.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Watched(MemoryStore):
    """Counts the puts."""

    def __init__(self) -> None:
        super().__init__()
        self.puts = 0
        self.hook = self.note

    def note(self, operation: str, name: str) -> None:
        if operation == "replace":
            assert name == NAME
            self.puts += 1


class Waits(threading.Event):
    """Notes how long somebody wants to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.asked.append(timeout)
        return super().wait(timeout)


@pytest.fixture
def store() -> Watched:
    return Watched()


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_however_many_epochs_there_are_one_object_is_put_now_and_then(store: Watched) -> None:
    reports = StoredProgress(store)
    reports._closed = waits = Waits()
    reports.put(Progress(epoch=0))
    until(lambda: len(waits.asked) == 1)
    for epoch in range(1, 300):
        reports.put(Progress(epoch=epoch))
    assert (store.puts, waits.asked) == (1, [20.0])
    reports.close()
    assert store.puts == 2
    assert list(store.files) == [NAME]
    assert [reports.get(epoch) is not None for epoch in (299 - KEEP, 300 - KEEP, 299)] == [False, True, True]


def test_a_report_that_waits_is_put_though_no_other_comes(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_progress, "EVERY_S", 0.05)
    reports = StoredProgress(store)
    reports.put(Progress(epoch=0))
    until(lambda: store.puts == 1)
    reports.put(Progress(epoch=1, rows=7))
    until(lambda: reports.get(1) == Progress(epoch=1, rows=7))
    assert reports.get(0) == Progress(epoch=0)


def test_another_run_goes_on_with_what_is_there(store: Watched) -> None:
    first, second = StoredProgress(store), StoredProgress(store)
    first.put(Progress(epoch=0))
    first.put(Progress(epoch=1, rows=1))
    first.close()
    second.put(Progress(epoch=1, rows=2))
    second.close()
    assert [second.get(0), second.get(1)] == [Progress(epoch=0), Progress(epoch=1, rows=2)]


def test_nobody_waits_for_a_store_and_the_next_report_says_it_all_again(store: Watched) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def stuck(operation: str, name: str) -> None:
        if operation == "replace":
            begun.set()
            go_on.wait(10)
            raise UnavailableError("gone", next_step="wait")

    store.hook = stuck
    reports = StoredProgress(store)
    reports.put(Progress(epoch=0))
    assert begun.wait(10)
    reports.put(Progress(epoch=1))
    store.hook = store.note
    go_on.set()
    reports.close()
    assert [reports.get(epoch) for epoch in range(2)] == [Progress(epoch=0), Progress(epoch=1)]


def test_long_reports_are_fewer(store: Watched) -> None:
    reports = StoredProgress(store)
    for epoch in range(KEEP):
        reports.put(Progress(epoch=epoch, sources=(SourceReport(name="KafkaV2", end="x" * 10_000),)))
    reports.close()
    assert len(store.files[NAME]) <= BYTES_MAX
    assert reports.get(KEEP - 1) is not None
    reports = StoredProgress(store)
    reports.put(Progress(epoch=KEEP, sources=(SourceReport(name="KafkaV2", end="x" * BYTES_MAX),)))
    reports.close()
    assert [reports.get(KEEP - 1) is None, reports.get(KEEP) is None] == [True, False]


def test_a_damaged_object_is_named_to_who_reads_and_replaced_by_who_writes(store: Watched) -> None:
    store.files[NAME] = b"torn"
    reports = StoredProgress(store)
    with pytest.raises(LogError, match="newest"):
        reports.get(0)
    reports.put(Progress(epoch=0))
    reports.close()
    assert reports.get(0) == Progress(epoch=0)


def test_in_a_folder_each_report_is_a_file_as_ever(tmp_path: Path) -> None:
    (tmp_path / "onceonly").mkdir()
    reports = progress_in(tmp_path)
    assert isinstance(reports, ProgressFiles)
    reports.put(Progress(epoch=0))
    reports.close()
    assert reports.get(0) == Progress(epoch=0)
