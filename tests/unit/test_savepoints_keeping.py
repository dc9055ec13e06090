"""Savepoints that a query makes by itself: now and then, beside its epochs, and never at its cost."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.operator_bench import QUERY, QueryCoordinator

from onceonly import savepoints
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.model import Stamp
from onceonly.savepoints import place
from onceonly.savepoints.keeping import Keeper
from onceonly.settings.query import parse_query
from onceonly.settings.savepoints import Keeping


@pytest.fixture
def query(tmp_path: Path) -> QueryCoordinator:
    made = QueryCoordinator(tmp_path / "query")
    made.complete(0, 1)
    return made


def keeper(query: QueryCoordinator, at: Path, *, every_s: float = 0.05, keep: int = 2) -> Keeper:
    return Keeper(str(query.path), QUERY, Keeping(every_s=every_s, place=str(at), keep=keep))


def until_done(each: Keeper) -> None:
    deadline = time.monotonic() + 30
    while each._working is None or not each._working.done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    each._working.result()


def looked(each: Keeper, *, times: int) -> None:
    for _ in range(times):
        time.sleep(0.06)
        each.look()
        until_done(each)


def epochs(at: Path) -> list[int]:
    return [each.savepoint.epoch for each in place.standing(str(at)) if each.savepoint]


def test_the_newest_ones_stay_and_those_of_others_too(query: QueryCoordinator, tmp_path: Path) -> None:
    other = QueryCoordinator(tmp_path / "other", query="22222222-2222-3333-4444-555555555555")
    other.complete(0)
    savepoints.create(str(other.path), str(tmp_path / "place"))
    each = keeper(query, tmp_path / "place")
    for epoch in (2, 3, 4):
        query.complete(epoch)
        looked(each, times=1)
    assert epochs(tmp_path / "place") == [4, 3, 0]


def test_what_somebody_has_asked_for_stays(query: QueryCoordinator, tmp_path: Path) -> None:
    before = savepoints.create(str(query.path), str(tmp_path / "place"))
    each = keeper(query, tmp_path / "place", keep=1)
    for epoch in (2, 3):
        query.complete(epoch)
        looked(each, times=1)
    assert epochs(tmp_path / "place") == [3, 1]
    assert before.name in {found.name for found in place.standing(str(tmp_path / "place"))}


def test_a_clock_that_was_ahead_neither_stops_them_nor_drops_the_newest(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("onceonly.events.stamp", lambda: Stamp(at="2099-01-01T00:00:00.000Z"))
        looked(keeper(query, tmp_path / "place", every_s=3600, keep=1), times=1)
    assert epochs(tmp_path / "place") == [1]
    query.complete(2)
    each = keeper(query, tmp_path / "place", every_s=3600, keep=1)
    looked(each, times=2)
    assert epochs(tmp_path / "place") == [2]


def test_a_damaged_one_beside_keeps_none_from_being_made(query: QueryCoordinator, tmp_path: Path) -> None:
    damaged = savepoints.create(str(query.path), str(tmp_path / "place"))
    (tmp_path / "place" / damaged.name / "savepoint.json").write_bytes(b"{}")
    query.complete(2)
    looked(keeper(query, tmp_path / "place"), times=1)
    assert epochs(tmp_path / "place") == [2]


def test_what_fails_again_is_told(
    query: QueryCoordinator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for noted in (query.path / "commits").iterdir():
        noted.unlink()  # no epoch is complete
    each = keeper(query, tmp_path / "place")
    with caplog.at_level(logging.WARNING, "onceonly"):
        looked(each, times=1)
        assert not caplog.text
        looked(each, times=1)
    assert "no epoch of query" in caplog.text


def test_the_next_one_is_made_when_it_is_time_also_after_a_restart(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    for _ in range(2):
        looked(keeper(query, tmp_path / "place", every_s=3600), times=2)
    assert epochs(tmp_path / "place") == [1]


def test_what_goes_wrong_is_told_and_the_query_goes_on(
    query: QueryCoordinator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "place").write_text("no folder", encoding="utf-8")
    each = keeper(query, tmp_path / "place")
    with caplog.at_level(logging.WARNING, "onceonly"):
        looked(each, times=1)
    assert "tried again" in caplog.text
    (tmp_path / "place").unlink()
    looked(each, times=1)
    assert epochs(tmp_path / "place") == [1]


def test_one_that_was_renamed_or_copied_to_be_kept_is_kept(query: QueryCoordinator, tmp_path: Path) -> None:
    at = tmp_path / "place"
    each = keeper(query, at, keep=1)
    looked(each, times=1)
    [first] = at.iterdir()
    shutil.copytree(first, at / "copy")
    first.rename(at / "before-the-release")
    query.complete(2)
    looked(each, times=2)
    assert {folder.name for folder in at.iterdir()} > {"before-the-release", "copy"}
    assert epochs(at) == [2, 1, 1]


def test_one_that_is_made_is_not_called_missing_where_older_ones_cannot_be_dropped(
    query: QueryCoordinator, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a bucket that keeps what it has."""

    def forbidden(*_arguments: object) -> None:
        raise UnavailableError("it may not be deleted", next_step="ask for the right")

    monkeypatch.setattr(place, "drop", forbidden)
    each = keeper(query, tmp_path / "place", keep=1)
    with caplog.at_level(logging.WARNING, "onceonly"):
        looked(each, times=2)
    assert epochs(tmp_path / "place") == [1, 1]
    assert "was made, and older ones could not be dropped: it may not be deleted" in caplog.text
    assert "No savepoint" not in caplog.text


