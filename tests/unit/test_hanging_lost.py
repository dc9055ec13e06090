"""``transactions hanging``: what a query whose checkpoint is lost has left in files and in databases."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit import (
    test_conformance_delta,
    test_conformance_iceberg,
    test_conformance_sinks,
    test_conformance_sql,
)
from tests.unit.operator_bench import here
from tests.unit.test_operations_audit import Job

if TYPE_CHECKING:
    from onceonly.model import Handle
    from onceonly_proof.conformance.world import World

SUITES = {
    "files": test_conformance_sinks.TestFiles(),
    "sql": test_conformance_sql.TestSqlite(),
    "delta": test_conformance_delta.TestDelta(),
    "iceberg": test_conformance_iceberg.TestIceberg(),
}


SUITES_BY = {
    "files": "onceonly.files",
    "sql": "onceonly.sql",
    "delta": "onceonly.delta",
    "iceberg": "onceonly.iceberg",
}


class Left:
    """A job that is down, and beside it a query without a checkpoint that has written to the same target."""

    def __init__(self, kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.job = Job(SUITES[kind], folder)
        self.lost: World = self.job.world.another(query="lost query")
        self.capsys = capsys
        sink = SUITES[kind].sink
        self.command: tuple[str, ...] = ("transactions", "hanging", self.job.checkpoint, "--sink",
                        f"{sink.name}={sink.__module__}:{sink.__qualname__}")  # fmt: skip

    def found(self) -> tuple[int, list[dict[str, Any]]]:
        status = here(*self.command, "--json")
        said = self.capsys.readouterr()
        assert said.err == ""
        return status, json.loads(said.out)["transactions"]

    def open(self) -> dict[str, Any]:
        """What is open, told as of a query that is not here."""
        before = self.stands()
        status, found = self.found()
        assert self.stands() == before, "it only looks"
        (only,) = (each for each in found if each["is_open"])
        assert (status, only["query"], only["command"]) == (1, "lost query", None)
        assert "of the query lost query, whose checkpoint is not here" in only["told"]
        return only

    def stands(self) -> list[tuple[Path, int]]:
        return [(path, path.stat().st_mtime_ns) for path in sorted(self.lost.folder.rglob("*"))]

    def types(self, told: str) -> None:
        """Type what a sentence says that ends it."""
        command = told.partition("gone for good, ")[2].partition(" does; ")[0]
        assert shlex.split(command)[0] == "rm"
        subprocess.run(["/bin/sh", "-c", command], check=True)


@pytest.fixture(params=SUITES)
def left(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Left:
    return Left(request.param, tmp_path, capsys)


def prepared(left: Left) -> Handle:
    return left.lost.prepared([70, 71], epoch=7)


def test_what_a_lost_query_has_prepared_is_found_and_ends_as_it_is_told(left: Left) -> None:
    assert left.found() == (0, [])
    handle = prepared(left)
    only = left.open()
    assert only["transaction"] == handle.transaction
    assert f"chk-7 of the sink {left.lost.name}" in only["told"]
    assert " since 20" in only["told"]
    left.types(only["told"])
    assert [each for each in left.found()[1] if each["is_open"]] == []
    # Nobody can commit it any more, not even who has its handle after all.
    assert type(left.lost.commit(handle)).__name__ in {"Lost", "Unknown"}


def test_where_no_checkpoint_is_left_a_file_says_which_target_is_asked(left: Left, tmp_path: Path) -> None:
    handle = prepared(left)
    sink, file = SUITES_BY[left.job.suite.sink.name], tmp_path / "job.json"
    file.write_text(json.dumps({"format": sink, "options": left.job.world.options}), encoding="utf-8")
    here_ = left.job.checkpoint
    left.command = ("transactions", "hanging", "--for", str(file))
    status, found = left.found()
    (only,) = (each for each in found if each["transaction"] == handle.transaction)
    assert (status, only["query"]) == (1, "lost query")
    assert "whose checkpoint is not here" in only["told"]
    # What is known besides is left out, and what is not of the file is refused.
    own = left.job.world.prepared([70], epoch=7)
    assert {each["transaction"] for each in left.found()[1] if each["is_open"]} == {
        handle.transaction, own.transaction,
    }  # fmt: skip
    left.command = (*left.command, here_)
    told = {each["transaction"]: each["told"] for each in left.found()[1]}
    assert told[own.transaction].endswith("the query's next start aborts it")
    assert here(*left.command, "--sink", "a=b:C") == 64
    left.types(only["told"])


def test_its_own_next_start_ends_what_a_query_here_has_left(left: Left) -> None:
    handle = left.job.world.prepared([70], epoch=7)
    status, (only,) = left.found()
    assert (status, only["transaction"]) == (1, handle.transaction)
    assert only["told"].endswith("no link names it: the query's next start aborts it")


def test_a_sink_that_its_query_has_no_more_is_swept_by_no_start(left: Left) -> None:
    former = left.job.world.another(sink="former")
    handle = former.prepared([70], epoch=7)
    _, found = left.found()
    (only,) = (each for each in found if each["is_open"])
    assert (only["transaction"], only["command"]) == (handle.transaction, None)
    assert "whose newest epochs have no such sink: a start that has it again aborts it" in only["told"]


def test_a_commit_that_was_broken_off_is_told_from_what_nobody_has_begun_to_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = Left("files", tmp_path, capsys)
    handle = prepared(left)
    assert "written, and perhaps decided" in left.open()["told"]
    folder = Path(str(handle.data["staging"]))
    folder.rename(folder.with_name(f".{folder.name}.committing"))  # as the first step of a commit does
    assert "decided, and its commit was broken off" in left.open()["told"]


def test_what_is_complete_or_given_up_is_not_open(left: Left) -> None:
    handle = prepared(left)
    left.lost.driver.commit_many([handle])
    left.lost.driver.complete(left.lost.context, 7, [handle])
    aborted = left.lost.prepared([72], epoch=8)
    left.lost.driver.abort(aborted)
    status, found = left.found()
    assert (status, [each for each in found if each["is_open"]]) == (0, [])


def test_the_books_remember_a_lost_query_and_that_is_no_anomaly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = Left("sql", tmp_path, capsys)
    left.lost.commit(prepared(left))
    left.lost.another(query="batch-nightly").commit(left.lost.another(query="batch-nightly").prepared([9]))
    status, (only,) = left.found()
    assert (status, only["query"], only["is_open"], only["transaction"]) == (0, "lost query", False, None)
    assert (
        "has 1 handle of the sink sql, the newest that is applied of chk-7: nothing of it is open"
        in only["told"]
    )
    assert "DELETE FROM onceonly_commits WHERE query = 'lost query' AND sink = 'sql'" in only["told"]
    assert here(*left.command) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("nothing is open that no log knows")
    assert "remembered of lost query" in shown


def test_a_folder_that_this_user_may_not_list_is_told_and_hides_nothing(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = prepared(left)
    other = left.lost.another(query="of another user")
    other.prepared([80], epoch=8)
    scandir, listdir = os.scandir, os.listdir

    def refuse(ask: Any) -> Any:  # noqa: ANN401
        def asked(path: Any = ".") -> Any:  # noqa: ANN401
            if "of another user" in str(path) or "of%20another" in str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return ask(path)

        return asked

    monkeypatch.setattr(os, "scandir", refuse(scandir))
    monkeypatch.setattr(os, "listdir", refuse(listdir))
    status, found = left.found()
    assert status == 2
    told = {each["query"]: each for each in found}
    assert told["lost query"]["transaction"] == handle.transaction
    assert told["of another user"]["is_open"] is None
    assert "this user may not list" in told["of another user"]["told"]
    assert "if that is gone for good, the owner of" in told["of another user"]["told"]
