"""Killed before and after each file: the same command goes on, or the next one; nothing half is taken for whole."""

from __future__ import annotations

import json
import shutil
from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.unit.killed_bench import Killer
from tests.unit.operator_bench import QUERY, QueryCoordinator, run
from tests.unit.s3_double import BUCKET
from tests.unit.store_bench import serving

from onceonly import savepoints
from onceonly.log import open_log
from onceonly.log.opening import accept_move
from onceonly.savepoints import place as places
from onceonly.stores.opened import address_of, open_store

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

STEPS = ("savepoint.before_copy", "savepoint.after_copy")


@pytest.fixture
def query(tmp_path: Path) -> QueryCoordinator:
    made = QueryCoordinator(tmp_path / "query")
    made.complete(0, 1, 2)
    state = made.path / "state" / "0" / "0"
    state.mkdir(parents=True)
    for version in (1, 2, 3):
        (state / f"{version}.delta").write_bytes(b"d%d" % version)
    return made


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "alive"
    }


def test_create(query: QueryCoordinator, tmp_path: Path) -> None:
    whole = savepoints.create(str(query.path), str(tmp_path / "whole"))
    before = files(query.path)
    points = [f"{step}=kill@{number}" for step in STEPS for number in range(1, len(whole.files) + 1)]
    for point in [*points, "savepoint.before_manifest=kill", "savepoint.after_manifest=kill"]:
        at = tmp_path / point.replace("=", "-")
        killed = run("savepoint", "create", query.path, at, ONCEONLY_FAILPOINTS=point)
        assert killed.returncode == -9, (point, killed.stderr)
        (left,) = places.standing(str(at))
        assert (left.savepoint is not None) is (point == "savepoint.after_manifest=kill")
        if left.savepoint is not None:
            assert places.wrong(left.address, left.savepoint) == []
        assert savepoints.create(str(query.path), str(at)).epoch == 2
        assert places.drop(left.address) == []
        (made,) = places.standing(str(at))
        assert made.savepoint is not None
        assert made.savepoint.files == whole.files
        assert places.wrong(made.address, made.savepoint) == []
    assert files(query.path) == before


@pytest.mark.parametrize("command", ["restore", "fork"])
def test_restore_and_fork(query: QueryCoordinator, tmp_path: Path, command: str) -> None:
    whole = savepoints.create(str(query.path), str(tmp_path / "place"))
    copied = [
        each.name for each in whole.files if command == "restore" or not each.name.startswith("onceonly/")
    ]
    count = len(copied) - (command == "fork")  # Spark's id of a fork is not copied
    points = [f"{step}=kill@{number}" for step in STEPS for number in range(1, count + 1)]
    made: dict[str, dict[str, bytes]] = {}
    for number, point in enumerate([*points, "savepoint.before_id=kill"]):
        # Each has an original of its own: a restored one leaves its former place.
        own, place, to = (tmp_path / f"{word}-{number}" for word in ("query", "place", "to"))
        shutil.copytree(query.path, own)
        accept_move(str(own))
        savepoints.create(str(own), str(place))
        arguments = ("savepoint", command, place, "--to", to, "--json")
        killed = run(*arguments, ONCEONLY_FAILPOINTS=point)
        assert killed.returncode == -9, (point, killed.stderr)
        done = run(*arguments)
        assert done.returncode == 0, (point, done.stderr)
        told = json.loads(done.stdout)
        assert json.loads((to / "metadata").read_text(encoding="utf-8"))["id"] == told["query"]
        assert (told["query"] == QUERY) is (command == "restore")
        assert open_log(str(to), query=told["query"], create=True).newest() == 2
        assert not (to / "starting.json").exists()
        made[point] = files(to)
    sparks = [
        {name: data for name, data in each.items() if name.startswith(("offsets", "commits", "state"))}
        for each in made.values()
    ]
    assert all(each == sparks[0] for each in sparks)


def test_drop(query: QueryCoordinator, tmp_path: Path) -> None:
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    folder = tmp_path / "place" / made.name
    killed = run("savepoint", "drop", folder, "--yes", ONCEONLY_FAILPOINTS="savepoint.after_undo=kill")
    assert killed.returncode == -9
    assert run("savepoint", "show", tmp_path / "place").returncode == 64
    assert run("savepoint", "drop", folder, "--yes").returncode == 0
    assert not folder.exists()


# --- on a store -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("command", ["restore", "fork", "withdraw"])
def test_on_a_store_restore_and_fork_go_on_after_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, *, carried_out: bool
) -> None:
    """The claims that keep others out there, too: a process of this machine is known to have ended."""
    for _ in serving(monkeypatch, tmp_path):
        killer = Killer(monkeypatch, carried_out=carried_out)
        for nth in count(1):
            query = QueryCoordinator(tmp_path / f"query-{nth}")
            query.complete(0, 1)
            place, to = f"s3a://{BUCKET}/place-{nth}", f"s3a://{BUCKET}/to-{nth}"
            savepoints.create(str(query.path), place, epoch=0 if command == "withdraw" else 1)
            words: tuple[str, ...] = ("savepoint", command, place, "--to", to)
            if command == "withdraw":
                words = ("savepoint", "restore", place, "--to", to, "--output", "withdraw", "--yes")
            words = (*words, *(() if command == "fork" else ("--sink", "box=operator_bench:GivingBoxSink")))
            is_killed = killer.run(nth, *words)
            store = open_store(address_of(to))
            if not is_killed or (store.get("metadata") and not store.get("starting.json")):
                assert not [name for name in store.tree("") if name.startswith("starting")], nth
                if not is_killed:
                    break
                continue  # nobody was told that it is done
            done = run(*words)
            assert done.returncode == 0, (nth, done.stderr)
            told = json.loads(store.get("metadata") or b"")["id"]
            assert (told == QUERY) is (command != "fork")
            assert open_log(to, query=told, create=True).newest() == (0 if command == "withdraw" else 1)
            assert not [name for name in store.tree("") if name.startswith(("making", "starting"))], nth
            assert len(query.seen()) == (2 if command == "withdraw" else 4)
        assert nth > 10