def test_a_folder_that_nobody_may_enter_keeps_no_savepoint_from_being_made(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk's own folder lost+found is in its uppermost one."""
    read = Path.read_bytes

    def forbidden(path: Path) -> bytes:
        if path.parent.name == "lost+found":  # to root, nothing is
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    (tmp_path / "place/lost+found").mkdir(parents=True)
    looked(keeper(query, tmp_path / "place"), times=1)
    assert epochs(tmp_path / "place") == [1]


def test_what_was_broken_off_long_ago_is_taken_away(query: QueryCoordinator, tmp_path: Path) -> None:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S000Z")
    for name, of in (
        ("chk-1-20200101T000000000Z-aaaaaa", QUERY),
        ("chk-1-20200101T000000000Z-bbbbbb", "another"),
        (f"chk-1-{now}-cccccc", QUERY),
    ):
        (tmp_path / "place" / name / "files").mkdir(parents=True)
        (tmp_path / "place" / name / "files" / "metadata").write_text("{}", encoding="utf-8")
        (tmp_path / "place" / name / "begun.json").write_text(json.dumps({"query": of}), encoding="utf-8")
    looked(keeper(query, tmp_path / "place"), times=1)
    left = {each.name[-6:] for each in place.standing(str(tmp_path / "place")) if each.savepoint is None}
    assert left == {"bbbbbb", "cccccc"}


def test_the_options_of_a_query_are_read_and_refused_by_name() -> None:
    given = {
        "checkpointlocation": "/c",
        "onceonly.savepoint.every": "6 hours",
        "onceonly.savepoint.place": "/p",
    }
    assert parse_query(given).savepoints == Keeping(every_s=21600.0, place="/p", keep=3)
    assert parse_query({"checkpointlocation": "/c"}).savepoints is None
    for name, text, word in (
        ("onceonly.savepoint.every", "often", "6 hours"),
        ("onceonly.savepoint.every", "", "missing"),
        ("onceonly.savepoint.place", "", "missing"),
        ("onceonly.savepoint.keep", "0", "at least 1"),
        ("onceonly.savepoint.keep", "some", "at least 1"),
    ):
        with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")) as refused:
            parse_query({**given, name: text})
        assert word in str(refused.value)
