"""The operator's commands on a checkpoint that was brought to a real S3 server, and to a real HDFS."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit import ui_bench
from tests.unit.operator_bench import BOX, QUERY, QueryCoordinator, run
from tests.unit.store_bench import told

from onceonly.log.place import log_store
from onceonly.log.progress import Progress
from onceonly.log.stored_progress import StoredProgress
from onceonly.operations.find import open_checkpoint
from onceonly.stores.address import parse
from onceonly.stores.opened import open_store
from onceonly.ui.pages import TABS
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
from onceonly_proof.embedded.s3 import SECRET, EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", params=["s3", "hdfs"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, str]]]:
    """Return a folder on a store, and what Hadoop is told to reach it."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "hdfs":
        with EmbeddedHdfs(folder) as hdfs:
            yield "hdfs://127.0.0.1/queries", hdfs.hadoop()
    else:
        with EmbeddedS3(folder) as s3:
            s3.make_bucket("checkpoints")
            yield "s3a://checkpoints/queries", s3.hadoop()


def listed(*command: str) -> list[dict[str, Any]]:
    done = run("checkpoints", *command, "--json")
    assert SECRET not in done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["checkpoints"]
    return found


def test_it_is_found_accepted_shown_and_resolved(
    place: tuple[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above, hadoop = place
    told(monkeypatch, tmp_path / "conf", "".join(f"{name} {value}\n" for name, value in hadoop.items()))
    coordinator, address = QueryCoordinator(tmp_path / "cp"), f"{above}/orders"
    coordinator.complete(0, 1)
    coordinator.decide(2)
    store = open_store(parse(address))
    for path in coordinator.path.rglob("*"):
        if path.is_file():
            store.replace(str(path.relative_to(coordinator.path)), path.read_bytes())
    copied = run("checkpoints", "accept-move", address, "--yes", "--force")
    assert (copied.returncode, "is a copy" in copied.stderr) == (1, True)
    shutil.rmtree(coordinator.path)
    assert run("checkpoints", "accept-move", address, "--yes").returncode == 0

    reports = StoredProgress(log_store(address))
    reports.put(Progress(epoch=1, duration_ms={"addBatch": 7}))
    reports.close()
    # Beside another folder, from above, and by the process that acts.
    open_store(parse(f"{above}/data/day=1")).replace("rows", b"")
    (found,) = listed("list", above)
    assert [(each["name"], each["state"]) for each in found["epochs"]] == [
        ("chk-2", "decided"), ("chk-1", "complete"), ("chk-0", "complete"),
    ]  # fmt: skip
    assert (found["moved"], found["run"]["state"]) == (False, "down")
    (shown,) = listed("show", "chk-1", address)
    assert shown["epoch"]["spark"]["duration_ms"] == {"addBatch": 7}

    with ui_bench.serve([open_checkpoint(address)]) as page:
        for name, _ in TABS:
            answer = page.get(f"/{QUERY}/{name}")
            assert (answer.status, SECRET in answer.text) == (200, False)
            assert "/queries/orders" in answer.text
        assert "chk-2 is decided" in page.get(f"/{QUERY}/now").text

    done = run("transactions", "commit", "chk-2", address, "--yes", "--sink", f"box={BOX}", NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert {"t2-0.done", "t2-1.done"} <= set(coordinator.seen())
    assert run("transactions", "list", address).returncode == 0
    assert log_store(address).list_names("heartbeats/") == []
