"""A checkpoint that moved: noticed, accepted on purpose, and at home in one place only."""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import CheckpointMovedError, LogError
from onceonly.log import LocalStore, identity, identity_token, open_log
from onceonly.log.opening import accept_move, look

if TYPE_CHECKING:
    from pathlib import Path


def made(place: Path) -> str | None:
    open_log(str(place), query="q", create=True)
    return identity_token(str(place))


def test_an_accepted_move_is_at_home_in_the_new_place_only(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    token = made(old)
    shutil.move(old, new)
    with pytest.raises(CheckpointMovedError) as told:
        open_log(str(new), query="q", create=True)
    assert f"onceonly checkpoints accept-move {new}" in told.value.next_step
    assert accept_move(str(new)).address == f"file://{new}"
    open_log(str(new), query="q", create=True)
    assert identity_token(str(new)) == token
    shutil.move(new, old)
    with pytest.raises(CheckpointMovedError):
        open_log(str(old), query="q", create=False)


def test_a_checkpoint_may_move_often_and_come_back(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a", "b", "c", "a")]
    made(places[0])
    for before, after in pairwise(places):
        shutil.move(before, after)
        accept_move(str(after))
        accept_move(str(after))
        open_log(str(after), query="q", create=True)
    trail = identity.trail(LocalStore(places[0] / "onceonly"))
    assert [item.address for item in trail] == [f"file://{place}" for place in places]
    assert (places[0] / "onceonly" / "identity.json").exists()


def test_an_identity_of_another_log_among_the_moves_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "a")
    made(tmp_path / "b")
    shutil.copy(tmp_path / "b/onceonly/identity.json", tmp_path / "a/onceonly/identity.1.json")
    with pytest.raises(LogError, match=r"identity\.1\.json is of another log"):
        open_log(str(tmp_path / "a"), query="q", create=True)


def test_a_damaged_move_is_refused_by_name(tmp_path: Path) -> None:
    made(tmp_path / "a")
    (tmp_path / "a/onceonly/identity.1.json").write_bytes(b"{}\n{}")
    with pytest.raises(LogError, match=r"identity\.1\.json"):
        identity_token(str(tmp_path / "a"))


def test_there_is_nothing_to_accept_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no decision log"):
        accept_move(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_tool_looks_at_a_moved_log_and_changes_nothing(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    made(old)
    shutil.move(old, new)
    before = sorted(new.rglob("*"))
    log, found = look(str(new))
    assert (log.query, found.address) == ("q", f"file://{old}")
    assert sorted(new.rglob("*")) == before
    with pytest.raises(LogError, match="no decision log"):
        look(str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()
