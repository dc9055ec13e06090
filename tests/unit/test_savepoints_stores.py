"""Savepoints between a folder and a store, and on one store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import QUERY, QueryCoordinator, run
from tests.unit.s3_double import BUCKET, S3Double
from tests.unit.store_bench import serving

from onceonly.log import open_log
from onceonly.operations.find import open_checkpoint
from onceonly.operations.inputs_left import missing_inputs
from onceonly.stores.opened import address_of, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATE = b"\0state" * (1 << 18)
PLACE, CHECKPOINT = f"s3a://{BUCKET}/savepoints", f"s3a://{BUCKET}/queries/a"


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Double]:
    yield from serving(monkeypatch, tmp_path)


def test_from_a_folder_to_a_store_on_it_and_back(double: S3Double, tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "query")
    query.complete(0, 1)
    state = query.path / "state" / "0" / "0" / "2.snapshot"
    state.parent.mkdir(parents=True)
    state.write_bytes(STATE)

    def done(*arguments: str | Path) -> str:
        ran = run("savepoint", *arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert json.loads(done("create", query.path, PLACE, "--json"))["path"].startswith(PLACE + "/chk-1-")
    assert "whole" in done("verify", PLACE)
    done("restore", PLACE, "--to", CHECKPOINT)
    assert open_log(CHECKPOINT, query=QUERY, create=True).newest() == 1
    done("create", CHECKPOINT, f"{PLACE}2")
    done("restore", f"{PLACE}2", "--to", tmp_path / "back")
    assert open_log(str(tmp_path / "back"), query=QUERY, create=True).newest() == 1
    assert (tmp_path / "back" / "state" / "0" / "0" / "2.snapshot").read_bytes() == STATE
    (row,) = json.loads(done("list", f"{PLACE}2", "--json"))["savepoints"]
    done("drop", row["path"], "--yes")
    assert open_store(address_of(f"{PLACE}2")).tree("") == []


def test_what_hadoop_puts_for_a_folder_is_no_file_of_a_checkpoint(double: S3Double, tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "query")
    query.complete(0, 1)
    state = query.path / "state" / "0" / "0"
    (state / "_metadata").mkdir(parents=True)
    (state / "2.snapshot").write_bytes(STATE)
    (state / "_metadata" / "empty").write_bytes(b"")
    assert run("savepoint", "create", query.path, PLACE).returncode == 0
    assert run("savepoint", "restore", PLACE, "--to", CHECKPOINT).returncode == 0
    store = open_store(address_of(CHECKPOINT))
    before = sorted(store.tree(""))
    for folder in ("state/0/0/_metadata/", "state/0/1/", "sources/"):
        double.objects[f"queries/a/{folder}"] = b""
    assert sorted(store.tree("")) == before
    ran = run("savepoint", "create", CHECKPOINT, f"{PLACE}2")
    assert ran.returncode == 0, ran.stderr
    # A place of which only that is left is empty.
    double.objects["queries/b/"] = double.objects["queries/b/state/"] = b""
    assert open_store(address_of(f"s3a://{BUCKET}/queries/b")).tree("") == []


def test_of_files_that_were_read_in_a_store_each_folder_is_listed_once(
    double: S3Double, tmp_path: Path
) -> None:
    query = QueryCoordinator(tmp_path / "query")
    query.complete(0)
    lists = query.path / "sources" / "0"
    lists.mkdir(parents=True)
    paths = [f"s3a://{BUCKET}/in/day={number % 2}/a b{number}.json" for number in range(6)]
    for number, path in enumerate(paths):
        double.objects[path.removeprefix(f"s3a://{BUCKET}/")] = b"{}"
        entry = json.dumps({"path": path.replace(" ", "%20"), "batchId": number}, separators=(",", ":"))
        (lists / str(number)).write_text(f"v1\n{entry}", encoding="utf-8")
    double.page = 1000
    checkpoint = open_checkpoint(query.path)
    assert missing_inputs(checkpoint, ('{"logOffset":0}',)) == []
    assert double.requests.count(("LIST", "")) == 2
    del double.objects["in/day=1/a b3.json"]
    (missing,) = missing_inputs(checkpoint, ('{"logOffset":0}',))
    assert missing.endswith("a%20b3.json")
    double.denied.add("LIST")
    assert missing_inputs(checkpoint, ('{"logOffset":0}',)) == [], "what cannot be asked is taken to be there"
