"""The event log: off by default, one whole line for each step, and never in the protocol's way."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

from onceonly import events

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = [
    "seq",
    "actor",
    "incarnation",
    "t",
    "kind",
    "query",
    "run",
    "epoch",
    "sink",
    "slot",
    "transaction",
    "causes",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONCEONLY_EVENTS", str(tmp_path / "events"))
    monkeypatch.setattr(events, "_writer", None)
    return tmp_path / "events"


def test_nothing_is_written_unless_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCEONLY_EVENTS", raising=False)
    monkeypatch.chdir(tmp_path)

    events.record("link.persisted", actor="driver")

    assert not events.enabled()
    assert not list(tmp_path.iterdir())


def test_a_step_is_one_line_with_every_field(folder: Path) -> None:
    events.record("link.persisted", actor="driver", query="q", epoch=3, sink="a", slot=1, outcome="Committed")

    (path,) = folder.glob("*.jsonl")
    line = json.loads(path.read_text(encoding="utf-8"))
    assert list(line) == [*FIELDS, "outcome"]
    assert (line["seq"], line["kind"], line["epoch"], line["outcome"]) == (
        1,
        "link.persisted",
        3,
        "Committed",
    )


def test_threads_do_not_tear_lines_and_every_number_is_given_once(folder: Path) -> None:
    def write() -> None:
        for _ in range(200):
            events.record("slot.begun", actor="executor")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(line["seq"] for line in events.read(folder)) == list(range(1, 801))


def test_a_forked_process_writes_a_file_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events.record("slot.begun", actor="executor")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    events.record("slot.begun", actor="executor")

    assert len(list(folder.glob("*.jsonl"))) == 2
    assert [line["seq"] for line in events.read(folder)] == [1, 1]


def test_a_torn_last_line_is_left_out(folder: Path) -> None:
    events.record("slot.begun", actor="executor")
    (path,) = folder.glob("*.jsonl")
    with path.open("a", encoding="utf-8") as file:
        file.write('{"seq": 2, "ki')

    assert [line["seq"] for line in events.read(folder)] == [1]


def test_a_folder_that_cannot_be_written_stops_nothing(folder: Path) -> None:
    folder.write_text("a file where the folder should be", encoding="utf-8")

    events.record("slot.begun", actor="executor")
