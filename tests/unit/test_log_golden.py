"""Worlds that were written by each format so far: today's code reads every file, and goes on from there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.unit.disk_bench import QUERY, World, body_of, memory

from onceonly import files
from onceonly.errors import CheckpointMovedError
from onceonly.log import codec
from onceonly.log.history import Segment
from onceonly.log.identity import Identity
from onceonly.log.opening import accept_move, look
from onceonly.log.progress import Progress, ProgressFiles
from onceonly.model import Link, Receipt
from onceonly.sinks.files.manifest import decode_layout, decode_manifests

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["memory"]  # a fixture
GOLDEN = Path(__file__).parent / "golden"
FORMATS = sorted(path.name for path in GOLDEN.glob("format-*"))
LAST = 24
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


def test_the_current_format_has_a_golden_world() -> None:
    assert f"format-{codec.VERSION}" in FORMATS


def test_every_file_is_read_and_says_what_it_said(golden: World) -> None:
    seen = set()
    for path in sorted(golden.log.rglob("*.json")):
        folder = path.parent.name
        kind, into = KINDS[folder]
        value = codec.decode(path.read_bytes(), kind=kind, into=into, where=str(path))
        assert json.loads(msgspec.json.encode(value)) == json.loads(body_of(path)), path
        seen.add(folder)
    assert seen == KINDS.keys()
    for path in (golden.target / "_onceonly").rglob("*.manifest"):
        told = [msgspec.to_builtins(each) for each in decode_manifests(path.read_bytes(), where=str(path))]
        assert json.loads(json.dumps(told)) == [json.loads(line) for line in body_of(path).splitlines()]
        seen.add(path.name[:2])
    for path in (golden.target / "_onceonly").rglob("layout-*.json"):
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
