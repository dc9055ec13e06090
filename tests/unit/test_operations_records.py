"""What tidies up leaves a record of who, when and why; what keeps the record away never stands in its way."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import QueryCoordinator, run
from tests.unit.test_cli_files import Noted

from onceonly import events, savepoints
from onceonly.log.actions import ACTIONS, UPKEEP, Action, ActionFiles
from onceonly.log.place import log_store
from onceonly.operations import look, records
from onceonly.operations.find import the_one
from onceonly.operations.records import BESIDE
from onceonly.sources.journal.place import Journal
from onceonly.stores.opened import address_of, open_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def query(tmp_path: Path) -> QueryCoordinator:
    found = QueryCoordinator(tmp_path / "q")
    found.complete(0, 1, 2, 3)
    return found


def noted(place: Path | str, folder: str = "onceonly") -> list[Action]:
    return ActionFiles(open_store(address_of(str(place)).below(folder)), UPKEEP).newest()


def test_a_savepoint_that_is_dropped_is_recorded_in_the_log_that_it_was_made_of(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    folder = tmp_path / "place" / made.name
    told = run("savepoint", "drop", folder, "--yes", "--because", "room is short")
    assert told.returncode == 0, told.stderr
    assert f"it is recorded in {query.path}/onceonly/upkeep/" in told.stderr
    (action,) = noted(query.path)
    assert (action.command, action.epoch, action.because, action.after) == (
        "savepoint drop", made.epoch, "room is short", "deleted",
    )  # fmt: skip
    assert str(folder) in action.sentence
    assert action.who in action.sentence
    assert not (tmp_path / "place" / BESIDE).exists()
    shown = run("checkpoints", "show", f"chk-{made.epoch}", query.path)
    assert "had a savepoint deleted by hand (savepoint drop)" in shown.stdout


@pytest.mark.parametrize("what", ["is gone", "has another log"])
def test_where_the_log_is_not_there_the_record_is_beside_the_savepoint(
    query: QueryCoordinator, tmp_path: Path, what: str
) -> None:
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    shutil.rmtree(query.path)
    if what == "has another log":
        other = QueryCoordinator(query.path)
        other.complete(0)
    assert run("savepoint", "drop", tmp_path / "place" / made.name, "--yes").returncode == 0
    assert [each.epoch for each in noted(tmp_path / "place", BESIDE)] == [made.epoch]
    assert noted(query.path) == []


def test_a_record_that_cannot_be_left_is_told_and_the_savepoint_is_dropped(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    (query.path / "onceonly" / "upkeep").write_text("in the way")
    told = run("savepoint", "drop", tmp_path / "place" / made.name, "--yes")
    assert told.returncode == 0, told.stderr
    assert "no whole record of it could be left in" in told.stderr
    assert not (tmp_path / "place" / made.name).exists()


def test_an_answer_that_never_comes_is_not_waited_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_WAIT_S", 0.05)
    asked: list[int] = []

    def hang() -> None:
        import threading

        asked.append(1)
        threading.Event().wait(5)

    book = records.Book(store=hang, where="there")  # type: ignore[arg-type]
    with records.kept(book, command="journal drop", because="", before="") as entry:
        pass
    assert asked == [1]
    assert "no answer within 0.05 s" in entry.told[0]


@pytest.mark.parametrize("reader", [[], ["--reader"]])
def test_a_journal_that_is_dropped_is_recorded_beside_it_or_in_the_log_that_is_named(
    query: QueryCoordinator, tmp_path: Path, reader: list[str]
) -> None:
    place = tmp_path / "feeds" / "journal"
    for _ in range(2):
        Journal.at(str(place)).make("socket", "here")
        told = run("journal", "drop", *reader, place, "--yes", "--because", "the feed has ended")
        assert told.returncode == 0, told.stderr
        shutil.rmtree(place, ignore_errors=True)
    assert [each.because for each in noted(tmp_path / "feeds", BESIDE)] == ["the feed has ended"] * 2
    Journal.at(str(place)).make("socket", "here")
    assert run("journal", "drop", *reader, place, "--yes", "--checkpoint", query.path).returncode == 0
    (action,) = noted(query.path)
    assert (action.command, action.epoch) == ("journal drop", 3)
    assert ("reader" in action.after) == bool(reader)


def test_a_journal_in_use_or_a_question_that_is_not_agreed_to_leaves_no_record(tmp_path: Path) -> None:
    assert run("journal", "drop", tmp_path / "none", "--yes").returncode == 64
    assert not (tmp_path / BESIDE).exists()


@pytest.mark.parametrize("by", ["checkpoint", "target"])
def test_files_that_expire_are_recorded_once_for_what_was_done(tmp_path: Path, by: str) -> None:
    world = Noted(tmp_path / "w")
    world.live(world.last)
    folder = "onceonly" if by == "checkpoint" else "_onceonly"
    place = getattr(world, by)
    dry = run("files", "expire", place, "--older-than", "0s", "--dry-run")
    assert (dry.returncode, noted(place, folder)) == (0, [])
    for _ in range(2):  # the second has nothing to do
        told = run("files", "expire", place, "--older-than", "0s", "--yes", "--because", "the law")
        assert told.returncode == 0, told.stderr
    (action,) = noted(place, folder)
    assert (action.command, action.because) == ("files expire", "the law")
    assert "2 epochs left the manifests" in action.after


def test_what_tidies_up_pushes_out_no_record_of_what_ended_an_epoch(query: QueryCoordinator) -> None:
    here = the_one(str(query.path))
    ended = Action(command="abort", epoch=1, who="me", stamp=events.stamp())
    ActionFiles(log_store(here.location), ACTIONS).put(ended)
    for _ in range(25):
        with records.kept(
            records.of_checkpoint(here), command="files expire", because="", before=""
        ) as entry:
            entry.after = "done"
    found = look.newest(here, limit=None, history=True).actions
    assert [each.command for each in found].count("files expire") == 20
    assert [each.command for each in found].count("abort") == 1
    sick = run("doctor", query.path, "--only", "log")  # of what was broken off, be it older
    assert (sick.returncode, "onceonly transactions abort chk-1" in sick.stdout) == (1, True)
