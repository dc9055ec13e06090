"""Savepoints that a query makes by itself: now and then, beside its epochs, and never at its cost."""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import shutil
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.operator_bench import QUERY, QueryCoordinator

from onceonly import savepoints
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.model import Stamp
from onceonly.savepoints import keeping, making, place
from onceonly.savepoints.keeping import Keeper
from onceonly.savepoints.manifest import sign_of
from onceonly.settings.query import parse_query
from onceonly.settings.savepoints import Keeping
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onceonly.savepoints import Savepoint


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
    real: Any = Path.open
    asked: list[Path] = []

    def forbidden(path: Path, *mode: str) -> object:
        if path.parent.name == "lost+found":  # to root, nothing is
            asked.append(path)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *mode)

    monkeypatch.setattr(Path, "open", forbidden)
    (tmp_path / "place/lost+found").mkdir(parents=True)
    looked(keeper(query, tmp_path / "place"), times=1)
    assert asked
    assert epochs(tmp_path / "place") == [1]


def test_one_that_is_whole_is_not_said_to_be_missing_while_older_ones_are_dropped(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    each = keeper(query, tmp_path / "place", keep=1)
    looked(each, times=1)
    dropped = threading.Event()
    monkeypatch.setattr(place, "drop", lambda _address: dropped.wait(30))
    monkeypatch.setattr(keeping, "_STILL_S", 0.2)
    time.sleep(0.06)
    each.look()
    assert until(lambda: len(epochs(tmp_path / "place")) == 2, 30, poll_s=0.01)
    with caplog.at_level(logging.WARNING, "onceonly"):
        each.finish()
    dropped.set()
    until_done(each)
    assert "is whole; older ones are dropped when the next is made" in caplog.text
    assert "without its savepoint" not in caplog.text


def begun(place: Path, *, of: str = QUERY, age_s: float = 0.0, sign_s: float | None = None) -> Path:
    """Leave what was begun so long ago, and has come further last at another time."""
    now = datetime.now(UTC)
    name = (now - timedelta(seconds=age_s)).strftime("%Y%m%dT%H%M%S000Z")
    folder = place / f"chk-1-{name}-{secrets.token_hex(3)}"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "metadata").write_text("{}", encoding="utf-8")
    (folder / "begun.json").write_text(json.dumps({"query": of}), encoding="utf-8")
    if sign_s is not None:
        sign = json.dumps({"at": (now - timedelta(seconds=sign_s)).isoformat()})
        (folder / "making.json").write_text(sign, encoding="utf-8")
    return folder


def test_what_was_broken_off_long_ago_is_taken_away(query: QueryCoordinator, tmp_path: Path) -> None:
    at = tmp_path / "place"
    gone = [begun(at, age_s=4000), begun(at, age_s=9000, sign_s=4000)]
    left = [begun(at, age_s=9000, of="another"), begun(at, age_s=900), begun(at, age_s=9000, sign_s=900)]
    looked(keeper(query, at), times=1)
    assert epochs(at) == [1]
    assert not any(each.exists() for each in gone)
    assert all(each.exists() for each in left)


def test_none_is_begun_while_another_process_is_making_one(query: QueryCoordinator, tmp_path: Path) -> None:
    """A copy may take hours: an operator's, or that of a run before whose program stays until it is whole."""
    working = begun(tmp_path / "place", age_s=9000, sign_s=100)
    each = keeper(query, tmp_path / "place", every_s=3600)
    looked(each, times=1)
    assert epochs(tmp_path / "place") == []
    assert working.exists()
    shutil.rmtree(working)
    each.end()  # nor is it forgotten
    until_done(each)
    assert epochs(tmp_path / "place") == [1]


def test_who_makes_one_leaves_word_as_long_as_it_comes_further(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "_SIGN_S", 0.0)
    seen: set[float] = set()

    def told(*_of: int) -> None:
        [sign, *_] = [*tmp_path.glob("place/*/making.json"), None]
        if sign is not None:
            seen.add(sign_of(sign.read_bytes()))

    began = time.time()
    savepoints.create(str(query.path), str(tmp_path / "place"), told=told)
    assert began - 1 < min(seen) <= max(seen) < time.time() + 1
    assert list(tmp_path.glob("place/*/making.json")) == []
    [made] = place.standing(str(tmp_path / "place"))
    (tmp_path / "place" / made.name / "making.json").write_text("{}", encoding="utf-8")
    assert place.drop(made.address) == []


def test_what_was_broken_off_does_not_fill_the_place_though_no_other_one_comes_to_its_end(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = begun(tmp_path / "place", age_s=4000)

    def full(*_arguments: object, **_more: object) -> None:
        raise UnavailableError("no space is left", next_step="make some")

    monkeypatch.setattr(keeping, "create", full)
    looked(keeper(query, tmp_path / "place"), times=1)
    assert not left.exists()


def test_at_the_end_of_a_run_what_came_to_nothing_is_tried_once_more(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    noted = sorted((query.path / "commits").iterdir())
    texts = [each.read_text(encoding="utf-8") for each in noted]
    for path in noted:
        path.unlink()
    one = keeper(query, tmp_path / "place", every_s=3600)
    one.end()
    assert one._working is None  # no epoch was noted in this run
    one.look()
    until_done(one)
    assert epochs(tmp_path / "place") == []
    for path, text in zip(noted, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    for _ in range(2):
        one.end()
        until_done(one)
    assert epochs(tmp_path / "place") == [1]


def slowly(monkeypatch: pytest.MonkeyPatch, steps: Iterable[float]) -> None:
    """Let a copy come further so many times, each after so many seconds, before it is made."""
    make = making.create

    def made(*arguments: str, told: Callable[[int, int, int], None], **more: bool) -> Savepoint:
        for pause_s in steps:
            time.sleep(pause_s)
            told(1, 2, 3)
        return make(*arguments, told=told, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(keeping, "create", made)
    monkeypatch.setattr(keeping, "_STILL_S", 0.6)


def test_a_program_that_ends_waits_for_its_savepoint_as_long_as_that_goes_on(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slowly(monkeypatch, [0.2] * 5)
    each = keeper(query, tmp_path / "place", every_s=3600)
    each.look()
    with caplog.at_level(logging.WARNING, "onceonly"):
        each.finish()
        assert epochs(tmp_path / "place") == [1]
        assert f"its savepoint is being made in {tmp_path / 'place'}" in caplog.text
        caplog.clear()
        each.finish()
    assert not caplog.text


@pytest.mark.parametrize(("every_s", "step_s"), [(3600.0, 2.0), (0.5, 0.2)], ids=["still", "long"])
def test_a_program_does_not_wait_for_a_copy_that_stands_still_nor_beyond_the_next_one(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    every_s: float, step_s: float,
) -> None:  # fmt: skip
    slowly(monkeypatch, [step_s] * int(2 / step_s))
    each = keeper(query, tmp_path / "place", every_s=every_s)
    each.look()
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "onceonly"):
        each.finish()
    assert time.monotonic() - began < 1.5
    assert "ends without its savepoint: it is not whole" in caplog.text
    until_done(each)


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
