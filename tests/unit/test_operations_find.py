"""What a path leads to: checkpoints, however deep, and one clear sentence for everything else."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.unit.hdfs_double import HdfsDouble, serve
from tests.unit.operator_bench import QUERY, QueryCoordinator, Ran, run
from tests.unit.store_bench import told

from onceonly import savepoints
from onceonly.errors import ConfigurationError, LogError, OnceonlyError
from onceonly.log.files import VERSION
from onceonly.operations import search as module
from onceonly.operations.find import find, the_one


def problems(path: Path) -> list[str]:
    return [f"{item.error.code}: {item.error.what}" for item in find(str(path)).problems]


def test_a_checkpoint_is_found_by_its_folder_its_address_and_its_log(tmp_path: Path) -> None:
    QueryCoordinator(tmp_path / "cp")
    for location in (str(tmp_path / "cp"), f"file://{tmp_path}/cp", str(tmp_path / "cp" / "onceonly")):
        (found,) = find(location).checkpoints
        assert (found.path, found.query, found.moved) == (str(tmp_path / "cp"), QUERY, None)


def test_the_current_folder_is_a_path_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    QueryCoordinator(tmp_path / "cp")
    monkeypatch.chdir(tmp_path)
    assert [found.path for found in find(".").checkpoints] == [str(tmp_path / "cp")]


def test_several_are_found_below_a_folder_and_a_damaged_one_hides_none(tmp_path: Path) -> None:
    for name in ("a", "deep/er/b", "z"):
        QueryCoordinator(tmp_path / name, query=name.replace("/", "-"))
    (tmp_path / "a/onceonly/identity.json").write_bytes(b"\n")
    found = find(str(tmp_path))
    assert [each.path for each in found.checkpoints] == [str(tmp_path / "z"), str(tmp_path / "deep/er/b")]
    (problem,) = found.problems
    assert problem.path == str(tmp_path / "a")
    assert isinstance(problem.error, LogError)


def test_a_checkpoint_of_sparks_alone_is_foreign(tmp_path: Path) -> None:
    for name in ("offsets", "commits", "state"):
        (tmp_path / "theirs" / name).mkdir(parents=True)
    (tmp_path / "theirs/metadata").write_text(json.dumps({"id": "x"}), encoding="utf-8")
    (tmp_path / "theirs/commits/0").touch()
    (problem,) = find(str(tmp_path)).problems
    assert problem.foreign
    assert problem.error.what.endswith("has no decision log: another sink writes there")


def test_who_wants_one_checkpoint_is_told_what_is_wrong_with_it(tmp_path: Path) -> None:
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.complete(0)
    (coordinator.path / "onceonly" / "identity.json").write_text("{}", encoding="utf-8")
    for command in (("transactions", "divert", "t0-0"), ("audit", "--export", tmp_path / "history.json")):
        done = run(*command, coordinator.path, "--yes")
        assert (done.returncode, "identity.json" in done.stderr, "leads to" in done.stderr) == (
            2,
            True,
            False,
        )


def test_the_files_of_a_savepoint_are_no_checkpoint(tmp_path: Path) -> None:
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.complete(0)
    savepoints.create(str(coordinator.path), str(tmp_path / "place"))
    assert the_one(tmp_path).path == str(coordinator.path)


def test_a_query_that_is_starting_is_not_taken_for_one_of_another_sink(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "x"}), encoding="utf-8")
    (tmp_path / "offsets/0").touch()
    (problem,) = find(str(tmp_path)).problems
    assert "its query is starting, or another sink writes there" in problem.error.what
    assert problem.error.next_step == "look again when the query has begun its first epoch"


def test_on_hdfs_as_well_a_query_that_is_starting_is_not_taken_for_one_of_another_sink(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for double in serve(HdfsDouble()):
        told(monkeypatch, tmp_path / "hdfs.conf", f"spark.hadoop.dfs.namenode.http-address.nn {double.host}")
        double.files["/cp/metadata"] = json.dumps({"id": "x"}).encode()
        double.files["/cp/offsets/0"] = b""
        double.folders |= {"/cp", "/cp/offsets", "/cp/commits"}
        (problem,) = find("hdfs://nn/cp").problems
        assert "its query is starting, or another sink writes there" in problem.error.what
        double.files["/cp/commits/0"] = b""
        (problem,) = find("hdfs://nn/cp").problems
        assert problem.error.what.endswith("has no decision log: another sink writes there")


@pytest.mark.parametrize("command", ["doctor", "report --out", "stop", "savepoint create"])
def test_a_folder_above_one_checkpoint_stands_for_it_and_above_several_does_not(
    tmp_path: Path, command: str
) -> None:
    def typed(path: Path) -> Ran:
        takes_place = {
            "report --out": (tmp_path / "run.html", path),
            "savepoint create": (path, tmp_path / "place"),
        }
        return run(*command.split(), *takes_place.get(command, (path,)))

    QueryCoordinator(tmp_path / "above/a").complete(0, 1)
    assert "no decision log" not in (one := typed(tmp_path / "above")).stdout + one.stderr
    QueryCoordinator(tmp_path / "above/b").complete(0, 1)
    several = typed(tmp_path / "above")
    assert "leads to 2 checkpoints, and this is for one" in several.stdout + several.stderr
    none = typed(tmp_path / "nowhere")
    assert f"there is no folder {tmp_path / 'nowhere'}" in none.stdout + none.stderr


@pytest.mark.parametrize("command", ["report --out -", "watch --once", "ui --no-browser"])
def test_a_checkpoint_is_found_however_a_newcomer_writes_it_and_what_is_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0)
    (query.path / "state").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    if not command.startswith("ui"):  # which would serve until Ctrl-C
        for path in (
            f"{query.path}/",
            f"file:{query.path}",
            f"file://{query.path}/",
            "cp",
            "./cp/",
            "cp/onceonly",
        ):
            found = run(*command.split(), path)
            assert (found.returncode, query.query in found.stdout) == (0, True), path
    for path, words, step in (
        ("cp/state", "no checkpoint in", f"name {query.path}\n"),
        (str(query.path / "offsets"), f"it is in the checkpoint {query.path} itself", f"name {query.path}\n"),
        ("file", "file is a file, and no folder", "name a checkpointLocation"),
        ("cp ", "there is no folder", "name a checkpointLocation"),
    ):
        refused = run(*command.split(), path)
        said = re.sub(r"\s+", " ", refused.stderr)
        assert (refused.returncode, words in said, step.strip() in said) == (64, True, True), said


def test_a_folder_with_neither_and_no_folder_are_said_so(tmp_path: Path) -> None:
    (tmp_path / "empty/onceonly/src").mkdir(parents=True)  # a project called onceonly is no log
    for path, words in ((tmp_path / "empty", "no checkpoint in"), (tmp_path / "none", "no folder")):
        with pytest.raises(ConfigurationError, match=words):
            find(str(path))


def test_a_folder_above_that_may_not_be_seen_is_no_reason_to_break_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = Path.exists

    def forbidding(self: Path) -> bool:
        if self.name == "identity.json" and self.parents[1] in tmp_path.parents:
            raise PermissionError(13, "Permission denied", str(self))
        return exists(self)

    monkeypatch.setattr(Path, "exists", forbidding)
    with pytest.raises(ConfigurationError, match="no checkpoint in"):
        find(str(tmp_path))


def test_a_log_of_a_newer_format_a_gap_and_a_lost_identity_are_named(tmp_path: Path) -> None:
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.complete(0, 1, 2)
    identity = tmp_path / "cp/onceonly/identity.json"
    kept = identity.read_bytes()
    identity.write_bytes(kept.replace(b'"version":%d' % VERSION, b'"version":%d' % (VERSION + 1), 1))
    assert "written by a newer onceonly" in problems(tmp_path)[0]
    identity.unlink()
    assert "identity.json is missing, though there is" in problems(tmp_path)[0]
    identity.write_bytes(kept)
    next((tmp_path / "cp/onceonly/links").glob("*1.0.json")).unlink()
    assert "00000000000000000001.0.json is missing" in problems(tmp_path)[0]


def test_a_log_beside_another_querys_metadata_is_refused(tmp_path: Path) -> None:
    QueryCoordinator(tmp_path / "cp")
    (tmp_path / "cp/metadata").write_text('{"id":"other"}', encoding="utf-8")
    assert "is the checkpoint of query other" in problems(tmp_path)[0]
    (tmp_path / "cp/metadata").unlink()  # Spark's file is lost, the log still speaks
    (found,) = find(str(tmp_path)).checkpoints
    assert found.query == QUERY


def test_the_search_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    QueryCoordinator(tmp_path / "/".join("abcdef") / "too-deep")
    with pytest.raises(ConfigurationError):
        find(str(tmp_path))
    monkeypatch.setattr(module, "FOLDERS_MAX", 3)
    assert "more than 3 folders" in problems(tmp_path)[0]


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    QueryCoordinator(tmp_path / "cp")
    scandir = os.scandir

    def refuse(path: str | Path) -> object:
        if Path(path).name == "secret":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    (tmp_path / "secret").mkdir()
    monkeypatch.setattr(os, "scandir", refuse)
    assert problems(tmp_path) == [f"UNAVAILABLE: {tmp_path}/secret cannot be read: Permission denied"]
    assert len(find(str(tmp_path)).checkpoints) == 1


def test_looking_changes_nothing(tmp_path: Path) -> None:
    QueryCoordinator(tmp_path / "cp").complete(0, 1)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for found in find(str(tmp_path)).checkpoints:
        assert found.run.alive is False
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_every_problem_has_a_next_step(tmp_path: Path) -> None:
    (tmp_path / "x/offsets").mkdir(parents=True)
    (tmp_path / "x/metadata").touch()
    QueryCoordinator(tmp_path / "y").complete(0)
    (tmp_path / "y/onceonly/links").rename(tmp_path / "y/onceonly/gone")
    for problem in find(str(tmp_path)).problems:
        assert isinstance(problem.error, OnceonlyError)
        assert problem.error.next_step
