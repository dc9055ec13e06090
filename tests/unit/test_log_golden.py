"""Worlds that were written by each format so far: today's code reads every file, and goes on from there."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.unit.disk_bench import QUERY, World, body_of, memory
from tests.unit.golden_world import LAST, MIDWAY

from onceonly import files
from onceonly.errors import CheckpointMovedError
from onceonly.log import files as log_files
from onceonly.log.history import Segment
from onceonly.log.identity import Identity
from onceonly.log.opening import accept_move, look
from onceonly.log.progress import Block, Progress, ProgressFiles
from onceonly.model import Link, Receipt
from onceonly.operations import look as look_at
from onceonly.operations.find import open_checkpoint
from onceonly.operations.states import EpochState
from onceonly.sinks.files.manifests.manifest import decode_layout, decode_manifests

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["memory"]  # a fixture
GOLDEN = Path(__file__).parent / "golden"
HALF_WAY = sorted(GOLDEN.glob("midway-*"))
FORMATS = sorted(path.name for path in GOLDEN.glob("format-*"))
# By folder.
KINDS: dict[str, tuple[str, type[Any]]] = {
    "onceonly": ("identity", Identity), "links": ("link", Link), "receipts": ("receipt", Receipt),
    "history": ("history", Segment), "progress": ("progress", Progress),
}  # fmt: skip


@pytest.fixture(params=FORMATS)
def golden(request: pytest.FixtureRequest, memory: Path) -> Iterator[World]:
    folder = memory / str(request.param)
    shutil.copytree(GOLDEN / request.param, folder)
    yield World(folder, last=LAST)
    shutil.rmtree(folder)


def test_the_current_format_has_golden_worlds() -> None:
    assert f"format-{log_files.VERSION}" in FORMATS
    for version in range(1, log_files.VERSION + 1):
        assert {f"midway-{version}-{how}" for how in MIDWAY} <= {path.name for path in HALF_WAY}
    assert (GOLDEN / f"skipped-{log_files.VERSION}").is_dir()


def of_shape(value: Any, told: Any) -> Any:  # noqa: ANN401  what JSON holds
    """Leave out of a value what a file could not tell yet."""
    if isinstance(told, dict):
        return {key: of_shape(value[key], item) for key, item in told.items()}
    if isinstance(told, list):
        return [of_shape(one, item) for one, item in zip(value, told, strict=True)]
    return value


def test_every_file_is_read_and_says_what_it_said(golden: World) -> None:
    seen = set()
    for path in sorted(golden.log.rglob("*.json")):
        folder = path.parent.name
        kind, into = ("reports", Block) if "-" in path.stem and folder == "progress" else KINDS[folder]
        value = log_files.decode(path.read_bytes(), kind=kind, into=into, where=str(path))
        told = json.loads(body_of(path))
        assert of_shape(json.loads(msgspec.json.encode(value)), told) == told, path
        seen.add(folder)
    assert seen == KINDS.keys()
    for path in (golden.target / "_onceonly").rglob("*.manifest"):
        told = [msgspec.to_builtins(each) for each in decode_manifests(path.read_bytes(), where=str(path))]
        assert json.loads(json.dumps(told)) == [json.loads(line) for line in body_of(path).splitlines()]
        seen.add(path.name[:2])
    layouts = [
        *(golden.target / "_onceonly").rglob("layout-*.json"),
        *(golden.target / "_onceonly").rglob("*.layout"),
    ]
    for path in layouts:
        assert decode_layout(path.read_bytes(), where=str(path)).columns == (("id", "bigint"),)
        seen.add("layout")
    assert {"0-", "1-", "layout"} <= seen, "manifests of one epoch, merged ones, a layout"


def test_a_moved_world_is_refused_until_it_is_told_to_be_at_home_and_then_goes_on(golden: World) -> None:
    with pytest.raises(CheckpointMovedError):
        golden.live(golden.last)
    assert accept_move(str(golden.checkpoint)).query == QUERY
    log, _ = look(str(golden.checkpoint))
    assert log.epochs() == range(golden.first, LAST + 1)
    assert [line.epoch for line in log.history()] == sorted(golden.folded())
    assert ProgressFiles(golden.checkpoint).get(LAST) is not None
    listed = {epoch.epoch: epoch.rows for epoch in files.committed(str(golden.target))}
    assert listed == dict.fromkeys(range(golden.first, LAST + 1), 4)
    golden.settle()
    golden.judge_settled()


@pytest.fixture(params=HALF_WAY, ids=lambda path: path.name)
def midway(request: pytest.FixtureRequest, memory: Path) -> Iterator[World]:
    """Return a world that was left in the middle of an epoch, at home where it now is."""
    folder = memory / str(request.param.name)
    shutil.copytree(request.param, folder)
    at_home(folder)
    yield World(folder, last=LAST + 1)
    shutil.rmtree(folder)


@pytest.mark.parametrize("recorded", sorted(GOLDEN.glob("skipped-*")), ids=lambda path: path.name)
def test_a_world_with_a_skipped_epoch_is_read_and_gone_on_with(memory: Path, recorded: Path) -> None:
    folder = memory / recorded.name
    shutil.copytree(recorded, folder)
    at_home(folder)
    world = World(folder, last=LAST + 4)
    (skipped,) = world.chains()[LAST + 1]
    assert (skipped["kind"], skipped["reason"]) == ("SKIPPED", "foreign")
    world.live(world.last, run="run-5")
    epochs = [epoch for epoch in range(world.first, world.last + 1) if epoch != LAST + 1]
    assert world.rows() == world.wanted(*epochs)
    told = look_at.newest(open_checkpoint(world.checkpoint), limit=None, history=True).epochs
    assert {row.view.epoch: row.view.state for row in told} == {
        **dict.fromkeys(epochs, EpochState.COMPLETE), LAST + 1: EpochState.SKIPPED,
    }  # fmt: skip
    shutil.rmtree(folder)


def at_home(folder: Path) -> None:
    """Write the new address in the place of the recorded one; the rest of each file, and its version, stay."""
    identity = body_of(folder / "checkpoint" / "onceonly" / "identity.json")
    recorded = json.loads(identity)["address"].removeprefix("file://").removesuffix("/checkpoint").encode()
    for path in (path for path in folder.rglob("*") if path.is_file() and recorded in path.read_bytes()):
        head, _, body = path.read_bytes().partition(b"\n")
        body = body.replace(recorded, bytes(folder.resolve()))
        header = json.loads(head)
        header |= {"length": len(body), "checksum": "sha256:" + hashlib.sha256(body).hexdigest()}
        path.write_bytes(json.dumps(header, separators=(",", ":")).encode() + b"\n" + body)


def test_a_world_that_was_left_in_an_epoch_is_read_recovered_and_gone_on_with(midway: World) -> None:
    how = re.sub(r".*-", "", midway.folder.name)
    chain, receipt = midway.chains()[LAST + 1], midway.receipt(LAST + 1)
    assert (chain[-1]["kind"], receipt) == ("GLOBAL_COMMIT" if how == "decided" else "ABORT", None)
    midway.judge_midway()
    midway.settle()
    midway.judge_settled()
    assert len(midway.chains()[LAST + 1]) == len(chain) + (how == "claimed") * 2
